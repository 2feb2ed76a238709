"""Learning-rate schedules: pure functions of an update's number and, if hours are limited, of seconds."""

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Literal

from brimful.base.errors import BrimfulError, require_range


def require_warmup(value: float, name: str) -> None:
    """Raise BrimfulError for a warm-up that is neither a proportion nor a whole number of updates."""
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
        require_range(self, "above 0 and below infinity", "power", group="schedule.")
        require_range(self, "above 0 and at most 1", "decay", group="schedule.")


@dataclass(frozen=True)
class Cycle:
    """A part of a run that goes through the schedule once, from warm-up to end.

    Attributes:
        steps: the number of updates.
        peak: the highest rate, as a factor on the run's.
        warmup: the cycle's own warm-up; None: the schedule's.
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
        hours: hours of training after which the run ends before its last update; 0 = no limit.

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
            proportion = warmup / cycle.steps if warmup >= 1 else warmup
            if self.config.shape == "wsd" and proportion + self.config.decay > 1 + 1e-9:
                raise BrimfulError(
                    f"the warm-up ({proportion:g} of the updates) and schedule.decay"
                    f" ({self.config.decay:g}) are more than the whole: make one smaller"
                )

    def _warmup(self, cycle: Cycle) -> float:
        return self.config.warmup if cycle.warmup is None else cycle.warmup

    def over(self, step: int, seconds: float = 0.0) -> bool:
        """Whether the run is over after `step` updates and `seconds` of training."""
        return step >= sum(cycle.steps for cycle in self.cycles) or 0 < self.hours <= seconds / 3600

    def left(self, seconds: float) -> float:
        """Return how many seconds of training are left after `seconds`: infinity without a limit."""
        return max(0.0, 3600 * (self.hours or math.inf) - seconds)

    def rate(self, step: int, seconds: float = 0.0) -> float:
        """Return the factor on the peak rate for update `step` (0-based), which begins after `seconds`.

        It is above zero until the run is `over`. If hours are limited, the place in the schedule is the
        larger of two proportions: updates made and time spent.
        """
        ends = list(accumulate(cycle.steps for cycle in self.cycles))
        number = bisect_right(ends, step)
        cycle = self.cycles[number]
        before = float(step - (ends[number] - cycle.steps))
        after = before + 1
        if self.hours:
            steps_by_clock = cycle.steps * seconds / (3600 * self.hours)
            before, after = max(before, steps_by_clock), max(after, steps_by_clock)
        return cycle.peak * self._factor(cycle, before, after)

    def _factor(self, cycle: Cycle, before: float, after: float) -> float:
        """Return the factor of the update from `before` to `after`, in updates since the cycle began."""
        shape, steps, warmup = self.config.shape, cycle.steps, self._warmup(cycle)
        if warmup < 1:
            warmup *= steps
        # The warm-up looks at the end of an update and the decay at its beginning, so that neither rate is 0.
        if after <= warmup:
            return after / warmup
        if shape == "constant":
            return 1.0
        falling_steps = float(steps)
        if shape == "wsd":  # warmup-stable-decay (Hu et al. 2024, "MiniCPM", section 4)
            falling_steps = self.config.decay * steps
        elif self.config.decay_from == "warmup":
            falling_steps = steps - warmup
        # The proportion of the decay that is still to come; above 1 where it has not begun.
        remaining = min(1.0, max(0.0, (steps - before) / falling_steps))
        if shape == "wsd":  # the decay of Hägele et al. 2024
            return 1 - math.sqrt(1 - remaining)
        if shape == "cosine":  # Loshchilov & Hutter 2017, "SGDR", equation 5, without restarts
            return (1 - math.cos(math.pi * remaining)) / 2
        if shape == "polynomial":
            return remaining**self.config.power
        return remaining
