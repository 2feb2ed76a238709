"""What decides a run's identity: every setting, unless its field says that it does not."""

import dataclasses
from collections.abc import Iterator
from typing import Any

import pytest

from brimful.base.config import identity
from brimful.stages.distil_encoder_config import DistilEncoderConfig
from brimful.stages.distil_options import DistilConfig
from brimful.stages.pretrain_config import PretrainConfig
from brimful.stages.task_options import FinetuneConfig

IN_LOOP = {"log_every", "evaluate_every", "checkpoint_every", "hang_limit", "recompute"}
IN_TRAINER = IN_LOOP | {"steps", "hours", "keep_checkpoints", "spike", "on_spike", "prefetch"}
OF_ALL = {"out", "resume", "dry_run"}
TABLES = {"train", "dev", "test"}
INCIDENTAL = {
    PretrainConfig: {"data", "recipe", "rows_per_micro_batch", "verify_data"},
    FinetuneConfig: {"group", "encoder", *TABLES, "more_tests", "ladder"},
    DistilConfig: {"teacher", "student", *TABLES, "unlabelled"},
    DistilEncoderConfig: {"teacher", "student", "data"},
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


@pytest.mark.parametrize("kind", INCIDENTAL)
def test_every_setting_counts_but_those_listed_here(kind: type) -> None:
    config = kind()
    all_places = set(places(config))
    assert len(all_places) > 20
    trainer = IN_TRAINER if kind is PretrainConfig else IN_LOOP if hasattr(config, "trainer") else set()
    expected = {(name,) for name in OF_ALL | INCIDENTAL[kind]} | {("trainer", name) for name in trainer}
    assert {p for p in all_places if identity(changed(config, p)) == identity(config)} == expected
