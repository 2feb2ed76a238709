"""`pretrain --recipe`: the defaults that a run starts from."""

from typing import Any

import pytest

from brimful.base.config import build, to_dict
from brimful.cli.arguments import parse
from brimful.stages.pretrain_config import PretrainConfig

FAST = ("muon", 2e-3, 0.02, 0.3, None, 0.05)
PLAIN = ("adamw", 1e-3, 0.02, 0.15, None, 0.1)


def sized(rate: float) -> tuple[Any, ...]:
    """The settings of a size that has a rate and a warm-up of its own."""
    return "adamw", rate, *PLAIN[2:5], 0.06


def by_keywords(values: dict[str, Any]) -> PretrainConfig:
    return build(PretrainConfig, {"data": "data", "out": "out"} | values)


def settings(config: PretrainConfig) -> tuple[Any, ...]:
    optimizer, masking = config.optimizer, config.masking
    rates = optimizer.learning_rate, optimizer.muon_learning_rate
    return optimizer.name, *rates, masking.rate, masking.final_rate, config.schedule.warmup


@pytest.mark.parametrize(
    ("values", "recipe", "expected"),
    [
        ({}, "fast", FAST),
        ({"model": "tiny", "architecture": "modern"}, "fast", FAST),
        ({"model": "tiny", "architecture": "bert"}, "plain", PLAIN),
        ({"model": "base"}, "plain", sized(5e-4)),
        ({"model": "large", "architecture": "bert"}, "plain", sized(2e-4)),
        ({"model": "base", "optimizer": {"name": "adamw"}}, "plain", sized(5e-4)),
        ({"model": "base", "optimizer": {"name": "lamb"}}, "plain", ("lamb", *sized(1e-3)[1:])),
        ({"start_from": "model"}, "plain", PLAIN),
        ({"recipe": "plain"}, "plain", PLAIN),
        ({"model": "base", "recipe": "fast"}, "fast", FAST),
        ({"optimizer": {"name": "adamw"}}, "fast", (*PLAIN[:3], *FAST[3:])),
        ({"optimizer": {"learning_rate": 3e-3}}, "fast", ("adamw", 3e-3, 0.02, *FAST[3:])),
        ({"optimizer": {"name": "muon"}}, "fast", ("muon", 1e-3, 0.02, *FAST[3:])),
        ({"recipe": "fast", "optimizer": {"learning_rate": 3e-3}}, "fast", ("muon", 3e-3, *FAST[2:])),
        ({"recipe": "fast", "optimizer": {"name": "lamb"}}, "fast", ("lamb", *PLAIN[1:3], *FAST[3:])),
        ({"optimizer": {"weight_decay": 0.1}}, "fast", FAST),
        ({"masking": {"final_rate": 0.2}}, "fast", (*FAST[:4], 0.2, FAST[-1])),
        ({"schedule": {"warmup": 0.0}}, "fast", (*FAST[:-1], 0.0)),
    ],
)
def test_defaults_follow_the_recipe(values, recipe, expected):
    config = by_keywords(values)
    assert config.recipe == recipe
    assert settings(config) == expected


@pytest.mark.parametrize(
    ("values", "rows", "sequences", "length"),
    [
        ({"model": "small"}, 16, None, 128),
        ({"model": "large", "packing": {"capacity": 8192}}, 64, None, 512),
        ({"model": "base", "rows_per_update": 8}, 8, None, 512),
        ({"model": "base", "sequences_per_update": 256}, 4, 256, 512),
    ],
)
def test_update_and_length_follow_the_size(values, rows, sequences, length):
    config = by_keywords(values)
    found = config.rows_per_update, config.sequences_per_update, config.packing.max_length
    assert found == (rows, sequences, length)


def test_flags_decide_over_a_file(tmp_path):
    path = tmp_path / "options.yaml"
    path.write_text("model: base\nmasking:\n  final-rate: 0.1\nschedule: {power: 1.0}\n")
    arguments = ["--config", str(path), "--data", "data", "--out", "out"]
    config = parse(PretrainConfig, arguments, "brimful pretrain")[0]
    assert settings(config) == (*sized(5e-4)[:4], 0.1, 0.06)
    config = parse(PretrainConfig, [*arguments, "--model", "mini"], "brimful pretrain")[0]
    assert settings(config) == (*FAST[:4], 0.1, FAST[-1])
    assert config.schedule.power == 1.0


def test_a_written_configuration_keeps_its_recipe():
    config = by_keywords({"model": "tiny"})
    assert build(PretrainConfig, to_dict(config)) == config
    assert (config.recipe, config.optimizer.name) == ("fast", "muon")


def test_a_run_that_is_resumed_has_its_own_settings():
    own = build(PretrainConfig, {"resume": "run"})
    assert settings(own) == settings(PretrainConfig(resume="run"))
    assert parse(PretrainConfig, ["--resume", "run"], "brimful pretrain")[0] == own
