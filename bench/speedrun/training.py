"""The process of one training: its clock, and Brimful's side, `brimful pretrain` with settings as options."""

import ctypes
import json
import signal
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch

from bench.speedrun import rival
from bench.speedrun.text import Track
from brimful.base.config import build
from brimful.base.errors import BrimfulError
from brimful.base.storage import write_json
from brimful.commands.pretrain import pretrain
from brimful.hf.folders import save_model
from brimful.optim.schedule import Schedule
from brimful.stages.pretrain_config import PretrainConfig
from brimful.train.trainer import Trainer

MOST = 1_000_000  # more updates than any training makes before its time is over
PARENT_DEATH_SIGNAL = 1  # of Linux's prctl: a training ends with the process that started it


@dataclass
class Points:
    """Ends a training after `seconds` since the parent `started` this process, or after `updates`. The first
    update, which ends the start-up, and the last one are `reached`; the model is left in `folder`."""

    folder: Path
    started: float
    seconds: float | None = None
    updates: int | None = None
    reached: list[dict[str, Any]] = field(default_factory=list)

    def done(self, updates: int) -> float:
        """The proportion that is done, of the updates or of the seconds after the start-up."""
        if self.updates is not None:
            return updates / self.updates
        if self.seconds is None or not self.reached:
            return 0.0
        began = self.reached[0]["seconds"]
        return min(1.0, (time.monotonic() - self.started - began) / (self.seconds - began))

    def after(self, save: Callable[[Path], Any], updates: int, tokens: int, flops: int, last: bool) -> None:
        """An update has ended; the last one ends the clock, before `save` writes the model."""
        seconds = time.monotonic() - self.started
        point = {"seconds": seconds, "updates": updates, "tokens": tokens, "flops": flops}
        if not self.reached:
            if self.seconds is not None and seconds >= self.seconds:
                raise BrimfulError(f"it needs {seconds:.0f} s to start, of {self.seconds:g}: give more")
            self.reached.append(point)
        if last:
            self.reached.append(point)
            save(self.folder)


def config(settings: Mapping[str, Any], corpus: Path, out: Path, points: Points, seed: int) -> PretrainConfig:
    """The configuration of a training of Brimful: the settings, and what the track decides."""
    values: dict[str, Any] = {"data": str(corpus), "out": str(out), "seed": seed}
    values |= {"validation_tokens": 0, "verify_data": False}
    loop = {"evaluate_every": 1, "checkpoint_every": 0, "log_every": 50}
    values["trainer"] = loop | {"steps": points.updates or MOST, "hours": (points.seconds or 0.0) / 3600}
    for name, value in settings.items():  # {"masking.rate": 0.3} -> {"masking": {"rate": 0.3}}
        *groups, last = name.split(".")
        inner = values
        for group in groups:
            inner = inner.setdefault(group, {})
        inner[last] = value
    return build(PretrainConfig, values)


@dataclass(frozen=True)
class ByClock(Schedule):
    """A schedule that follows the clock of the points; its `hours` are 1, for all of the training."""

    points: Points = field(kw_only=True)
    answers: dict[int, bool] = field(default_factory=dict, kw_only=True)

    def over(self, step: int, seconds: float = 0.0) -> bool:
        # Time passes between two questions.
        return self.answers.setdefault(step, self.points.done(step) >= 1)

    def rate(self, step: int, seconds: float = 0.0) -> float:
        return super().rate(step, 3600 * self.points.done(step))


def train_ours(asked: PretrainConfig, points: Points) -> None:
    """Train Brimful; the trainer's evaluations become points, and read nothing held out."""
    run = Trainer.run

    def begin(trainer: Trainer, *args: Any, **options: Any) -> dict[str, float]:
        if points.seconds is not None:
            schedule = trainer.schedule
            trainer.schedule = ByClock(schedule.config, schedule.cycles, 1.0, points=points)
        return run(trainer, *args, **options)

    def reach(trainer: Trainer) -> dict[str, float]:
        def save(path: Path) -> None:
            save_model(path, trainer.encoder, trainer.objective.modules()["head"])  # type: ignore[arg-type]

        totals, last = trainer.progress.totals, trainer.schedule.over(trainer.progress.step)
        points.after(save, trainer.progress.step, totals.tokens, totals.flops, last)
        return {}

    with patch.object(Trainer, "run", begin), patch.object(Trainer, "evaluate", reach):
        pretrain(asked)


def main() -> None:
    ctypes.CDLL(None).prctl(PARENT_DEATH_SIGNAL, signal.SIGKILL)
    training = json.loads(sys.argv[1])
    torch.set_num_threads(training["threads"])
    settings, seed = training["settings"], training["seed"]
    text, out = Path(training["text"]), Path(training["out"])
    points = Points(out / "model", **training["length"])
    try:
        if training["side"] == "brimful":
            train_ours(config(settings, text / "prepared", out / "run", points, seed), points)
        else:
            rival.train(Track(**training["track"]), settings, text, points, seed)
    except BrimfulError as error:
        sys.exit(str(error))
    write_json(out / "result.json", {"points": points.reached})


if __name__ == "__main__":
    main()
