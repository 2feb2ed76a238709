"""How the micro-batches of an update, on all ranks, become one gradient that the optimizers read."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from brimful.distributed import World, sum_gradients
from brimful.train.compilation import gradient_buffers


class Gradients:
    """The gradient of one update after another: here a sum that autograd makes, in the dtype of the weights.

    For each `begin`, `add` its micro-batches, `gather`, `clip`, `step`, and at the end `forget`.

    Args:
        parameters: that are trained.
        keep: keep the tensors of the gradients and zero them, for CUDA graphs.
    """

    def __init__(self, parameters: Sequence[nn.Parameter], world: World, *, keep: bool) -> None:
        self.parameters = parameters
        self.world = world
        self.keep = keep
        if keep:
            gradient_buffers(parameters)

    def begin(self, micro_batches: int) -> None:
        """An update of so many micro-batches, on all ranks."""

    def add(self, loss: Tensor) -> None:
        """Differentiate a micro-batch's share of the update's loss: a scalar, float32 at least."""
        loss.backward()

    def gather(self) -> None:
        """Join the ranks, all of which call it."""
        if self.world.size > 1:
            sum_gradients(self.parameters)

    def clip(self, most: float) -> Tensor:
        """Let `step` see a gradient of this norm at most; 0 = any.

        Returns:
            the norm that it had, a scalar on the device.
        """
        gradients = [parameter.grad for parameter in self.parameters if parameter.grad is not None]
        norm = torch.nn.utils.get_total_norm([gradient.float() for gradient in gradients])
        if most:
            torch.nn.utils.clip_grads_with_norm_(self.parameters, most, norm)
        return norm

    def step(self, optimizers: Sequence[torch.optim.Optimizer]) -> None:
        """Let the optimizers take the gradient in, on all ranks."""
        for optimizer in optimizers:
            optimizer.step()

    def forget(self) -> None:
        """Drop the gradient, and what it was made of if it was not taken in."""
        for parameter in self.parameters:
            if self.keep and parameter.grad is not None:
                parameter.grad.zero_()
            else:
                parameter.grad = None

    def metrics(self) -> dict[str, float]:
        """What is to be shown of the updates since the last call, which all ranks make."""
        return {}

    def state_dict(self) -> dict[str, float]:
        """What a checkpoint keeps: JSON values."""
        return {}

    def load_state_dict(self, state: Mapping[str, float]) -> None:
        """Go on from a `state_dict`."""
