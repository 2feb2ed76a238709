"""Finds loss spikes: losses that are NaN or infinite, or far above the losses of recent updates.

Losses stay on the device until they are judged. With the policy `stop` this happens at a line of metrics or a
checkpoint, for many updates at once. Only `skip` reads each update's loss, since it must know before the
optimizer's step.
"""

import math
from dataclasses import dataclass

from torch import Tensor

from brimful.base.distributed import World
from brimful.base.types import Cursor, SpikePolicy, Values
from brimful.train.metrics import Window, read_scalars

MEMORY_UPDATES = 64
"""The number of updates that the running mean and deviation of the loss cover, about."""
UNJUDGED_UPDATES = 16
"""The number of first updates whose finite losses are not compared with earlier ones."""
PATIENCE = 8
"""The number of updates left out, among the 16 before a spike, from which on the spike stops the run."""


@dataclass(frozen=True)
class Spike:
    """An update with a loss spike.

    Attributes:
        update: the number of the update, from 0.
        cursor: the place in the data where the update's batch begins.
        loss, norm: the loss of the whole update and the norm of its gradient.
        mean, deviation: the mean and standard deviation of the losses before it.
    """

    update: int
    cursor: Cursor
    loss: float
    norm: float
    mean: float
    deviation: float

    @property
    def description(self) -> str:
        """The spike in words, for messages."""
        step = self.update + 1
        if not math.isfinite(self.loss):
            return f"the loss is not a finite number at step {step}"
        if not math.isfinite(self.norm):
            return f"the gradient norm is not a finite number at step {step}"
        usual = f"a mean of {self.mean:.4g} and a standard deviation of {self.deviation:.2g}"
        return f"the loss at step {step} is {self.loss:.4g}; the losses before it have {usual}"


class Guard:
    """Judges the losses of updates in their order, and knows which updates are left out.

    Args:
        threshold: the number of standard deviations above the mean from which on a loss is a spike; 0: only
            NaN and infinite losses are spikes.
        policy: the action at a spike.

    Attributes:
        left_out: the numbers of updates that were left out.
    """

    def __init__(self, threshold: float, policy: SpikePolicy, world: World) -> None:
        self.threshold = threshold
        self.policy = policy
        self.world = world
        self.left_out: list[int] = []
        self._mean = self._variance = 0.0  # exponentially decayed
        self._judged = 0

    def judge_before_step(self, step: int, cursor: Cursor, loss: Tensor, norm: Tensor) -> Spike | None:
        """Return the spike of an update, if any, before the optimizer's step; only with the policy `skip`.

        Args:
            loss: this rank's part of the update's loss.
        """
        if self.policy != "skip":
            return None
        (whole,) = self.world.sum([float(loss)])
        return self._judge(step, cursor, whole, float(norm))

    def judge(self, window: Window) -> Spike | None:
        """Find the first spike among the window's updates that have not been judged yet."""
        if self.policy == "skip" or window.judged == window.updates:
            return None
        new = slice(window.judged, None)
        window.judged = window.updates
        losses = self.world.sum(read_scalars(window.losses[new]))  # each rank has its part
        norms = read_scalars(window.norms[new])
        for (step, cursor), loss, norm in zip(window.places[new], losses, norms, strict=True):
            spike = self._judge(step, cursor, loss, norm)
            if spike is not None:
                return spike
        return None

    def count_left_out(self, spike: Spike) -> int:
        """Count the updates left out among the 16 before a spike."""
        return sum(step >= spike.update - 2 * PATIENCE for step in self.left_out)

    def _judge(self, step: int, cursor: Cursor, loss: float, norm: float) -> Spike | None:
        """Return the spike if this is one; otherwise add the loss to the running mean and variance."""
        deviation = math.sqrt(self._variance)
        is_far = loss > self._mean + self.threshold * deviation
        is_judged = self.threshold > 0 and self._judged >= UNJUDGED_UPDATES
        if (is_judged and is_far) or not (math.isfinite(loss) and math.isfinite(norm)):
            return Spike(step, cursor, loss, norm, self._mean, deviation)
        # Welford's update of mean and variance; from the 64th loss on, older ones decay exponentially.
        self._judged += 1
        share = max(1 / self._judged, 1 / MEMORY_UPDATES)
        before = self._mean
        self._mean += share * (loss - before)
        self._variance += share * ((loss - before) * (loss - self._mean) - self._variance)
        return None

    def state_dict(self) -> Values:
        """The state for a checkpoint: JSON values."""
        return {
            "mean": self._mean,
            "variance": self._variance,
            "usual": self._judged,
            "left_out": self.left_out,
        }

    def load_state_dict(self, state: Values) -> None:
        """Restore a `state_dict`."""
        self._mean, self._variance, self._judged = state["mean"], state["variance"], state["usual"]
        self.left_out = [int(step) for step in state["left_out"]]
