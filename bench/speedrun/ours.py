"""Brimful's side: `brimful pretrain`, whose options are the settings."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

from bench.speedrun.points import EnoughError, Length, Points
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


MOST = 1_000_000
"""Updates of a training that ends for another reason."""


def config(
    settings: Mapping[str, Any], corpus: Path, out: Path, length: Length, *, seed: int
) -> PretrainConfig:
    """The configuration of a training: the settings, and what the track decides."""
    given = {
        **settings,
        "data": str(corpus),
        "out": str(out),
        "seed": seed,
        "validation_tokens": 0,
        "verify_data": False,
        "trainer.steps": length.updates or MOST,
        "trainer.hours": (length.seconds or 0.0) / 3600,
        "trainer.evaluate_every": 1,
        "trainer.checkpoint_every": 0,
        "trainer.log_every": 50,
    }
    return build(PretrainConfig, nested(given))


def train(settings: Mapping[str, Any], folder: Path, out: Path, points: Points, *, seed: int) -> None:
    """Train; the trainer's evaluations become points, and read nothing held out.

    Args:
        folder: of the track.
        out: for the run directory.

    Raises:
        BrimfulError: the training failed, or its seconds leave no time to train.
    """
    run = Trainer.run

    def begin(trainer: Trainer, *args: Any, **options: Any) -> dict[str, float]:
        if trainer.schedule.hours:  # the trainer's clock begins here, after the start-up
            trainer.schedule = replace(trainer.schedule, hours=points.left() / 3600)
        return run(trainer, *args, **options)

    def reach(trainer: Trainer) -> dict[str, float]:
        head = trainer.objective.modules()["head"]
        assert isinstance(head, MaskedLMHead)

        def save(path: Path) -> None:
            with trainer.state.evaluated(averages=True):
                save_model(path, trainer.encoder, head)

        totals = trainer.totals
        last = trainer.schedule.over(trainer.step, totals.seconds)
        points.after(save, trainer.step, totals.tokens, totals.flops, last=last)
        return {}

    asked = config(settings, folder / "training", out, points.length, seed=seed)
    with patch.object(Trainer, "run", begin), patch.object(Trainer, "evaluate", reach):
        try:
            pretrain(asked)
        except EnoughError:
            return
