"""The gradient of one update: summed over micro-batches and ranks, clipped, and given to the optimizers.

There are three ways to accumulate:

    float32 parameters              autograd adds up the micro-batches in `.grad`
    16-bit parameters               a running mean of micro-batches and ranks, so that no small part is lost
                                    beside a sum that has grown
    fp16 activations                the same mean, of the gradients of a scaled loss

The mean takes each micro-batch's part of the loss times the number of micro-batches, so it equals the sum of
the parts, and neither the loss scale nor the size of the numbers depends on how many micro-batches there are.

Means lie in flat tensors (train/flat.py), and so do all gradients on a GPU or of several ranks. For a sum, a
single CPU process keeps one tensor for each gradient, which its caches prefer.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

import torch
from torch import Tensor, nn

from brimful.base.distributed import World
from brimful.data.batch import PackedBatch
from brimful.precision.norm import gradient_norm
from brimful.train.data_parallel import DataParallel
from brimful.train.flat import Flat, flatten

if TYPE_CHECKING:
    from brimful.precision.scaler import AutomaticLossScaler


R = TypeVar("R")


class Gradients:
    """Call in this order: `begin`, `forward` and `backward` for each micro-batch, `gather`, `clip`, `step`,
    `clear`.

    Args:
        modules: those that are trained.
        mean: accumulate as a running mean.
        scaler: scales the loss. It implies `mean`. The parameters are watched here, not by `watch_modules`.
    """

    def __init__(
        self,
        modules: nn.Module,
        world: World,
        *,
        mean: bool = False,
        scaler: "AutomaticLossScaler | None" = None,
    ) -> None:
        self.parameters = [p for p in modules.parameters() if p.requires_grad]
        self.world = world
        self.scaler = scaler
        self.mean = mean or scaler is not None
        self.flats: list[Flat] = []
        self._own = self._total = self._number = 0
        self._ranks: DataParallel | None = None
        self._parallel = lambda: DataParallel(modules, self._accumulate)
        if world.size > 1:
            self._connect()
        elif self.mean or world.device.type == "cuda":
            self.flats = flatten(self.parameters)

    def _connect(self) -> None:
        """Let DDP have the gradients. All ranks call it."""
        self._ranks, self.flats = None, []
        for parameter in self.parameters:
            parameter.grad = None  # with the memory of the buckets before
        self._ranks = self._parallel()
        self.flats = [Flat(bucket) for bucket in self._ranks.buckets]

    def begin(self, batches: Sequence[object], total: int) -> None:
        """An update begins: this rank has these micro-batches, all ranks together `total`."""
        self._own, self._total, self._number = len(batches), total, 0

    def forward(self, loss: Callable[[PackedBatch], R], batch: PackedBatch) -> R:
        """`loss(batch)`, a forward pass of the modules. Outside of an update its gradients are not sent."""
        if self._ranks is None:
            return loss(batch)
        return self._ranks.forward(loss, batch, last=self._number + 1 == self._own)

    def backward(self, loss: Tensor) -> None:
        """Differentiate one micro-batch's part of the update's loss: a scalar, float32 or wider."""
        self._number += 1
        if self.scaler:
            loss = self.scaler.scale(loss)
        if self.mean:
            loss = loss * self._total
        if self._ranks and self._number == self._own:
            self._ranks.reaching_all(loss).backward()  # it accumulates each bucket before it sends it
            return
        loss.backward()
        for index in range(len(self.flats)):
            self._accumulate(index)

    @torch.no_grad()
    def _accumulate(self, index: int) -> None:
        """Count the gradients of a backward pass, and fold them into the mean."""
        flat, last = self.flats[index], self._number == self._own
        if self.scaler:
            from brimful.precision.watching import saturate_and_count

            flat.numbers.copy_(saturate_and_count(flat.numbers, flat.padding))
        if self.mean:
            flat.fold(self._number, last=last)
            if last and self._own != self._total:
                flat.numbers.mul_(self._own / self._total)

    @torch.no_grad()
    def gather(self) -> None:
        """Put the gradient of all micro-batches of all ranks into `.grad`. All ranks call it."""
        if self._ranks:
            self._ranks.gather()
        for flat in self.flats if self.scaler else []:
            if self._ranks or flat.numbers.dtype == torch.float16:  # the sum may have overflowed
                from brimful.precision.watching import mend

                mend(flat.numbers)

    def start_over(self) -> None:
        """Drop the gradient of an update that failed on some rank. All ranks call it."""
        self.clear()
        if self._ranks:
            self._connect()  # DDP still waits for gradients that did not come

    def clip(self, max_norm: float) -> Tensor:
        """Limit the norm of the whole gradient; 0 = no limit.

        Returns:
            the norm before clipping, without the loss scale: a scalar on the device.
        """
        if self.scaler:
            return self.scaler.clip_grad_norm_(self.parameters, max_norm or math.inf)
        norm = gradient_norm([parameter.grad for parameter in self.parameters if parameter.grad is not None])
        if max_norm:
            torch.nn.utils.clip_grads_with_norm_(self.parameters, max_norm, norm)
        return norm

    def step(self, optimizers: Sequence[torch.optim.Optimizer]) -> None:
        """Let the optimizers change the parameters. All ranks call it."""
        for optimizer in optimizers:
            if self.scaler:
                self.scaler.step(optimizer)
            else:
                optimizer.step()
        if self.scaler:
            self.scaler.update()

    def clear(self) -> None:
        """Drop the gradient, whether or not an optimizer has used it."""
        if self.flats:
            torch._foreach_zero_([flat.numbers for flat in self.flats])
        else:
            for parameter in self.parameters:
                parameter.grad = None
        if self.scaler:
            self.scaler.forget()

    def close(self) -> None:
        """Drop the gradients and their memory. The parameters are as before this object was made."""
        for parameter in self.parameters:
            parameter.grad = None
        self._ranks, self.flats = None, []
        if self.scaler:
            from brimful.precision.watching import count_elsewhere

            count_elsewhere(self.parameters, False)

    def metrics(self) -> dict[str, float]:
        """The metrics of loss scaling since the last call. All ranks call it."""
        if not self.scaler:
            return {}
        found = self.scaler.metrics()
        clipped, nan = self.world.sum([found["clipped"], found["nan"]])
        own = {name: found[name] for name in ("loss_scale", "upper_share")}
        return own | {"clipped_gradients": clipped, "nan_gradients": nan}

    def state_dict(self) -> dict[str, float]:
        """The state of loss scaling for a checkpoint: JSON values."""
        return self.scaler.state_dict() if self.scaler else {}

    def load_state_dict(self, state: Mapping[str, float]) -> None:
        """Restore a `state_dict`."""
        if self.scaler:
            self.scaler.load_state_dict(dict(state))
