"""Strict configuration: what is unknown or of a wrong type is named, and YAML gives back what was written."""

import importlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np
import pytest

from brimful.base.config import build, config_hash, read_yaml, require_seeds, to_dict, write_yaml
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
    stage: Required = Required(epochs=1.0, rate=0.3)
    maybe: Inner | None = None
    parts: dict[str, int] = field(default_factory=dict)


REFUSED: list[tuple[dict, list[str]]] = [
    ({"setps": 3}, ["setps", "steps"]),
    ({"inner-part": {"raet": 3}}, ["inner_part.raet", "rate"]),
    ({"maybe": {"zzz": 3}}, ["maybe.zzz", "many", "rate"]),
    ({3: 4}, ["3"]),
    ({"steps": "ten"}, ["key steps"]),
    ({"steps": True}, ["key steps"]),
    ({"mode": "medium"}, ["key mode"]),
    ({"name": 3}, ["key name"]),
    ({"inner_part": {"rate": "much"}}, ["key inner_part.rate"]),
    ({"inner_part": 3}, ["key inner_part"]),
    ({"steps": np.int64(3)}, ["key steps: expected int, got"]),
    ({"inner_part": {"many": [np.int64(3)]}}, ["key inner_part.many[0]: expected int, got"]),
    ({"out": bytearray(b"x")}, ["key out: expected str, got"]),
    ({"stage": {"epochs": "x"}}, ["key stage.epochs"]),
    ({"stage": {"epochs": -1}}, ["epochs must not be negative"]),
]


@pytest.mark.parametrize(("values", "named"), REFUSED)
def test_what_a_configuration_may_not_hold_is_named_in_one_line(values, named):
    with pytest.raises(BrimfulError) as error:
        build(Outer, {"out": "x"} | values)
    assert all(name in str(error.value) for name in named)
    assert "\n" not in str(error.value)


NUMBERS = {"1e-3": 1e-3, "-2E+4": -2e4, "1.5e3": 1.5e3, ".5e1": 5.0, "3.": 3.0, "0.1": 0.1, "7": 7}
NUMBERS |= {"'1e-3'": "1e-3", "1e": "1e", "null": None, "[1e-4, 2]": [1e-4, 2]}


@pytest.mark.parametrize(("text", "value"), NUMBERS.items())
def test_yaml_numbers(tmp_path, text, value):
    (tmp_path / "a.yaml").write_text(f"key: {text}\n")
    read = read_yaml(tmp_path / "a.yaml")["key"]
    assert (read, type(read)) == (value, type(value))


FINETUNE = {"encoder": "e: f", "train": "# t", "test": "'", "out": "-", "seed": [1, 2]}
EXPORT = {"run": "on", "out": "=", "format": "onnx", "read": {"split": "paragraph"}}
SCHEMAS = {
    "brimful.corpus.pipeline.config:PrepareConfig": {"paths": ["a", "汉字"], "out": "1e-3"},
    "brimful.stages.pretrain_config:PretrainConfig": {
        "data": ["a:3", {"path": "null", "name": "y", "weight": 2.0}],
        "out": "12",
        "phases": [{"steps": 600, "max_length": 64}, {"steps": 400, "learning_rate": 1e-4}],
    },
    "brimful.stages.task_options:FinetuneConfig": FINETUNE,
    "brimful.stages.distil_options:DistilConfig": {"teacher": "0x1", "out": "~", "unlabelled": ["no"]},
    "brimful.stages.distil_encoder_config:DistilEncoderConfig": {"teacher": "0x1", "out": "~", "data": ["x"]},
    "brimful.exporting.config:ExportConfig": EXPORT,
}


@pytest.mark.parametrize("name", SCHEMAS)
def test_a_written_configuration_builds_the_same(name, tmp_path):
    module, schema_name = name.split(":")
    schema = getattr(importlib.import_module(module), schema_name)
    config = build(schema, SCHEMAS[name])
    write_yaml(tmp_path / "config.yaml", config)
    assert build(schema, read_yaml(tmp_path / "config.yaml")) == config
    assert config_hash(config) == config_hash(dict(reversed(to_dict(config).items())))
    assert config_hash(config) != config_hash(to_dict(config) | {"more": 1})


def test_keywords_may_be_paths_groups_and_hyphenated():
    assert build(Outer, {"out": "x", "inner-part": {"rate": 1e-3}}).inner_part == Inner(rate=1e-3)
    assert build(Outer, {"out": "x", "inner_part": Inner(rate=0.25)}).inner_part == Inner(rate=0.25)
    assert build(Outer, {"out": Path("some") / "place"}).out == "some/place"


def test_a_group_keeps_the_defaults_that_its_parent_gives_it():
    """YAML, keywords and flags mean the same: `stage.epochs` alone leaves `stage.rate` at 0.3."""
    assert build(Outer, {"out": "x", "stage": {"epochs": 2.0}}).stage == Required(epochs=2.0, rate=0.3)
    assert build(Outer, {"out": "x", "stage": {"rate": 0.4}}).stage == Required(epochs=1.0, rate=0.4)


def test_seeds_have_64_bits():
    require_seeds(0, -(1 << 63), (1 << 64) - 1)
    for seed in (-(1 << 63) - 1, 1 << 64, 10**30):
        with pytest.raises(BrimfulError, match=rf"seed.*{seed}.*64 bits"):
            require_seeds(0, seed)
