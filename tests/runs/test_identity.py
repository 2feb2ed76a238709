"""What decides a run's identity: every setting, unless its field says that it does not."""

import dataclasses
from collections.abc import Iterator
from typing import Any

import pytest

from brimful.base.config import identity, incidental
from brimful.stages.distil_options import DistilConfig, DistilEncoderConfig
from brimful.stages.pretrain_config import PretrainConfig
from brimful.stages.task_options import FinetuneConfig

RUNS = [PretrainConfig, FinetuneConfig, DistilConfig, DistilEncoderConfig]
IN_LOOP = {"log_every", "evaluate_every", "checkpoint_every", "hang_limit", "recompute"}
IN_TRAINER = IN_LOOP | {"keep_checkpoints", "spike", "on_spike", "prefetch"}
INCIDENTAL = {
    PretrainConfig: {
        *("data", "out", "resume", "recipe", "rows_per_micro_batch", "verify_data", "dry_run"),
    },
    FinetuneConfig: {
        *("encoder", "train", "dev", "test", "more_tests", "out", "resume", "dry_run"),
        "ladder",
    },
    DistilConfig: {
        *("teacher", "student", "train", "dev", "test", "unlabelled"),
        *("out", "resume", "dry_run"),
    },
    DistilEncoderConfig: {
        *("teacher", "student", "data", "out", "resume", "dry_run"),
    },
}


def changed(config: Any, place: tuple[str, ...]) -> Any:
    """The configuration with another value at a place. Its own checks are skipped: it need not make sense."""
    name, *rest = place
    value = getattr(config, name)
    new = changed(value, tuple(rest)) if rest else "another value"
    made = object.__new__(type(config))
    for field in dataclasses.fields(config):
        object.__setattr__(made, field.name, new if field.name == name else getattr(config, field.name))
    return made


def places(config: Any) -> Iterator[tuple[str, ...]]:
    """Every setting, in groups too."""
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if dataclasses.is_dataclass(value):
            yield from ((field.name, *rest) for rest in places(value))
        else:
            yield (field.name,)


@pytest.mark.parametrize("kind", RUNS)
def test_every_setting_counts_but_those_listed_here(kind: type) -> None:
    config = kind()
    all_places = set(places(config))
    assert len(all_places) > 20
    trainer = IN_TRAINER if kind is PretrainConfig else IN_LOOP if hasattr(config, "trainer") else set()
    expected = {(name,) for name in INCIDENTAL[kind]} | {("trainer", name) for name in trainer}
    assert {p for p in all_places if identity(changed(config, p)) == identity(config)} == expected


def test_a_new_setting_counts() -> None:
    @dataclasses.dataclass(frozen=True)
    class Inner:
        old: int = 1
        new: int = 2
        shown: int = incidental(3)

    @dataclasses.dataclass(frozen=True)
    class Outer:
        inner: Inner = Inner()
        parts: tuple[Inner, ...] = (Inner(),)
        where: str = incidental("here")

    assert identity(Outer()) == {"inner": {"old": 1, "new": 2}, "parts": [{"old": 1, "new": 2}]}
    assert identity(Outer(where="there", inner=Inner(shown=4))) == identity(Outer())
