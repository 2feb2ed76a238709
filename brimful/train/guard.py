"""What is wrong with an update: a loss that is no number, or one far above those before it.

Losses stay on the device until they are judged. With `stop` and `roll-back` that is at a line of metrics or a
checkpoint, many updates at once; only `skip`, which must know before it steps, reads each update's loss.
"""

import math
from typing import Any, Literal

from torch import Tensor

from brimful.data.rows import Cursor
from brimful.distributed import World
from brimful.errors import BrimfulError
from brimful.train.journal import Journal, Spike
from brimful.train.metrics import Window

MEMORY = 64
"""Over about how many updates the mean and the deviation of the loss reach back."""
FIRST_JUDGED = 16
"""Updates whose losses must be known before one can be far from them."""
PATIENCE = 8
"""So many of 16 updates may be left out; with one more the run stops all the same."""

Policy = Literal["stop", "skip", "roll-back"]


class Guard:
    """Judges the losses of updates in their order, and knows which updates are to be left out.

    Args:
        threshold: so many standard deviations above the mean are a spike; 0 = only what is no number.
        policy: what is done about one.
        journal: where it is told.

    Attributes:
        left_out: numbers of the updates that were not made, or will not be.
    """

    def __init__(self, threshold: float, policy: Policy, world: World, journal: Journal) -> None:
        self.threshold = threshold
        self.policy = policy
        self.world = world
        self.journal = journal
        self.left_out: list[int] = []
        self._mean = self._variance = 0.0  # of the losses, decayed exponentially
        self._usual = 0  # losses in them

    def allows(self, step: int, cursor: Cursor, loss: Tensor, norm: Tensor) -> bool:
        """Whether an update may be made; only the policy `skip` ever says no.

        Args:
            loss: this rank's share of it.

        Raises:
            BrimfulError: too many of the last updates were left out.
        """
        if self.policy != "skip":
            return True
        (whole,) = self.world.sum([float(loss)])
        spike = self._judge(step, cursor, whole, float(norm))
        if spike:
            self.leave_out(spike)
        return spike is None

    def judge(self, window: Window) -> Spike | None:
        """The first spike among the window's updates that were not judged yet."""
        if self.policy == "skip":
            return None
        new = slice(window.judged, None)
        window.judged = window.updates
        losses = self.world.sum([float(loss) for loss in window.losses[new]])
        for place, loss, norm in zip(window.places[new], losses, window.norms[new], strict=True):
            if spike := self._judge(*place, loss, float(norm)):
                return spike
        return None

    def made(self, step: int) -> int:
        """How many of the updates before number `step` were made."""
        return step - sum(left_out < step for left_out in self.left_out)

    def leave_out(self, spike: Spike) -> None:
        """Leave out an update from now on.

        Raises:
            BrimfulError: the policy is to stop, or too many of the last updates were left out.
        """
        near = [step for step in self.left_out if step >= spike.update - 2 * PATIENCE]
        stops = self.policy == "stop" or len(near) >= PATIENCE
        self.journal.spike(spike, "stop" if stops else self.policy)
        if stops:
            often = f", and {len(near)} of the updates before it were left out" if near else ""
            raise BrimfulError(
                f"{spike.what}{often}; lower optimizer.learning_rate, or use fp32 if this is not"
                f" ({self.journal.batch_of(spike)})"
            )
        self.left_out.append(spike.update)

    def _judge(self, step: int, cursor: Cursor, loss: float, norm: float) -> Spike | None:
        """What is wrong with an update, if anything; else it becomes a part of what is usual."""
        deviation = math.sqrt(self._variance)
        highest = self._mean + self.threshold * deviation
        far = self.threshold and self._usual >= FIRST_JUDGED and loss > highest
        if far or not (math.isfinite(loss) and math.isfinite(norm)):
            return Spike(step, cursor, loss, norm, self._mean, deviation)
        self._usual += 1
        share = max(1 / self._usual, 1 / MEMORY)
        before = self._mean
        self._mean += share * (loss - before)
        self._variance += share * ((loss - before) * (loss - self._mean) - self._variance)
        return None

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint keeps: JSON values."""
        usual = {"mean": self._mean, "variance": self._variance, "usual": self._usual}
        return usual | {"left_out": self.left_out}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a `state_dict`; what is to be left out since then still is."""
        self._mean, self._variance, self._usual = state["mean"], state["variance"], state["usual"]
        self.left_out = sorted({*self.left_out, *state["left_out"]})
