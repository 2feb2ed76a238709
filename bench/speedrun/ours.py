"""Brimful's side: `brimful pretrain`, whose options are the settings."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

from bench.speedrun.points import EnoughError, Length, Points
from brimful.commands.pretrain import pretrain
from brimful.config import build, read_yaml
from brimful.hf.folders import save_model
from brimful.model.heads import MaskedLMHead
from brimful.optim.schedule import Schedule
from brimful.pretraining.config import PretrainConfig
from brimful.runs.directory import CONFIG
from brimful.train.trainer import Trainer

MOST = 1_000_000
"""More updates than any training makes before its time is over."""


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


def as_run(directory: Path) -> dict[str, Any]:
    """What a run directory says of the settings that a device decides. With them, another device makes the
    same updates but for rounding."""
    values = read_yaml(directory / CONFIG)
    return {
        "precision": values["precision"],
        "rows_per_micro_batch": values["rows_per_micro_batch"],
        "trainer.residual": values["trainer"]["residual"],
    }


@dataclass(frozen=True)
class ByClock(Schedule):
    """A schedule that follows the clock of the points, which has the start-up too, and not the trainer's. Its
    `hours` are 1, for the whole training.
    """

    points: Points = field(kw_only=True)
    said: dict[int, bool] = field(default_factory=dict, kw_only=True)

    def over(self, step: int, seconds: float = 0.0) -> bool:
        return self.said.setdefault(step, self.points.done(step) >= 1)  # time passes between two questions

    def rate(self, step: int, seconds: float = 0.0) -> float:
        return super().rate(step, 3600 * self.points.done(step))


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
        if points.length.seconds is not None:
            schedule = trainer.schedule
            trainer.schedule = ByClock(schedule.config, schedule.cycles, 1.0, points=points)
        return run(trainer, *args, **options)

    def reach(trainer: Trainer) -> dict[str, float]:
        head = trainer.objective.modules()["head"]
        assert isinstance(head, MaskedLMHead)

        def save(path: Path) -> None:
            with trainer.state.averaged():
                save_model(path, trainer.encoder, head)

        totals = trainer.totals
        last = trainer.schedule.over(trainer.step)
        points.after(save, trainer.step, totals.tokens, totals.flops, last=last)
        return {}

    asked = config(settings, folder / "training", out, points.length, seed=seed)
    with patch.object(Trainer, "run", begin), patch.object(Trainer, "evaluate", reach):
        try:
            pretrain(asked)
        except EnoughError:
            return
