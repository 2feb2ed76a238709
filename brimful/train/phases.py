"""Phases of a pretraining run: how sequence lengths, update sizes and learning rates change in it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, Self

from brimful.base.config import Argument, require_positive
from brimful.base.errors import BrimfulError, require_range
from brimful.data.config import PackingConfig, Phase
from brimful.optim.schedule import Cycle, require_warmup

PHASES = Argument(form="STEPS:MAX_LENGTH[:SIZE] ...")
"""The form of phases on a command line."""


@dataclass(frozen=True, kw_only=True)
class PhaseConfig:
    """A phase of a run. A setting that it leaves out has the value of the run.

    One schedule of the learning rate spans all phases, until a phase names a rate or a warm-up of its own:
    there the schedule starts anew.
    """

    steps: int
    """Updates of this phase."""
    max_length: int | None = None
    """The most tokens in a sequence, in the blocks that begin in this phase."""
    update_size: int | None = None
    """Rows in an update; with sequences_per_update, sequences in an update."""
    learning_rate: float | None = None
    """Peak rate from here on, in place of optimizer.learning_rate. Muon's rate changes in proportion."""
    warmup: float | None = None
    """Warm-up to that rate: a number of updates, or a fraction of the updates that share the rate."""

    def __post_init__(self) -> None:
        require_positive(self, "steps", "update_size", group="phases.")
        require_range(self, "above 0 and below infinity", "learning_rate", group="phases.")
        if self.warmup is not None:
            require_warmup(self.warmup, "phases.warmup")

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Parse `STEPS:MAX_LENGTH`, `STEPS:MAX_LENGTH:UPDATE_SIZE` or `STEPS::UPDATE_SIZE`.

        Raises:
            ValueError: the text has another form.
        """
        texts = text.split(":")
        if len(texts) > 3:
            raise ValueError(f"{text} has more than three numbers")
        steps, length, size = (*texts, "", "")[:3]
        return cls(
            steps=int(steps),
            max_length=int(length) if length else None,
            update_size=int(size) if size else None,
        )

    def __str__(self) -> str:
        """The text that `from_text` reads, which has no rates."""
        return f"{self.steps}:{self.max_length or ''}:{self.update_size or ''}".rstrip(":")


def make_phases(
    phases: Sequence[PhaseConfig], packing: PackingConfig, size: int, unit: Literal["rows", "sequences"]
) -> list[Phase]:
    """Make the phases that the stream of updates needs; `size` is the size of the run's updates."""
    made = []
    for phase in phases:
        max_length = packing.max_length if phase.max_length is None else phase.max_length
        own_packing = replace(packing, max_length=max_length)
        made.append(Phase(phase.steps, own_packing, phase.update_size or size, unit))
    return made


def make_cycles(phases: Sequence[PhaseConfig], learning_rate: float) -> list[Cycle]:
    """Make the cycles that the schedule needs: a new one begins where a phase starts the schedule anew.

    Args:
        learning_rate: the run's learning rate; the cycles' rates are fractions of it.

    Raises:
        BrimfulError: a phase has a rate of its own, and the run's rate is 0.
    """
    cycles: list[Cycle] = []
    for phase in phases:
        if cycles and phase.learning_rate is None and phase.warmup is None:
            cycles[-1] = replace(cycles[-1], steps=cycles[-1].steps + phase.steps)
            continue
        peak = 1.0
        if phase.learning_rate is not None:
            if not learning_rate:
                raise BrimfulError(
                    "optimizer.learning_rate is 0, but a phase has a learning rate: set"
                    " optimizer.learning_rate to the highest rate of the phases"
                )
            peak = phase.learning_rate / learning_rate
        cycles.append(Cycle(phase.steps, peak, phase.warmup))
    return cycles
