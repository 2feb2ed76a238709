"""Other loss scalers behind the methods of `AutomaticLossScaler`, for comparison.

Each has `scale`, `step`, `update` and `get_scale`, counts its `skipped` steps, and drives optimizers that
take scaled gradients.
"""

from typing import Any

import torch
from torch import Tensor


class Peer:
    """Scales the loss, and takes a step unless `skips` says that the gradient is not finite.

    Args:
        init_scale: the first scale.
        skips: whether a step with a gradient that is not finite is left out.
    """

    def __init__(self, init_scale: float, *, skips: bool) -> None:
        self._scale = init_scale
        self._skips = skips
        self._overflows = False
        self.skipped = 0

    def scale(self, loss: Tensor) -> Tensor:
        return loss.float() * self._scale

    def get_scale(self) -> float:
        return self._scale

    def step(self, optimizer: Any) -> None:
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        gradients = [p.grad for p in parameters if p.grad is not None]
        self._overflows = any(not torch.isfinite(gradient).all() for gradient in gradients)
        if self._overflows and self._skips:
            self.skipped += 1
            return
        optimizer.grad_scale, optimizer.found_inf = torch.tensor(self._scale), torch.zeros(())
        optimizer.step()
        del optimizer.grad_scale, optimizer.found_inf

    def update(self) -> None:
        """Change the scale, if the rule wants it."""


class ConstantScale(Peer):
    """One scale for the whole run; what overflows goes into the weights."""

    def __init__(self, init_scale: float) -> None:
        super().__init__(init_scale, skips=False)


class Hysteresis(Peer):
    """DeepSpeed's rule (runtime/fp16/loss_scaler.py), with its defaults.

    An overflow skips the step and uses up one unit of the hysteresis; the last unit stays, and from then on
    each overflow halves the scale. After each `window` of updates without one the scale doubles, and the
    hysteresis is full again.
    """

    def __init__(
        self, init_scale: float = 2.0**16, window: int = 1000, hysteresis: int = 2, min_scale: float = 1.0
    ) -> None:
        super().__init__(init_scale, skips=True)
        self.window, self.hysteresis, self.min_scale = window, hysteresis, min_scale
        self._left = hysteresis
        self._updates = 0
        self._last_overflow = -1

    def update(self) -> None:
        if self._overflows:
            if self._left == 1:
                self._scale = max(self._scale / 2, self.min_scale)
            else:
                self._left -= 1
            self._last_overflow = self._updates
        else:
            stable = self._updates - self._last_overflow - 1
            if stable > 0 and stable % self.window == 0:
                self._left = self.hysteresis
                self._scale *= 2
        self._updates += 1


class TorchScaler:
    """`torch.amp.GradScaler` with its own rule and defaults; it also counts what it skips."""

    def __init__(self, init_scale: float = 2.0**16, growth_interval: int = 2000) -> None:
        self.scaler = torch.amp.GradScaler("cpu", init_scale=init_scale, growth_interval=growth_interval)
        self.skipped = 0

    def scale(self, loss: Tensor) -> Tensor:
        return self.scaler.scale(loss.float())

    def get_scale(self) -> float:
        return self.scaler.get_scale()

    def step(self, optimizer: Any) -> None:
        self.scaler.step(optimizer)
        found = self.scaler._found_inf_per_device(optimizer).values()
        self.skipped += any(each.item() for each in found)

    def update(self) -> None:
        self.scaler.update()
