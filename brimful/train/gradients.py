"""The gradient of one update: summed over micro-batches and ranks, clipped, and given to the optimizers.

There are three ways to accumulate:

    float32 parameters              autograd adds up the micro-batches in `.grad`
    16-bit parameters               a running mean of micro-batches and ranks, so that no small part is lost
                                    beside a sum that has grown
    fp16 activations                the same mean, of the gradients of a scaled loss

The mean takes each micro-batch's part of the loss times the number of micro-batches, so it equals the sum of
the parts, and neither the loss scale nor the size of the numbers depends on how many micro-batches there are.

Means lie in buckets (train/buckets.py), and so do all gradients on a GPU or of several ranks. For a sum, a
single CPU process keeps one tensor for each gradient, which its caches prefer.
"""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from brimful.data.batch import PackedBatch
from brimful.distributed import World
from brimful.precision.norm import gradient_norm
from brimful.train.buckets import Buckets
from brimful.train.config import BUCKET_MB
from brimful.types import Compression

if TYPE_CHECKING:
    from brimful.precision.scaler import AutomaticLossScaler


class Gradients:
    """Call in this order: `begin`, `backward` for each micro-batch, `gather`, `clip`, `step`, `clear`.

    Args:
        parameters: the trained parameters.
        mean: accumulate as a running mean.
        scaler: scales the loss. It implies `mean`. The parameters are watched here, not by `watch_modules`.
        megabytes, compression: see `Buckets`.
    """

    def __init__(
        self,
        parameters: Sequence[nn.Parameter],
        world: World,
        *,
        mean: bool = False,
        scaler: "AutomaticLossScaler | None" = None,
        megabytes: float = BUCKET_MB,
        compression: Compression = "none",
    ) -> None:
        self.parameters = parameters
        self.world = world
        self.scaler = scaler
        scaled = scaler is not None
        self.buckets: Buckets | None = None
        if mean or scaled or world.size > 1 or world.device.type == "cuda":
            self.buckets = Buckets(
                parameters,
                world,
                mean=mean or scaled,
                scaled=scaled,
                megabytes=megabytes,
                compression=compression,
            )

    def begin(self, batches: Sequence[PackedBatch], total: int) -> None:
        """An update begins.

        Args:
            batches: this rank's micro-batches.
            total: how many all ranks have.
        """
        if self.buckets:
            self.buckets.begin(batches, total)

    def backward(self, loss: Tensor) -> None:
        """Differentiate one micro-batch's part of the update's loss: a scalar, float32 or wider."""
        if self.scaler:
            loss = self.scaler.scale(loss)
        if self.buckets:
            self.buckets.backward(loss)
        else:
            loss.backward()

    def gather(self) -> None:
        """Put the gradient of all micro-batches of all ranks into `.grad`. All ranks call it."""
        if self.buckets:
            self.buckets.gather()

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
        if self.buckets:
            self.buckets.zero()
        else:
            for parameter in self.parameters:
                parameter.grad = None
        if self.scaler:
            self.scaler.forget()

    def close(self) -> None:
        """Drop the gradients and their memory. The parameters are as before this object was made."""
        for parameter in self.parameters:
            parameter.grad = None
        if self.buckets:
            self.buckets.close()
        if self.scaler:
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
