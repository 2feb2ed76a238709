"""Gradients that 16 bits can hold: a mean over micro-batches and ranks, and of a scaled loss for float16.

Each micro-batch's share of the loss is multiplied by the number of micro-batches and the mean is taken, which
is the sum of the shares. So neither the scale nor what 16 bits must hold depends on how many there are, and
no share is lost beside a sum that has grown.
"""

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from brimful.distributed import World
from brimful.precision.running_mean import RunningMean
from brimful.precision.scaler import AutomaticLossScaler
from brimful.precision.watching import watch_modules
from brimful.train.gradients import Gradients


class Averaged(Gradients):
    """A running mean over micro-batches, then over ranks, in the dtype of the weights."""

    def __init__(self, parameters: Sequence[nn.Parameter], world: World) -> None:
        super().__init__(parameters, world, keep=False)
        self._mean = RunningMean(parameters)
        self._micro_batches = 1

    def begin(self, micro_batches: int) -> None:
        self._micro_batches = micro_batches

    def add(self, loss: Tensor) -> None:
        super().add(loss * self._micro_batches)
        self._mean.add(1.0)

    def gather(self) -> None:
        if self.world.size == 1:
            self._mean.finish()
        else:
            self._mean.finish_over_ranks(total=self._micro_batches)

    def forget(self) -> None:
        self._mean.finish()
        super().forget()


class Scaled(Averaged):
    """That mean of the gradients of a scaled loss.

    Args:
        trained: the modules whose parameters are trained; their gradients are watched from now on.
        parameters: that are trained.
    """

    def __init__(
        self,
        trained: nn.Module,
        parameters: Sequence[nn.Parameter],
        world: World,
        scaler: AutomaticLossScaler,
    ) -> None:
        super().__init__(parameters, world)
        self.scaler = scaler
        watch_modules(trained)

    def add(self, loss: Tensor) -> None:
        super().add(self.scaler.scale(loss))

    def clip(self, most: float) -> Tensor:
        return self.scaler.clip_grad_norm_(self.parameters, most or math.inf)

    def step(self, optimizers: Sequence[torch.optim.Optimizer]) -> None:
        for optimizer in optimizers:
            self.scaler.step(optimizer)
        self.scaler.update()

    def forget(self) -> None:
        super().forget()
        self.scaler.forget()

    def metrics(self) -> dict[str, float]:
        found = self.scaler.metrics()
        clipped, nan = self.world.sum([found["clipped"], found["nan"]])
        own = {name: found[name] for name in ("loss_scale", "upper_share")}
        return own | {"clipped_gradients": clipped, "nan_gradients": nan}

    def state_dict(self) -> dict[str, float]:
        return self.scaler.state_dict()

    def load_state_dict(self, state: Mapping[str, float]) -> None:
        self.scaler.load_state_dict(dict(state))
