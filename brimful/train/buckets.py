"""The gradients of all parameters in a few flat tensors, summed over ranks while backward goes on.

On a GPU a kernel that touches one small gradient costs as much as one that touches a million numbers. So each
parameter's `.grad` is a view of a bucket: zeroing, counting, averaging and sending are one operation for each
bucket. The views stay where they are, as CUDA graphs need.

Buckets follow the order in which backward finishes, from the last parameter to the first. In a rank's last
micro-batch of an update, a bucket is sent as soon as its last gradient is there, and the layers below are
still differentiated meanwhile (Li et al. 2020, "PyTorch Distributed", section 3.2). All ranks send the
buckets in the same order.

A parameter that no loss reaches has a gradient of zeros here, where a single CPU process leaves it None: an
optimizer with weight decay shrinks it.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from brimful.distributed import BUCKET_BYTES, World

ALIGNMENT = 64
"""Each gradient begins at a multiple of this many numbers, for kernels that read several at a time."""


class Bucket:
    """The gradients of some parameters of one dtype.

    Attributes:
        flat: their numbers, 1-D. The gradients are views of it.
        padding: how many of these numbers belong to no gradient; they are 0.
    """

    def __init__(self, parameters: Sequence[nn.Parameter]) -> None:
        self.parameters = parameters
        rooms = [-(-parameter.numel() // ALIGNMENT) * ALIGNMENT for parameter in parameters]
        first = parameters[0]
        self.flat = torch.zeros(sum(rooms), dtype=first.dtype, device=first.device)
        self.padding = self.flat.numel() - sum(parameter.numel() for parameter in parameters)
        for parameter, room in zip(parameters, self.flat.split(rooms), strict=True):
            parameter.grad = room[: parameter.numel()].view_as(parameter)


class Buckets:
    """The buckets of all parameters. Call `begin`, run a backward pass, call `end`; at last `gather`.

    Args:
        parameters: all on one device; their `.grad` is set, and must not be replaced.
        each: what happens to a bucket in each backward pass, when all of its gradients are there.
        before_sum: what happens to a bucket before it is summed over ranks.
    """

    def __init__(
        self,
        parameters: Sequence[nn.Parameter],
        world: World,
        *,
        each: Callable[[int, Bucket], None] | None = None,
        before_sum: Callable[[int, Bucket], None] | None = None,
    ) -> None:
        self.world = world
        self.each = each
        self.before_sum = before_sum
        self.buckets = [Bucket(group) for group in _groups(parameters)]
        self._waits: list[int] = []
        self._ready = 0  # buckets before this one have been given to `each`
        self._sums: list[Any] = []
        self._last = False
        self._hooks = [
            parameter.register_post_accumulate_grad_hook(self._hook(index))
            for index, bucket in enumerate(self.buckets)
            for parameter in bucket.parameters
            if world.size > 1
        ]

    def begin(self, *, last: bool) -> None:
        """A backward pass begins.

        Args:
            last: whether it is the rank's last of this update: then buckets are sent.
        """
        self._waits = [len(bucket.parameters) for bucket in self.buckets]
        self._ready = 0
        self._last = last

    def end(self) -> None:
        """The backward pass has ended; buckets with parameters that it did not reach are ready too."""
        while self._ready < len(self.buckets):
            self._next()
        self._waits = []

    def gather(self) -> None:
        """Sum the buckets over ranks. All ranks call it, also those without a micro-batch."""
        self._waits = []
        if self.world.size > 1:
            while len(self._sums) < len(self.buckets):
                self._send()
            for sending in self._sums:
                sending.wait()  # on a GPU its stream waits, not the host
        elif self.before_sum is not None:
            for index, bucket in enumerate(self.buckets):
                self.before_sum(index, bucket)
        self._sums = []

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

    def _next(self) -> None:
        """Handle the first bucket that is not ready yet."""
        if self.each is not None:
            self.each(self._ready, self.buckets[self._ready])
        self._ready += 1
        if self._last and self.world.size > 1:
            self._send()

    def _send(self) -> None:
        """Begin to sum the next bucket over ranks."""
        index = len(self._sums)
        if self.before_sum is not None:
            self.before_sum(index, self.buckets[index])
        self._sums.append(dist.all_reduce(self.buckets[index].flat, async_op=True))


def _groups(parameters: Sequence[nn.Parameter]) -> list[list[nn.Parameter]]:
    """The parameters from the last to the first, in runs of one dtype and at most BUCKET_BYTES (or one)."""
    groups: list[list[nn.Parameter]] = []
    size = 0
    for parameter in reversed(parameters):
        full = size + parameter.nbytes > BUCKET_BYTES
        if not groups or full or groups[-1][0].dtype != parameter.dtype:
            groups.append([])
            size = 0
        groups[-1].append(parameter)
        size += parameter.nbytes
    return groups
