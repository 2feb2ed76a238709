"""Gradients accumulated as a running weighted mean, which never grows beyond its parts.

After micro-batches with mean gradients g_1 ... g_k and weights w_1 ... w_k, with W_k = w_1 + ... + w_k:

    M <- M + (w_k / W_k) (g_k - M)

M lies between its parts, so float16 holds it for any number of micro-batches, and the loss scale does not
depend on that number. Over ranks: each rank multiplies its M by its part of the total weight, and the results
are summed.
"""

from collections.abc import Iterable

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.tensor import DTensor

from brimful.base.errors import BrimfulError


class RunningMean:
    """The weighted mean of the gradients of an update's micro-batches.

    For each micro-batch, run backward on its mean loss, then `add`. At the end, `finish` puts the mean into
    `.grad`; on several ranks `finish_over_ranks` does. Under DDP, run all micro-batches within `no_sync` and
    use `finish_over_ranks`. FSDP2 reduces each micro-batch: multiply the loss by `rank_factor`, `add` the
    weight of all ranks, and use `finish`.

    Args:
        parameters: the parameters whose `.grad` is read and set.
    """

    def __init__(self, parameters: Iterable[Tensor]) -> None:
        self.parameters = list(parameters)
        self.weight = 0.0
        self._means: list[Tensor | None] = [None] * len(self.parameters)

    @torch.no_grad()
    def add(self, weight: float) -> None:
        """Add the gradients of a micro-batch, and drop them from `.grad`. A missing gradient counts as zero.

        Raises:
            BrimfulError: the weight is negative, NaN or infinite, or a gradient is sparse.
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
        """Put the mean into `.grad` and start anew. Returns the weight of all micro-batches."""
        for parameter, mean in zip(self.parameters, self._means, strict=True):
            parameter.grad = mean
        weight, self.weight = self.weight, 0.0
        self._means = [None] * len(self.parameters)
        return weight

    @torch.no_grad()
    def finish_over_ranks(
        self, group: dist.ProcessGroup | None = None, *, total: float | None = None
    ) -> float:
        """`finish` with the mean over all ranks, whose weights may differ. All ranks call it.

        Args:
            total: the weight of all ranks. Without it the ranks exchange it, which waits for the device.

        Returns:
            the weight of all ranks.
        """
        if total is None:
            total = _total(self.weight, self.parameters, group)
        share = self.weight / total if total else 0.0
        self.finish()
        sums = []
        for parameter in self.parameters:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            sums.append(dist.all_reduce(parameter.grad.mul_(share), group=group, async_op=True))
        for sending in sums:
            sending.wait()
        return total


def rank_factor(
    weight: float, parameters: Iterable[Tensor], group: dist.ProcessGroup | None = None
) -> tuple[float, float]:
    """The factor on a rank's mean loss that turns the plain mean over ranks into the weighted mean.

    Args:
        weight: of this rank's micro-batch.
        parameters: the first one decides the device of the communication.

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
