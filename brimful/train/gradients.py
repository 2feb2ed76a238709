"""The gradient of one update: summed over micro-batches and ranks, clipped, and given to the optimizers.

There are three ways to accumulate:

    float32 parameters              autograd adds up the micro-batches in `.grad`
    16-bit parameters               a running mean over micro-batches and ranks, so that small parts are not
                                    rounded away in a large sum
    fp16 activations                the same mean, of the gradients of a scaled loss

For the mean, each micro-batch's part of the loss is multiplied by their number, so it equals the sum of
the parts, and neither the loss scale nor the size of the numbers depends on how many micro-batches there are.

Means are kept in a few flat tensors; each parameter's `.grad` is a view of one. So are all gradients on a GPU
or of several ranks (the buckets of DDP, train/data_parallel.py). A GPU touches a million numbers as fast as
one small gradient, so counting gradients for a loss scale, averaging and zeroing are one operation for each
flat tensor. The views exist from the start and stay where they are, as CUDA graphs need. A parameter that no
loss reaches has a gradient of zeros in them, and not None: an optimizer with weight decay shrinks it. For a
sum, a single CPU process keeps one tensor for each gradient, which uses caches better.
"""

import math
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TypeVar

import torch
from torch import Tensor, nn

from brimful.base.distributed import World
from brimful.base.types import Numbers
from brimful.data.batch import PackedBatch
from brimful.precision.gradients import gradient_norm
from brimful.precision.scaler import AutomaticLossScaler
from brimful.precision.watching import count_elsewhere, mend, saturate_and_count
from brimful.train.data_parallel import DataParallel

R = TypeVar("R")

FLAT_BYTES = 32 << 20
"""Bytes of a flat tensor, unless a single parameter is larger."""
ALIGNMENT = 64
"""Each gradient begins at a multiple of this many numbers, for kernels that read several at a time."""


class Flat:
    """Some gradients of one dtype.

    Attributes:
        numbers: the gradients one after the other, with padding, 1-D.
        padding: the count of these numbers that belong to no gradient; they are 0.
    """

    def __init__(self, numbers: Tensor, padding: int = 0) -> None:
        self.numbers = numbers
        self.padding = padding

    @cached_property
    def _mean(self) -> Tensor:
        """The mean of the earlier micro-batches; with one micro-batch per update, it takes no memory."""
        return torch.empty_like(self.numbers)

    def fold(self, number: int, *, last: bool) -> None:
        """Fold micro-batch `number` (from 1) into the mean. After the last one, `numbers` is the mean."""
        if number > 1:
            # mean + (new - mean) / number: no sum grows, so nothing overflows or is rounded away in 16 bits.
            torch.lerp(self._mean, self.numbers, 1 / number, out=self.numbers if last else self._mean)
        elif not last:
            self._mean.copy_(self.numbers)
        if not last:
            self.numbers.zero_()  # autograd adds the next micro-batch to it


def flatten(parameters: Sequence[nn.Parameter]) -> list[Flat]:
    """Give each parameter a gradient of zeros in a flat tensor. All must be on one device."""
    groups: list[list[nn.Parameter]] = []
    for parameter in reversed(parameters):
        last = groups[-1] if groups else []
        is_full = sum(each.nbytes for each in last) + parameter.nbytes > FLAT_BYTES
        if not last or is_full or last[0].dtype != parameter.dtype:
            last = []
            groups.append(last)
        last.append(parameter)
    return [_make_flat(group) for group in groups]


