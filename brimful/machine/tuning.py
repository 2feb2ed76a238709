"""How fast a training is with one setting and with another: a few of its own updates with each, in turns."""

import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import torch

from brimful.data.loader import prefetch
from brimful.train.trainer import Trainer

UPDATES = 25
"""The most updates that are timed in one turn; each candidate has two turns."""
SECONDS = 3.0
"""After these seconds a turn ends, with one timed update at the least."""
GAIN = 1.03
"""How much faster than the present value another one must be to be recommended."""


@dataclass
class Candidate:
    """A value of a setting, and the updates that were timed with it.

    Attributes:
        rates: real tokens per second, all ranks together, in each update.
        waited: seconds of these updates in which the main rank waited for data.
        seconds: of these updates.
        start_up: seconds of the first update of the first turn, in which a step is compiled.
    """

    value: Any
    rates: list[float] = field(default_factory=list)
    waited: float = 0.0
    seconds: float = 0.0
    start_up: float = 0.0

    @property
    def speed(self) -> float:
        """Tokens per second: the median, which a disturbance of some updates does not move."""
        return median(self.rates)

    def facts(self) -> dict[str, Any]:
        """JSON values."""
        return {
            "value": self.value,
            "tokens_per_second": self.speed,
            "updates": len(self.rates),
            "data_wait": self.waited / self.seconds,
            "start_up": self.start_up,
        }


def compare(values: Sequence[Any], turn: Callable[[Candidate], None]) -> list[Candidate]:
    """Give each value a turn, in order, and then another, in reverse order."""
    found = [Candidate(value) for value in values]
    for candidate in (*found, *reversed(found)):
        turn(candidate)
    return found


def fastest(candidates: Sequence[Candidate]) -> Candidate:
    """The fastest candidate if it is faster than the first one, the present value, by `GAIN`; else that."""
    present, best = candidates[0], max(candidates, key=lambda each: each.speed)
    return best if best.speed >= GAIN * present.speed else present


def time_updates(trainer: Trainer, candidate: Candidate, updates: int = UPDATES) -> None:
    """Make updates with a trainer and time all but the first one. All ranks make the same number.

    Args:
        trainer: before its first update. Its weights change.
        updates: the most that are timed.
    """
    device, world = trainer.runtime.device, trainer.world
    updates = min(updates, trainer.config.steps - 1)
    stream = prefetch(
        trainer.stream,
        trainer.cursor,
        updates + 1,
        normalizers=trainer.objective.normalizers,
        device=device,
        depth=trainer.config.prefetch,
    )
    with closing(stream) as made:
        began = before = time.perf_counter()
        for number, update in enumerate(made):
            result = trainer.train_step(update)
            trainer.step += 1
            if device.type == "cuda":
                torch.cuda.synchronize(device)
            now = time.perf_counter()
            # The main rank's clock counts for all.
            seconds, waited, over = world.sum(
                [now - before, update.waited, float(now - began > SECONDS)] if world.is_main else [0.0] * 3
            )
            before = time.perf_counter()
            if number == 0:
                candidate.start_up = candidate.start_up or seconds
                began = before
                continue
            candidate.rates.append(result.counts["tokens"] / seconds)
            candidate.waited += waited
            candidate.seconds += seconds
            if over:
                break
