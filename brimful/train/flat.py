"""Gradients in a few flat tensors, of which each parameter's `.grad` is a view.

On a GPU a kernel that touches one small gradient costs as much as one that touches a million numbers. So
counting gradients for a loss scale, averaging and zeroing are one operation for each flat tensor. The views
exist from the start and stay where they are, as CUDA graphs need. With several ranks the flat tensors are
the buckets of DDP (train/data_parallel.py).

A parameter that no loss reaches has a gradient of zeros here, and not None: an optimizer with weight decay
shrinks it.
"""

from collections.abc import Sequence
from functools import cached_property

import torch
from torch import Tensor, nn

MOST = 32 << 20
"""Bytes of a flat tensor, unless a single parameter is larger."""
ALIGNMENT = 64
"""Each gradient begins at a multiple of this many numbers, for kernels that read several at a time."""


class Flat:
    """Some gradients of one dtype.

    Attributes:
        numbers: 1-D.
        padding: how many of these belong to no gradient; they are 0.
    """

    def __init__(self, numbers: Tensor, padding: int = 0) -> None:
        self.numbers = numbers
        self.padding = padding

    @cached_property
    def _mean(self) -> Tensor:
        """Of the micro-batches before the present one; an update of one needs no memory for it."""
        return torch.empty_like(self.numbers)

    def fold(self, number: int, *, last: bool) -> None:
        """Fold a micro-batch, counted from 1, into the mean, which `numbers` holds after the last."""
        if number > 1:
            torch.lerp(self._mean, self.numbers, 1 / number, out=self.numbers if last else self._mean)
        elif not last:
            self._mean.copy_(self.numbers)
        if not last:
            self.numbers.zero_()


def flatten(parameters: Sequence[nn.Parameter]) -> list[Flat]:
    """Let each parameter have a gradient of zeros in a flat tensor; parameters are on one device."""
    groups: list[list[nn.Parameter]] = []
    for parameter in reversed(parameters):
        same = groups and groups[-1][0].dtype == parameter.dtype
        if not same or sum(each.nbytes for each in groups[-1]) + parameter.nbytes > MOST:
            groups.append([])
        groups[-1].append(parameter)
    return [_flat(group) for group in groups]


def _flat(parameters: Sequence[nn.Parameter]) -> Flat:
    rooms = [-(-parameter.numel() // ALIGNMENT) * ALIGNMENT for parameter in parameters]
    numbers = torch.zeros(sum(rooms), dtype=parameters[0].dtype, device=parameters[0].device)
    for parameter, room in zip(parameters, numbers.split(rooms), strict=True):
        parameter.grad = room[: parameter.numel()].view_as(parameter)
    return Flat(numbers, numbers.numel() - sum(parameter.numel() for parameter in parameters))