def _make_flat(parameters: Sequence[nn.Parameter]) -> Flat:
    sizes = [-(-parameter.numel() // ALIGNMENT) * ALIGNMENT for parameter in parameters]  # rounded up
    numbers = torch.zeros(sum(sizes), dtype=parameters[0].dtype, device=parameters[0].device)
    padding = numbers.numel()
    for parameter, part in zip(parameters, numbers.split(sizes), strict=True):
        parameter.grad = part[: parameter.numel()].view_as(parameter)
        padding -= parameter.numel()
    return Flat(numbers, padding)


class Gradients:
    """Call in this order: `begin`, `forward` and `backward` for each micro-batch, `gather`, `clip`, `step`,
    `clear`.

    Args:
        modules: the trained modules.
        mean: accumulate as a running mean.
        scaler: scales the loss. It implies `mean`. The parameters are watched here, not by `watch_modules`.
    """

    def __init__(
        self,
        modules: nn.Module,
        world: World,
        *,
        mean: bool = False,
        scaler: AutomaticLossScaler | None = None,
    ) -> None:
        self.parameters = [p for p in modules.parameters() if p.requires_grad]
        self.world = world
        self.scaler = scaler
        self.mean = mean or scaler is not None
        self.flats: list[Flat] = []
        self._own = self._total = self._number = 0
        self._ranks: DataParallel | None = None
        if world.size > 1:
            self._ranks = DataParallel(modules, self._accumulate)
            self.flats = [Flat(bucket) for bucket in self._ranks.buckets]
        elif self.mean or world.device.type == "cuda":
            self.flats = flatten(self.parameters)

    def begin(self, batches: Sequence[object], total: int) -> None:
        """Begin an update: this rank has `batches`, all ranks together have `total` micro-batches."""
        self._own, self._total, self._number = len(batches), total, 0

    def forward(self, loss: Callable[[PackedBatch], R], batch: PackedBatch) -> R:
        """Compute `loss(batch)`, a forward pass of the modules. Outside of an update, its gradients are not
        sent to other ranks."""
        if self._ranks is None:
            return loss(batch)
        return self._ranks.forward(loss, batch, last=self._number + 1 == self._own)

    def backward(self, loss: Tensor) -> None:
        """Differentiate one micro-batch's part of the update's loss: a scalar, float32 or wider."""
        self._number += 1
        if self.scaler:
            loss = self.scaler.scale(loss)
        if self.mean:
            loss = loss * self._total  # a mean over the micro-batches is then the sum of their parts
        if self._ranks and self._number == self._own:
            self._ranks.reach_all(loss).backward()  # each bucket is accumulated before it is sent
            return
        loss.backward()
        for index in range(len(self.flats)):
            self._accumulate(index)

    @torch.no_grad()
    def _accumulate(self, index: int) -> None:
        """Count the gradients of a backward pass, and fold them into the mean."""
        flat, last = self.flats[index], self._number == self._own
        if self.scaler:
            flat.numbers.copy_(saturate_and_count(flat.numbers, flat.padding))
        if self.mean:
            flat.fold(self._number, last=last)
            if last and self._own != self._total:  # ranks may have different numbers of micro-batches
                flat.numbers.mul_(self._own / self._total)

    @torch.no_grad()
    def gather(self) -> None:
        """Put the gradient of all micro-batches of all ranks into `.grad`. All ranks call it."""
        if self._ranks:
            self._ranks.gather()
        if self.scaler:
            for flat in self.flats:
                if self._ranks or flat.numbers.dtype == torch.float16:  # the sum may have overflowed
                    mend(flat.numbers)

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
        """Drop the gradients and their memory."""
        for parameter in self.parameters:
            parameter.grad = None
        self._ranks, self.flats = None, []
        if self.scaler:
            count_elsewhere(self.parameters, False)

    def collect_metrics(self) -> Numbers:
        """Collect the metrics of loss scaling since the last call. All ranks call it."""
        if not self.scaler:
            return {}
        metrics = self.scaler.metrics()
        clipped, nan = self.world.sum([metrics.pop("clipped"), metrics.pop("nan")])
        return metrics | {"clipped_gradients": clipped, "nan_gradients": nan}

    def state_dict(self) -> Numbers:
        """The state of loss scaling for a checkpoint: JSON values."""
        return self.scaler.state_dict() if self.scaler else {}

    def load_state_dict(self, state: Numbers) -> None:
        """Restore a `state_dict`."""
        if self.scaler:
            self.scaler.load_state_dict(dict(state))
