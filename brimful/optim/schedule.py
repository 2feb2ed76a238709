"""Learning-rate schedules: pure functions of an update's number and, if hours are limited, of seconds."""

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Literal

from brimful.base.errors import BrimfulError


def require_warmup(value: float, name: str) -> None:
    """Refuse a warm-up that is neither a proportion nor a number of updates.

    Raises:
        BrimfulError: it is negative, not finite, or above 1 and not a whole number.
    """
    if not (0 <= value < 1 or (1 <= value < math.inf and value == int(value))):
        raise BrimfulError(
            f"{name} is {value:g}: give a proportion, at least 0 and below 1, or a whole number of updates"
        )


@dataclass(frozen=True, kw_only=True)
class CurveConfig:
    """The learning rate over a run: its shape, with the usual constants."""

    shape: Literal["linear", "polynomial", "cosine", "constant", "wsd"] = "linear"
    """The rate after the warm-up: linear falls to zero in a straight line, polynomial by a power of it,
    cosine by half a cosine; constant stays; wsd (warmup-stable-decay) stays until the last updates, where it
    falls by 1 - sqrt."""
    warmup: float = 0.1
    """Updates over which the rate rises from zero to its peak: a proportion if below 1, else a number."""

    def __post_init__(self) -> None:
        require_warmup(self.warmup, "schedule.warmup")


@dataclass(frozen=True, kw_only=True)
class ScheduleConfig(CurveConfig):
    """The learning rate over a run, or over each phase that has a rate of its own."""

    power: float = 0.5
    """The power of polynomial."""
    decay: float = 0.2
    """The proportion of the updates, at the end, over which wsd decays."""
    decay_from: Literal["warmup", "start"] = "warmup"
    """Where linear, polynomial and cosine begin to fall. warmup: at the end of the warm-up, from the peak.
    start: at the first update, so the rate drops after the warm-up (as in BERT's and NVIDIA's code)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.power < math.inf:
            raise BrimfulError(f"schedule.power is {self.power}: it must be above 0")
        if not 0 < self.decay <= 1:
            raise BrimfulError(f"schedule.decay is {self.decay}: give a proportion, above 0 and at most 1")


@dataclass(frozen=True)
class Cycle:
    """A part of a run that goes through the schedule once, from warm-up to end.

    Attributes:
        steps: its updates.
        peak: its highest rate, as a factor on the run's.
        warmup: its own warm-up; None: the schedule's.
    """

    steps: int
    peak: float = 1.0
    warmup: float | None = None


@dataclass(frozen=True)
class Schedule:
    """The learning rate of each update of a run.

    Attributes:
        config: the shape.
        cycles: the parts of the run, in order.
        hours: of training, after which the run ends before its last update; 0 = no limit.

    Raises:
        BrimfulError: a warm-up is as long as its cycle, or leaves wsd no room to decay; or hours are limited,
            and there are several cycles or a warm-up is given as a number of updates.
    """

    config: ScheduleConfig
    cycles: Sequence[Cycle]
    hours: float = 0.0

    def __post_init__(self) -> None:
        if self.hours and len(self.cycles) > 1:
            raise BrimfulError(
                "trainer.hours does not go with phases that have their own learning_rate or warmup:"
                " give one or the other"
            )
        for cycle in self.cycles:
            warmup = self._warmup(cycle)
            if self.hours and warmup >= 1:
                raise BrimfulError(
                    f"schedule.warmup is {warmup:g} updates, and with trainer.hours the number of updates is"
                    " unknown: give a proportion"
                )
            if warmup >= cycle.steps:
                raise BrimfulError(
                    f"the warm-up takes {warmup:g} updates, and there are {cycle.steps}: make it shorter"
                )
            share = warmup / cycle.steps if warmup >= 1 else warmup
            if self.config.shape == "wsd" and share + self.config.decay > 1 + 1e-9:
                raise BrimfulError(
                    f"the warm-up ({share:g} of the updates) and schedule.decay ({self.config.decay:g}) are"
                    " more than the whole: make one smaller"
                )

    def _warmup(self, cycle: Cycle) -> float:
        return self.config.warmup if cycle.warmup is None else cycle.warmup

    def over(self, step: int, seconds: float = 0.0) -> bool:
        """Whether the run ends after `step` updates and `seconds` of training."""
        return step >= sum(cycle.steps for cycle in self.cycles) or 0 < self.hours <= seconds / 3600

    def left(self, seconds: float) -> float:
        """The most seconds of training that are left after `seconds`."""
        return max(0.0, 3600 * self.hours - seconds) if self.hours else math.inf

    def rate(self, step: int, seconds: float = 0.0) -> float:
        """The factor on the peak rate for update `step` (0-based), which begins after `seconds` of training.

        It is above zero until the run is `over`. If hours are limited, the place in the schedule is the
        larger of two proportions: of the updates that are done, and of the time that is gone.
        """
        ends = list(accumulate(cycle.steps for cycle in self.cycles))
        number = bisect_right(ends, step)
        cycle = self.cycles[number]
        before = float(step - (ends[number] - cycle.steps))
        after = before + 1
        if self.hours:
            clock = cycle.steps * seconds / (3600 * self.hours)
            before, after = max(before, clock), max(after, clock)
        return cycle.peak * self._factor(cycle, before, after)

    def _factor(self, cycle: Cycle, before: float, after: float) -> float:
        """The factor of the update from `before` to `after`, both in updates since the cycle began."""
        shape, steps, warmup = self.config.shape, cycle.steps, self._warmup(cycle)
        if warmup < 1:
            warmup *= steps
        if after <= warmup:
            return after / warmup
        if shape == "constant":
            return 1.0
        falling = steps - warmup if self.config.decay_from == "warmup" else steps
        if shape == "wsd":
            falling = self.config.decay * steps
        left = min(1.0, max(0.0, (steps - before) / falling))
        if shape == "wsd":
            return 1 - math.sqrt(1 - left)
        if shape == "cosine":
            return (1 - math.cos(math.pi * left)) / 2
        return left**self.config.power if shape == "polynomial" else left
