"""The gradient of one update: summed over micro-batches and ranks, clipped, and given to the optimizers.

There are three ways to accumulate:

    float32 parameters              autograd adds up the micro-batches in `.grad`
    16-bit parameters               a running mean of micro-batches and ranks, so that no small part is lost
                                    beside a sum that has grown
    fp16 activations                the same mean, of the gradients of a scaled loss

The mean takes each micro-batch's part of the loss times the number of micro-batches, so it equals the sum of
the parts, and neither the loss scale nor the size of the numbers depends on how many micro-batches there are.
"""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from brimful.distributed import World, sum_gradients
from brimful.precision.running_mean import RunningMean
from brimful.train.compilation import gradient_buffers

if TYPE_CHECKING:
    from brimful.precision.scaler import AutomaticLossScaler


class Gradients:
    """Call in this order: `backward` for each micro-batch, then `gather`, `clip`, `step`, `clear`.

    Args:
        parameters: the trained parameters.
        keep: zero the gradients' tensors instead of dropping them, as CUDA graphs need.
        mean: accumulate as a running mean.
        scaler: scales the loss. It implies `mean`.
    """

    def __init__(
        self,
        parameters: Sequence[nn.Parameter],
        world: World,
        *,
        keep: bool = False,
        mean: bool = False,
        scaler: "AutomaticLossScaler | None" = None,
    ) -> None:
        self.parameters = parameters
        self.world = world
        self.scaler = scaler
        self.mean = RunningMean(parameters) if mean or scaler else None
        self.keep = keep and self.mean is None
        if self.keep:
            gradient_buffers(parameters)

    def backward(self, loss: Tensor, micro_batches: int) -> None:
        """Differentiate one micro-batch's part of the update's loss.

        Args:
            loss: a scalar, float32 or wider.
            micro_batches: how many the update has on all ranks.
        """
        if self.scaler:
            loss = self.scaler.scale(loss)
        if self.mean:
            loss = loss * micro_batches
        loss.backward()
        if self.mean:
            self.mean.add(1.0)

    def gather(self, micro_batches: int) -> None:
        """Put the gradient of all micro-batches of all ranks into `.grad`. All ranks call it."""
        if self.mean and self.world.size > 1:
            self.mean.finish_over_ranks(total=micro_batches)
        elif self.mean:
            self.mean.finish()
        elif self.world.size > 1:
            sum_gradients(self.parameters)

    def clip(self, max_norm: float) -> Tensor:
        """Limit the norm of the whole gradient; 0 = no limit.

        Returns:
            the norm before clipping, without the loss scale: a scalar on the device.
        """
        if self.scaler:
            return self.scaler.clip_grad_norm_(self.parameters, max_norm or math.inf)
        gradients = [parameter.grad for parameter in self.parameters if parameter.grad is not None]
        norm = torch.nn.utils.get_total_norm([gradient.float() for gradient in gradients])
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
        if self.mean:
            self.mean.finish()
        for parameter in self.parameters:
            if self.keep and parameter.grad is not None:
                parameter.grad.zero_()
            else:
                parameter.grad = None
        if self.scaler:
            self.scaler.forget()

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
