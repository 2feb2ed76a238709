"""The gradient of one update: summed over micro-batches and ranks, clipped, and given to the optimizers.

There are three ways to accumulate:

    float32 parameters              autograd adds up the micro-batches in `.grad`
    16-bit parameters               a running mean of micro-batches and ranks, so that no small part is lost
                                    beside a sum that has grown
    fp16 activations                the same mean, of the gradients of a scaled loss

The mean takes each micro-batch's part of the loss times the number of micro-batches, so it equals the sum of
the parts, and neither the loss scale nor the size of the numbers depends on how many micro-batches there are.

On a GPU, and with several ranks, gradients lie in buckets (train/buckets.py); a single CPU process keeps one
tensor for each, which its caches prefer.
"""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from brimful.distributed import World
from brimful.precision.running_mean import RunningMean
from brimful.train.buckets import Bucket, Buckets

if TYPE_CHECKING:
    from brimful.precision.scaler import AutomaticLossScaler


def uses_buckets(world: World) -> bool:
    """Whether gradients lie in buckets."""
    return world.size > 1 or world.device.type == "cuda"


class Gradients:
    """Call in this order: `begin`, `backward` for each micro-batch, `gather`, `clip`, `step`, `clear`.

    Args:
        parameters: the trained parameters.
        mean: accumulate as a running mean.
        scaler: scales the loss. It implies `mean`. Where gradients lie in buckets, the parameters are watched
            here, and not by `watch_modules`.
    """

    def __init__(
        self,
        parameters: Sequence[nn.Parameter],
        world: World,
        *,
        mean: bool = False,
        scaler: "AutomaticLossScaler | None" = None,
    ) -> None:
        self.parameters = parameters
        self.world = world
        self.scaler = scaler
        self.mean = mean or scaler is not None
        self.buckets: Buckets | None = None
        self.running: RunningMean | None = None
        if uses_buckets(world):
            folds = {"each": self._fold, "before_sum": self._weigh} if self.mean else {}
            self.buckets = Buckets(parameters, world, **folds)
        elif self.mean:
            self.running = RunningMean(parameters)
        self._means: dict[int, Tensor] = {}
        self._own = self._total = self._done = 0

    def begin(self, own: int, total: int) -> None:
        """An update begins.

        Args:
            own: how many micro-batches this rank has.
            total: how many all ranks have.
        """
        self._own, self._total, self._done = own, total, 0

    def backward(self, loss: Tensor) -> None:
        """Differentiate one micro-batch's part of the update's loss: a scalar, float32 or wider."""
        if self.scaler:
            loss = self.scaler.scale(loss)
        if self.mean:
            loss = loss * self._total
        if self.buckets:
            self.buckets.begin(last=self._is_last)
        loss.backward()
        if self.buckets:
            self.buckets.end()
        elif self.running:
            self.running.add(1.0)
        self._done += 1

    @property
    def _is_last(self) -> bool:
        """Whether the present micro-batch is this rank's last of the update."""
        return self._done + 1 == self._own

    @torch.no_grad()
    def _fold(self, index: int, bucket: Bucket) -> None:
        """Fold a micro-batch's gradients into the running mean, which is in the bucket after the last one."""
        flat = bucket.flat
        if self.scaler:
            from brimful.precision.watching import saturate_and_count

            _replace(flat, saturate_and_count(flat, bucket.padding))
        if self._done:
            mean = self._means[index]
            torch.lerp(mean, flat, 1 / (self._done + 1), out=flat if self._is_last else mean)
        elif not self._is_last:
            self._means.setdefault(index, torch.empty_like(flat)).copy_(flat)
        if not self._is_last:
            flat.zero_()

    @torch.no_grad()
    def _weigh(self, index: int, bucket: Bucket) -> None:
        """Multiply this rank's mean by its part of the micro-batches."""
        if self._own != self._total:
            bucket.flat.mul_(self._own / self._total)

    @torch.no_grad()
    def gather(self) -> None:
        """Put the gradient of all micro-batches of all ranks into `.grad`. All ranks call it."""
        if self.running:
            self.running.finish()
        if self.buckets:
            self.buckets.gather()

    def clip(self, max_norm: float) -> Tensor:
        """Limit the norm of the whole gradient; 0 = no limit.

        Returns:
            the norm before clipping, without the loss scale: a scalar on the device.
        """
        if self.buckets and self.scaler:
            from brimful.precision.watching import mend

            for bucket in self.buckets.buckets:
                if self.world.size > 1 or bucket.flat.dtype == torch.float16:  # the sum may have overflowed
                    with torch.no_grad():
                        _replace(bucket.flat, mend(bucket.flat))
        if self.scaler:
            return self.scaler.clip_grad_norm_(self.parameters, max_norm or math.inf)
        gradients = [parameter.grad for parameter in self.parameters if parameter.grad is not None]
        if not gradients:
            return torch.zeros(())
        upto32 = [gradient.float() if gradient.itemsize > 4 else gradient for gradient in gradients]
        norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(upto32, 2, dtype=torch.float32)))
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
        if self.buckets:
            self.buckets.zero()
        else:
            if self.running:
                self.running.finish()
            for parameter in self.parameters:
                parameter.grad = None
        if self.scaler:
            self.scaler.forget()

    def close(self) -> None:
        """Drop the gradients and their memory. The parameters are as before this object was made."""
        for parameter in self.parameters:
            parameter.grad = None
        self._means.clear()
        if self.buckets:
            self.buckets.close()
        if self.buckets and self.scaler:
            from brimful.precision.watching import count_again

            count_again(self.parameters)

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


def _replace(tensor: Tensor, other: Tensor) -> None:
    if other is not tensor:
        tensor.copy_(other)
