"""The gradients of all parameters in a few flat tensors, summed over ranks while backward goes on.

On a GPU a kernel that touches one small gradient costs as much as one that touches a million numbers. So each
parameter's `.grad` is a view of a bucket: zeroing, counting, averaging and sending are one operation for each
bucket. The views stay where they are, as CUDA graphs need.

Buckets follow the order in which backward finishes, from the last parameter to the first. In a rank's last
micro-batch of an update, a bucket is sent as soon as its last gradient is there, and the layers below are
still differentiated meanwhile (Li et al. 2020, "PyTorch Distributed", section 3.2). All ranks send the
buckets in the same order. Float32 buckets may travel in 16 bits (train/compression.py).

A parameter that no loss reaches has a gradient of zeros here, and not None: an optimizer with weight decay
shrinks it.
"""

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from brimful.distributed import World
from brimful.train.compression import CompressedSum
from brimful.train.config import BUCKET_MB
from brimful.types import Compression

ALIGNMENT = 64
"""Each gradient begins at a multiple of this many numbers, for kernels that read several at a time."""


class Bucket:
    """The gradients of some parameters of one dtype.

    Args:
        parts: the number of equal parts into which `flat` divides.

    Attributes:
        flat: their numbers, 1-D. The gradients are views of it.
        padding: how many of these numbers belong to no gradient; they are 0.
    """

    def __init__(self, parameters: Sequence[nn.Parameter], parts: int) -> None:
        self.parameters = parameters
        rooms = [round_up(parameter.numel(), ALIGNMENT) for parameter in parameters]
        rooms.append(round_up(sum(rooms), parts * ALIGNMENT) - sum(rooms))
        first = parameters[0]
        self.flat = torch.zeros(sum(rooms), dtype=first.dtype, device=first.device)
        self.padding = self.flat.numel() - sum(parameter.numel() for parameter in parameters)
        for parameter, room in zip(parameters, self.flat.split(rooms), strict=False):
            parameter.grad = room[: parameter.numel()].view_as(parameter)

    @cached_property
    def _mean(self) -> Tensor:
        """Of the micro-batches before the present one; an update of one needs no memory for it."""
        return torch.empty_like(self.flat)

    def fold(self, number: int, *, last: bool) -> None:
        """Fold an update's micro-batch, counted from 1, into the mean, which `flat` holds after the last."""
        if number > 1:
            torch.lerp(self._mean, self.flat, 1 / number, out=self.flat if last else self._mean)
        elif not last:
            self._mean.copy_(self.flat)
        if not last:
            self.flat.zero_()


class Buckets:
    """The buckets of all parameters. Call `begin`, `backward` for each micro-batch, `gather`; at last `zero`.

    Args:
        parameters: all on one device; their `.grad` is set, and must not be replaced.
        mean: take each micro-batch's part of the loss times the number of all, and keep the running mean.
        scaled: count and saturate gradients for a loss scaler, in each backward pass and after the sum.
        megabytes: the most MiB of a bucket, unless a single parameter is larger.
        compression: the format in which gradients are sent; they must be float32 if it is not "none".
    """

    def __init__(
        self,
        parameters: Sequence[nn.Parameter],
        world: World,
        *,
        mean: bool = False,
        scaled: bool = False,
        megabytes: float = BUCKET_MB,
        compression: Compression = "none",
    ) -> None:
        self.world = world
        self.mean = mean
        self.scaled = scaled
        self.compression = compression
        self.buckets = [Bucket(group, world.size) for group in _groups(parameters, int(megabytes * 2**20))]
        self._own = self._total = self._number = 0
        self._waits: list[int] = []
        self._ready = 0  # buckets before this one have the gradients of this micro-batch
        self._sums: list[Any] = []
        self._hooks = [
            parameter.register_post_accumulate_grad_hook(self._hook(index))
            for index, bucket in enumerate(self.buckets)
            for parameter in bucket.parameters
            if world.size > 1
        ]

    def begin(self, batches: Sequence[object], total: int) -> None:
        """An update begins: this rank has these micro-batches, all ranks together `total`."""
        self._own, self._total, self._number = len(batches), total, 0

    def backward(self, loss: Tensor) -> None:
        """Differentiate one micro-batch's part of the update's loss. In the rank's last, buckets are sent."""
        self._number += 1
        self._waits = [len(bucket.parameters) for bucket in self.buckets]
        self._ready = 0
        (loss * self._total if self.mean else loss).backward()
        while self._ready < len(self.buckets):  # with parameters that the pass did not reach
            self._next()
        self._waits = []

    @torch.no_grad()
    def gather(self) -> None:
        """Sum the buckets over ranks. All ranks call it, also those without a micro-batch."""
        self._waits = []
        if self.world.size > 1:
            while len(self._sums) < len(self.buckets):
                self._send()
            self._advance()
            for sending in self._sums:
                sending.wait()  # on a GPU its stream waits, not the host
            self._sums = []
        for bucket in self.buckets if self.scaled else []:
            if self.world.size > 1 or bucket.flat.dtype == torch.float16:  # the sum may have overflowed
                from brimful.precision.watching import mend

                mend(bucket.flat)

    def zero(self) -> None:
        """Zero all gradients."""
        torch._foreach_zero_([bucket.flat for bucket in self.buckets])

    def close(self) -> None:
        """Drop the buckets; backward passes do not know them any more."""
        for hook in self._hooks:
            hook.remove()
        self.buckets = []

    def _hook(self, index: int) -> Callable[[Tensor], None]:
        def arrived(_: Tensor) -> None:
            if self._waits:
                self._waits[index] -= 1
                while self._ready < len(self.buckets) and self._waits[self._ready] <= 0:
                    self._next()

        return arrived

    @torch.no_grad()
    def _next(self) -> None:
        """Handle the first bucket that is not ready yet: now it is."""
        bucket, last = self.buckets[self._ready], self._number == self._own
        self._ready += 1
        if self.scaled:
            from brimful.precision.watching import saturate_and_count

            bucket.flat.copy_(saturate_and_count(bucket.flat, bucket.padding))
        if self.mean:
            bucket.fold(self._number, last=last)
        if last and self.world.size > 1:
            self._send()

    def _send(self) -> None:
        """Begin to sum the next bucket over ranks."""
        flat = self.buckets[len(self._sums)].flat
        if self.mean and self._own != self._total:
            flat.mul_(self._own / self._total)
        if self.compression == "none":
            self._sums.append(dist.all_reduce(flat, async_op=True))
        else:
            self._advance()  # at the same place between two sends on every rank
            self._sums.append(CompressedSum(flat, self.world, self.compression))

    def _advance(self) -> None:
        """Let the last bucket that was sent begin the second half of its way, if it has one."""
        if self._sums and isinstance(self._sums[-1], CompressedSum):
            self._sums[-1].advance()


def round_up(number: int, multiple: int) -> int:
    """The least multiple that is not below a number."""
    return -(-number // multiple) * multiple


def _groups(parameters: Sequence[nn.Parameter], most: int) -> list[list[nn.Parameter]]:
    """The parameters from the last to the first, in runs of one dtype and at most `most` bytes (or one)."""
    groups: list[list[nn.Parameter]] = []
    size = 0
    for parameter in reversed(parameters):
        full = size + parameter.nbytes > most
        if not groups or full or groups[-1][0].dtype != parameter.dtype:
            groups.append([])
            size = 0
        groups[-1].append(parameter)
        size += parameter.nbytes
    return groups
