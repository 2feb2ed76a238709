"""Other loss scalers behind the methods of `AutomaticLossScaler`, for comparison.

Each has `scale`, `clip_grad_norm_`, `step`, `update`, `get_scale`, `state_dict` and `load_state_dict`, counts
its `skipped` steps, and drives the same optimizers, also those that take scaled gradients.
"""

from collections.abc import Iterable
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
        self._divisor: Tensor | None = None
        self.skipped = 0

    def scale(self, loss: Tensor) -> Tensor:
        return loss.float() * self._scale

    def get_scale(self) -> float:
        return self._scale

    def clip_grad_norm_(self, parameters: Iterable[Tensor], max_norm: float) -> Tensor:
        """Let the next step clip; the norm of the unscaled gradient."""
        gradients = [p.grad for p in parameters if p.grad is not None]
        norms = [torch.linalg.vector_norm(g, dtype=torch.float32) for g in gradients]
        norm = torch.linalg.vector_norm(torch.stack(norms)) / self._scale
        self._divisor = self._scale * (norm / max_norm).clamp(min=1.0)
        return norm

    def step(self, optimizer: Any) -> None:
        gradients = [
            p.grad for group in optimizer.param_groups for p in group["params"] if p.grad is not None
        ]
        self._overflows = any(not torch.isfinite(gradient).all() for gradient in gradients)
        if self._overflows and self._skips:
            self.skipped += 1
            return
        divisor = torch.tensor(self._scale) if self._divisor is None else self._divisor
        if getattr(optimizer, "_step_supports_amp_scaling", False):
            optimizer.grad_scale, optimizer.found_inf = divisor, torch.zeros(())
            optimizer.step()
            del optimizer.grad_scale, optimizer.found_inf
        else:
            for gradient in gradients:
                gradient.div_(divisor)
            optimizer.step()

    def update(self) -> None:
        self._divisor = None

    def state_dict(self) -> dict[str, float]:
        return {"scale": self._scale}

    def load_state_dict(self, state_dict: dict[str, float]) -> None:
        self._scale = state_dict["scale"]


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
        super().update()
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

    def state_dict(self) -> dict[str, float]:
        own = {"left": self._left, "updates": self._updates, "last_overflow": self._last_overflow}
        return super().state_dict() | own

    def load_state_dict(self, state_dict: dict[str, float]) -> None:
        super().load_state_dict(state_dict)
        self._left, self._updates = int(state_dict["left"]), int(state_dict["updates"])
        self._last_overflow = int(state_dict["last_overflow"])


class TorchScaler:
    """`torch.amp.GradScaler`, told by a step hook whether it skipped; its own rule and defaults."""

    def __init__(self, init_scale: float = 2.0**16, growth_interval: int = 2000, device: str = "cpu") -> None:
        self.scaler = torch.amp.GradScaler(device, init_scale=init_scale, growth_interval=growth_interval)
        self._clip: Tensor | None = None
        self.skipped = 0

    def scale(self, loss: Tensor) -> Tensor:
        return self.scaler.scale(loss.float())

    def get_scale(self) -> float:
        return self.scaler.get_scale()

    def clip_grad_norm_(self, parameters: Iterable[Tensor], max_norm: float) -> Tensor:
        """Only for optimizers that take scaled gradients, whose `grad_scale` GradScaler multiplies."""
        gradients = [p.grad for p in parameters if p.grad is not None]
        norms = [torch.linalg.vector_norm(g, dtype=torch.float32) for g in gradients]
        norm = torch.linalg.vector_norm(torch.stack(norms)) / self.get_scale()
        self._clip = (norm / max_norm).clamp(min=1.0)
        return norm

    def step(self, optimizer: Any) -> None:
        if getattr(optimizer, "_step_supports_amp_scaling", False):
            if self._clip is not None:
                optimizer.grad_scale = self._clip
            self.scaler.step(optimizer)
            # That optimizer was called, and left its weights alone if `found_inf` said so.
            found = self.scaler._found_inf_per_device(optimizer).values()
            self.skipped += any(each.item() for each in found)
            return
        steps: list[int] = []
        hook = optimizer.register_step_post_hook(lambda *_: steps.append(1))
        self.scaler.step(optimizer)
        hook.remove()
        self.skipped += not steps

    def update(self) -> None:
        self._clip = None
        self.scaler.update()

    def state_dict(self) -> dict[str, float]:
        return self.scaler.state_dict()

    def load_state_dict(self, state_dict: dict[str, float]) -> None:
        self.scaler.load_state_dict(state_dict)
