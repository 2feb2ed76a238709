"""Learning-rate schedules: pure functions of the update's number."""

import math
from dataclasses import dataclass
from typing import Literal

from brimful.errors import BrimfulError


@dataclass(frozen=True, kw_only=True)
class ScheduleConfig:
    """How the learning rate moves over a run."""

    shape: Literal["linear", "cosine", "constant"] = "linear"
    """What follows the warm-up: a straight line or half a cosine down to zero, or nothing."""
    warmup: float = 0.1
    """Share of the updates over which the rate rises from zero to its peak."""

    def __post_init__(self) -> None:
        if not 0 <= self.warmup < 1:
            raise BrimfulError(f"schedule.warmup is {self.warmup}: it is a share, at least 0 and below 1")


def learning_rate_factor(config: ScheduleConfig, step: int, steps: int) -> float:
    """The factor on the peak rate for update `step` (0-based) of `steps`; the first is above zero."""
    warmup = round(config.warmup * steps)
    if step < warmup:
        return (step + 1) / warmup
    if config.shape == "constant":
        return 1.0
    left = (steps - step) / max(1, steps - warmup)
    return left if config.shape == "linear" else 0.5 * (1 - math.cos(math.pi * left))
