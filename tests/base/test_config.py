"""Strict configuration: what is unknown or of a wrong type is named, and YAML gives back what was written."""

import dataclasses
import importlib
import random
import typing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest

from brimful.base.config import Verb, build, config_hash, read_yaml, require_seeds, to_dict, verb, write_yaml
from brimful.base.errors import BrimfulError


@dataclass(frozen=True, kw_only=True)
class Inner:
    rate: float = 0.5
    many: tuple[int, ...] = (1, 2)


@dataclass(frozen=True, kw_only=True)
class Required:
    epochs: float
    rate: float = 0.1

    def __post_init__(self) -> None:
        if self.epochs < 0:
            raise BrimfulError("epochs must not be negative")


@dataclass(frozen=True, kw_only=True)
class Outer:
    out: str
    steps: int = 10
    mode: Literal["fast", "slow"] = "fast"
    name: str | None = None
    inner_part: Inner = Inner()
    stage: Required = Required(epochs=1.0)
    maybe: Inner | None = None
    parts: dict[str, int] = field(default_factory=dict)


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"out": "x", "setps": 3}, ["setps", "steps"]),
        ({"out": "x", "inner-part": {"raet": 3}}, ["inner_part.raet", "rate"]),
        ({"out": "x", "maybe": {"zzz": 3}}, ["maybe.zzz", "many", "rate"]),
        ({}, ["out", "required"]),
        ({"out": "x", 3: 4}, ["3"]),
    ],
)
def test_unknown_and_absent_keys_are_named(values: dict, named: list[str]) -> None:
    with pytest.raises(BrimfulError) as error:
        build(Outer, values)
    assert all(name in str(error.value) for name in named)


@pytest.mark.parametrize(
    ("values", "place"),
    [
        ({"steps": "ten"}, "steps"),
        ({"steps": True}, "steps"),
        ({"mode": "medium"}, "mode"),
        ({"name": 3}, "name"),
        ({"inner_part": {"rate": "much"}}, "inner_part.rate"),
        ({"inner_part": 3}, "inner_part"),
        ({"steps": np.int64(3)}, "steps: expected int, got"),
        ({"inner_part": {"many": [np.int64(3)]}}, "inner_part.many[0]: expected int, got"),
        ({"out": bytearray(b"x")}, "out: expected str, got"),
        ({"stage": {"epochs": "x"}}, "stage.epochs"),
    ],
)
def test_a_wrong_type_names_its_key(values: dict, place: str) -> None:
    with pytest.raises(BrimfulError) as error:
        build(Outer, {"out": "x", **values})
    assert f"key {place}" in str(error.value)
    assert "\n" not in str(error.value)


def test_a_configuration_checks_itself() -> None:
    with pytest.raises(BrimfulError, match="negative"):
        build(Outer, {"out": "x", "stage": {"epochs": -1}})


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-3", 1e-3),
        ("-2E+4", -2e4),
        ("1.5e3", 1.5e3),
        (".5e1", 5.0),
        ("3.", 3.0),
        ("0.1", 0.1),
        ("7", 7),
        ("'1e-3'", "1e-3"),
        ("1e", "1e"),
        ("null", None),
        ("[1e-4, 2]", [1e-4, 2]),
    ],
)
def test_yaml_numbers(tmp_path: Path, text: str, value: Any) -> None:
    (tmp_path / "a.yaml").write_text(f"key: {text}\n")
    read = read_yaml(tmp_path / "a.yaml")["key"]
    assert read == value
    assert type(read) is type(value)


@pytest.mark.parametrize(
    "data", [b"- a\n- b\n", b"word\n", b"a: [\n", b"\xff\xfe\x00", b"a: !!python/object/apply:os.getcwd []\n"]
)
def test_a_yaml_that_is_no_mapping_is_refused(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "a.yaml").write_bytes(data)
    with pytest.raises(BrimfulError, match=r"a\.yaml") as error:
        read_yaml(tmp_path / "a.yaml")
    assert "\n" not in str(error.value)


