"""Brimful's side: `brimful pretrain`, whose options are the settings."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any
from unittest.mock import patch

from bench.speedrun.points import EnoughError, Points
from brimful.commands.pretrain import pretrain
from brimful.commands.pretrain_config import PretrainConfig
from brimful.config import build
from brimful.nn.heads import MaskedLMHead
from brimful.nn.interop import save_model
from brimful.train.trainer import Trainer


def nested(settings: Mapping[str, Any]) -> dict[str, Any]:
    """{"masking.rate": 0.3} -> {"masking": {"rate": 0.3}}, as a --config file has it."""
    values: dict[str, Any] = {}
    for name, value in settings.items():
        *groups, last = name.split(".")
        inner = values
        for group in groups:
            inner = inner.setdefault(group, {})
        inner[last] = value
    return values


def config(
    settings: Mapping[str, Any], corpus: Path, out: Path, *, seed: int, updates: int, every: int
) -> PretrainConfig:
    """The configuration of a training: the settings, and what the track decides.

    Args:
        updates: of the whole training.
        every: updates between two points.
    """
    given = {
        **settings,
        "data": str(corpus),
        "out": str(out),
        "seed": seed,
        "validation_tokens": 0,
        "verify_data": False,
        "trainer.steps": updates,
        "trainer.evaluate_every": every,
        "trainer.checkpoint_every": 0,
        "trainer.log_every": max(10, every),
    }
    return build(PretrainConfig, nested(given))


def train(
    settings: Mapping[str, Any],
    folder: Path,
    out: Path,
    points: Points,
    *,
    seed: int,
    updates: int,
    every: int,
) -> None:
    """Train; the trainer's evaluations become points, and read nothing held out.

    Args:
        folder: of the track.
        out: for the run directory.
    """

    def reach(trainer: Trainer) -> dict[str, float]:
        head = trainer.objective.modules()["head"]
        assert isinstance(head, MaskedLMHead)
        totals = trainer.totals
        with trainer.state.evaluated(averages=trainer.step > 0):
            points.add(
                lambda path: save_model(path, trainer.encoder, head),
                trainer.step,
                totals.tokens,
                totals.flops,
            )
        return {}

    asked = config(settings, folder / "training", out, seed=seed, updates=updates, every=every)
    with patch.object(Trainer, "evaluate", reach):
        try:
            pretrain(asked)
        except EnoughError:
            return
