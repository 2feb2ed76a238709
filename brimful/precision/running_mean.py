"""Gradients accumulated as a weighted mean that is one at every moment, so that it never outgrows its parts.

After micro-batches with mean gradients g_1 ... g_k and weights w_1 ... w_k, W_k = w_1 + ... + w_k:

    M <- M + (w_k / W_k) (g_k - M)

M lies between its parts, so float16 holds it whatever their number, and the loss scale does not depend on
it. Ranks are joined likewise: each multiplies its M by its share of the weight before they are summed.
"""

from collections.abc import Iterable

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.tensor import DTensor

from brimful.distributed import sum_gradients
from brimful.errors import BrimfulError


class RunningMean:
    """The weighted mean of the gradients of an update's micro-batches.

    For each micro-batch: backward of its mean loss, then `add`. At the end `finish`, or `finish_over_ranks`
    where each rank has a mean of its own, and the mean is in `.grad`. Under DDP run all micro-batches within
    `no_sync`, and finish over ranks. Under FSDP2, which reduces each micro-batch, multiply the loss by
    `rank_factor` instead, `add` the weight of all ranks, and finish alone.

    Args:
        parameters: those whose `.grad` is read and set.
    """

    def __init__(self, parameters: Iterable[Tensor]) -> None:
        self.parameters = list(parameters)
        self.weight = 0.0
        self._means: list[Tensor | None] = [None] * len(self.parameters)

    @torch.no_grad()
    def add(self, weight: float) -> None:
        """Take in the gradients of a micro-batch, and drop them; an absent one is zero.

        Raises:
            BrimfulError: a weight that is negative or no number; sparse gradients.
        """
        if not 0 <= weight < float("inf"):
            raise BrimfulError(f"the weight of a micro-batch is 0 or more, not {weight}")
        self.weight += weight
        share = weight / self.weight if self.weight else 0.0
        for index, parameter in enumerate(self.parameters):
            gradient, mean = parameter.grad, self._means[index]
            if gradient is not None and gradient.is_sparse:
                raise BrimfulError(
                    "a running mean needs dense gradients: make the embedding with sparse=False"
                )
            parameter.grad = None
            if gradient is not None and mean is not None:
                _local(mean).lerp_(_local(gradient), share)
            elif gradient is not None:
                # A copy: the gradient may lie in a bucket of DDP.
                self._means[index] = gradient * share
            elif mean is not None:
                _local(mean).mul_(1 - share)

    def finish(self) -> float:
        """Put the mean into `.grad`, and begin anew. Returns the weight of all micro-batches."""
        for parameter, mean in zip(self.parameters, self._means, strict=True):
            parameter.grad = mean
        weight, self.weight = self.weight, 0.0
        self._means = [None] * len(self.parameters)
        return weight

    @torch.no_grad()
    def finish_over_ranks(
        self, group: dist.ProcessGroup | None = None, *, total: float | None = None
    ) -> float:
        """`finish` with the mean over all ranks, whose weights may differ; a collective call.

        Args:
            total: the weight of all ranks; without it they are asked, which waits for the device.

        Returns:
            the weight of all ranks.
        """
        if total is None:
            total = _total(self.weight, self.parameters, group)
        share = self.weight / total if total else 0.0
        self.finish()
        sum_gradients(self.parameters, share, group)
        return total


def rank_factor(
    weight: float, parameters: Iterable[Tensor], group: dist.ProcessGroup | None = None
) -> tuple[float, float]:
    """What a rank's mean loss is multiplied by, so that the plain mean over ranks is the weighted one.

    Args:
        weight: of this rank's micro-batch.
        parameters: any of them say on which device ranks talk to each other.

    Returns:
        the factor, size * weight / total, and the total weight of all ranks.
    """
    total = _total(weight, parameters, group)
    return (dist.get_world_size(group) * weight / total if total else 0.0), total


def _total(weight: float, parameters: Iterable[Tensor], group: dist.ProcessGroup | None) -> float:
    device = next(iter(parameters)).device
    total = torch.tensor(weight, dtype=torch.float64, device=device)
    dist.all_reduce(total, group=group)
    return total.item()


def _local(gradient: Tensor) -> Tensor:
    return gradient.to_local() if isinstance(gradient, DTensor) else gradient
