"""The settings of a training, and its progress."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field

from brimful.base.types import Cursor, Values
from brimful.optim.config import OptimizerConfig
from brimful.optim.schedule import Cycle, Schedule, ScheduleConfig
from brimful.train.config import TrainerConfig
from brimful.train.metrics import Totals


@dataclass(frozen=True, kw_only=True)
class Training:
    """The settings of a training. The modules, the loss and the data are the other arguments of a `Trainer`.

    Attributes:
        config: the loop's settings.
        seed: decides dropout. The data has its own randomness.
        cycles: the parts of the run, each with a schedule of its own; by default one part.
        identity: a hash of all settings and data that decide the run's bits. A checkpoint with another
            identity is refused.
        about: the configuration, in JSON values, which checkpoints hold.
        shows: a command that shows the batch of an update; the update's number follows it.
    """

    config: TrainerConfig
    optimizer: OptimizerConfig
    schedule: ScheduleConfig
    seed: int
    cycles: Sequence[Cycle] = ()
    identity: str = ""
    about: Values = field(default_factory=dict)
    shows: str = ""

    def make_schedule(self) -> Schedule:
        """Make the schedule of the learning rate over all cycles."""
        return Schedule(self.schedule, self.cycles or [Cycle(self.config.steps)], self.config.hours)


@dataclass
class Progress:
    """The place that a training has reached; a checkpoint holds it.

    Attributes:
        cursor: the place in the data where the next update begins.
        step: the number of updates that were made or left out.
        totals: the counts of these updates, over all ranks.
        best: the step and the primary metric of the best evaluation; None before the first evaluation.
    """

    cursor: Cursor
    step: int = 0
    totals: Totals = field(default_factory=Totals)
    best: tuple[int, float] | None = None

    def state_dict(self) -> Values:
        """The state for a checkpoint, in JSON values; the step is in the checkpoint's name."""
        return {"cursor": self.cursor, "totals": asdict(self.totals), "best": self.best}

    def load_state_dict(self, step: int, state: Values) -> None:
        """Restore a `state_dict`.

        Raises:
            TypeError, ValueError: it was not written by this training.
        """
        if state["cursor"].keys() != self.cursor.keys():
            raise ValueError("the cursor belongs to another stream")
        self.step, self.cursor, self.totals = step, state["cursor"], Totals(**state["totals"])
        self.best = tuple(state["best"]) if state["best"] else None  # JSON has no tuples
