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

from brimful.base.errors import BrimfulError
from brimful.precision.gradients import require_dense


class RunningMean:
    """The weighted mean of the gradients of an update's micro-batches.

    For each micro-batch, run backward on its mean loss, then `add`. At the end, `finish` puts the mean into
    `.grad`; on several ranks `finish_over_ranks` does. Under DDP, run all micro-batches within `no_sync` and
    use `finish_over_ranks`.

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
            BrimfulError: the weight is negative, NaN or infinite, or a gradient is sparse or sharded.
        """
        if not 0 <= weight < float("inf"):
            raise BrimfulError(f"the weight of a micro-batch is 0 or more, not {weight}")
        self.weight += weight
        share = weight / self.weight if self.weight else 0.0
        for index, parameter in enumerate(self.parameters):
            gradient, mean = parameter.grad, self._means[index]
            if gradient is not None:
                require_dense(gradient)
            parameter.grad = None
            if gradient is not None and mean is not None:
                mean.lerp_(gradient, share)
            elif gradient is not None:
                # A copy: the gradient may lie in a bucket of DDP.
                self._means[index] = gradient * share
            elif mean is not None:
                mean.mul_(1 - share)

    def finish(self) -> float:
        """Put the mean into `.grad` and start anew. Returns the weight of all micro-batches."""
        for parameter, mean in zip(self.parameters, self._means, strict=True):
            parameter.grad = mean
        weight, self.weight = self.weight, 0.0
        self._means = [None] * len(self.parameters)
        return weight

    @torch.no_grad()
    def finish_over_ranks(self) -> float:
        """`finish` with the mean over all ranks, whose weights may differ. All ranks call it.

        Returns:
            the weight of all ranks.
        """
        sums = torch.tensor(self.weight, dtype=torch.float64, device=self.parameters[0].device)
        dist.all_reduce(sums)
        total = sums.item()
        share = self.weight / total if total else 0.0
        self.finish()
        sendings = []
        for parameter in self.parameters:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            sendings.append(dist.all_reduce(parameter.grad.mul_(share), async_op=True))
        for sending in sendings:
            sending.wait()
        return total
