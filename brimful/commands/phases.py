"""Parts of a pretraining run: how lengths, sizes of updates and learning rates change in it."""

import math
from dataclasses import dataclass

from brimful.config import require_positive
from brimful.errors import BrimfulError
from brimful.optim.schedule import require_warmup


@dataclass(frozen=True, kw_only=True)
class PhaseConfig:
    """A part of a run; what is not said here is as in the whole run.

    The learning rate goes on through phases as if they were one, until one names a rate or a warm-up of its
    own: there the schedule starts anew.
    """

    steps: int
    """Its updates."""
    max_length: int | None = None
    """The most tokens in a sequence, in the blocks that begin in this phase."""
    update_size: int | None = None
    """Rows that one update sees; or sequences, where the run has sequences_per_update."""
    learning_rate: float | None = None
    """Peak rate from here on, in place of optimizer.learning_rate; Muon's rate changes in proportion."""
    warmup: float | None = None
    """Over which the rate rises to it: a share of the updates that share this rate, or their number."""

    def __post_init__(self) -> None:
        require_positive(self, "steps", group="phases.")
        if self.update_size is not None:
            require_positive(self, "update_size", group="phases.")
        if self.learning_rate is not None and not 0 < self.learning_rate < math.inf:
            raise BrimfulError(f"phases.learning_rate is {self.learning_rate}: it must be above 0")
        if self.warmup is not None:
            require_warmup(self.warmup, "phases.warmup")

    def __str__(self) -> str:
        """As `parse_phase` reads it, which knows no rates."""
        numbers = (self.steps, self.max_length, self.update_size)
        return ":".join("" if number is None else str(number) for number in numbers).rstrip(":")


def parse_phase(text: str) -> PhaseConfig:
    """`STEPS:MAX_LENGTH`, `STEPS:MAX_LENGTH:UPDATE_SIZE` or `STEPS::UPDATE_SIZE`.

    Raises:
        ValueError: it is neither.
    """
    steps, length, size, *more = (*text.split(":"), "", "")[: max(3, text.count(":") + 1)]
    if more:
        raise ValueError(f"{text} has more than three numbers")
    return PhaseConfig(
        steps=int(steps),
        max_length=int(length) if length else None,
        update_size=int(size) if size else None,
    )