SCHEMAS = {
    "brimful.corpus.pipeline.config:PrepareConfig": {"paths": ["a", "汉字"], "out": "1e-3"},
    "brimful.stages.pretrain_config:PretrainConfig": {"data": "null", "out": "12"},
    "brimful.stages.task_options:FinetuneConfig": {
        "encoder": "e: f",
        "train": "# t",
        "test": "'",
        "out": "-",
        "seed": [1, 2],
    },
    "brimful.stages.distil_options:DistilConfig": {"teacher": "0x1", "out": "~", "unlabelled": ["no"]},
    "brimful.stages.distil_options:DistilEncoderConfig": {"teacher": "0x1", "out": "~", "data": ["no"]},
    "brimful.exporting.config:ExportConfig": {
        "run": "on",
        "out": "=",
        "format": "onnx",
        "read": {"split": "paragraph"},  # a line cannot be joined
    },
}


def changed(value: Any, annotation: Any, draw: random.Random) -> Any:
    """Another value of the same kind for some fields of a configuration."""
    if dataclasses.is_dataclass(value):
        hints = typing.get_type_hints(type(value))
        return {
            f.name: changed(getattr(value, f.name), hints[f.name], draw) for f in dataclasses.fields(value)
        }
    if isinstance(value, bool):
        return draw.random() < 0.5
    if isinstance(value, float) and 0 < value < 1:
        return draw.choice([value, value * draw.random(), value * 10.0 ** -draw.randint(1, 9)])
    return value


@pytest.mark.parametrize("name", SCHEMAS)
def test_a_written_configuration_builds_the_same(name: str, tmp_path: Path, seed: int) -> None:
    module, schema_name = name.split(":")
    schema = getattr(importlib.import_module(module), schema_name)
    draw = random.Random(seed)
    plain = build(schema, SCHEMAS[name])
    for config in (plain, *(build(schema, changed(plain, schema, draw)) for _ in range(5))):
        write_yaml(tmp_path / "config.yaml", config)
        assert build(schema, read_yaml(tmp_path / "config.yaml")) == config
        assert config_hash(config) == config_hash(dict(reversed(to_dict(config).items())))
        assert config_hash(config) != config_hash(to_dict(config) | {"more": 1})


@verb(Outer)
def work(config: Outer) -> Outer:
    """Give back the configuration."""
    return config


def test_a_verb_takes_a_configuration_or_keywords() -> None:
    assert isinstance(work, Verb)
    assert work.__doc__ == "Give back the configuration."
    assert work(Outer(out="x")) == work(out="x") == Outer(out="x")
    assert work(out="x", **{"inner-part": {"rate": 1e-3}}).inner_part == Inner(rate=1e-3)
    assert work(out="x", inner_part=Inner(rate=0.25)).inner_part == Inner(rate=0.25)
    assert work(out=Path("some") / "place").out == "some/place"
    with pytest.raises(TypeError, match="not both"):
        work(Outer(out="x"), steps=3)
    with pytest.raises(BrimfulError, match="steps"):
        work(out="x", stesp=3)


@dataclass(frozen=True, kw_only=True)
class _Group:
    steps: int
    every: int = 0


@dataclass(frozen=True, kw_only=True)
class _WithGroup:
    group: _Group = _Group(steps=3, every=500)


def test_a_group_keeps_the_defaults_that_its_parent_gives_it() -> None:
    """YAML, keywords and flags mean the same: `group.steps` alone leaves `group.every` at 500."""
    assert build(_WithGroup, {"group": {"steps": 10}}).group == _Group(steps=10, every=500)
    assert build(_WithGroup, {"group": {"every": 1}}).group == _Group(steps=3, every=1)


def test_seeds_have_64_bits() -> None:
    require_seeds(0, -(1 << 63), (1 << 64) - 1)
    for seed in (-(1 << 63) - 1, 1 << 64, 10**30):
        with pytest.raises(BrimfulError, match=rf"seed.*{seed}.*64 bits"):
            require_seeds(0, seed)
