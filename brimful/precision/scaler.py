"""Automatic loss scaling: a scale of the loss that keeps gradients within float16 and skips no step.

docs/precision.md has the rule, which is Graphcore's, and how the scaler is used.
"""

from collections.abc import Iterable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from brimful.base.errors import BrimfulError
from brimful.base.types import MAX_SCALE, MIN_SCALE, Numbers
from brimful.precision import watching
from brimful.precision.gradients import gradient_norm, list_parameters, require_dense
from brimful.precision.policy import THRESHOLD, widen


class AutomaticLossScaler:
    """Doubles or halves the scale of the loss after an update, so that gradients stay in float16's range.

    Args:
        init_scale: the first scale, at least 2^-16 and at most 2^40, the bounds of the scale.
        period: updates between two changes of the scale.

    Raises:
        BrimfulError: an argument is out of its range.
    """

    def __init__(self, init_scale: float = 1.0, period: int = 1) -> None:
        if not MIN_SCALE <= init_scale <= MAX_SCALE or period < 1:
            raise BrimfulError(
                "loss scaling needs an init_scale from 2^-16 to 2^40 and a period >= 1, not"
                f" {init_scale:g} and {period}"
            )
        self.period, self.max_scale = period, MAX_SCALE  # a float16 loss lowers it
        self._scale = torch.tensor(init_scale, dtype=torch.float32)
        self._updates = 0
        self._window = torch.zeros(2)
        self._recent = torch.zeros(4)
        self._clipped = False
        self._begin_update()
        watching.forget_counts()

    def scale(self, loss: Tensor) -> Tensor:
        """Return the loss times the scale, in float32 or wider."""
        self._to(loss.device)
        if loss.dtype == torch.float16:
            # The gradient of such a loss is the scale, which must fit float16 itself.
            self.max_scale = min(self.max_scale, 2.0**15)
            self._scale.clamp_(max=self.max_scale)
        return widen(loss) * self._scale

    def get_scale(self) -> float:
        """Return the scale. It waits for the device."""
        return self._scale.item()

    def clip_grad_norm_(self, parameters: Iterable[Tensor], max_norm: float) -> Tensor:
        """Make the next `step` of each optimizer clip the gradient, in the same division as the scale.

        Args:
            parameters: the parameters of all optimizers.

        Returns:
            the norm of the unscaled gradient: a float32 scalar.

        Raises:
            BrimfulError: gradients have been unscaled or clipped already.
        """
        if self._unscaled:
            raise BrimfulError("clip_grad_norm_ comes before unscale_; after it, use that of torch.nn.utils")
        if self._clipped:
            raise BrimfulError("clip_grad_norm_ once for each update(), with all parameters together")
        self._clipped = True
        norm = gradient_norm(self._saturate(parameters)).to(self._scale.device) / self._scale
        self._divisor = self._scale * (norm / max_norm).clamp(min=1.0)
        return norm

    @torch.no_grad()
    def unscale_(self, optimizer: torch.optim.Optimizer) -> None:
        """Divide the gradients of an optimizer by the scale, in place.

        Raises:
            BrimfulError: gradients are float16, or have been unscaled already.
        """
        if id(optimizer) in self._unscaled:
            raise BrimfulError("unscale_ was called twice for one optimizer since the last update()")
        gradients = self._saturate(list_parameters(optimizer.param_groups))
        if any(gradient.dtype == torch.float16 for gradient in gradients):
            raise BrimfulError(
                "unscale_ can't divide float16 gradients by the scale: what it saved would become 0 again; "
                "use an optimizer that takes scaled gradients, or float32 weights with autocast"
            )
        self._unscaled.add(id(optimizer))
        for gradient in gradients:
            gradient.div_(self._divisor.to(gradient.device, non_blocking=True))

    def step(self, optimizer: torch.optim.Optimizer, *args: Any, **kwargs: Any) -> Any:
        """Call `optimizer.step(*args, **kwargs)` with unscaled gradients. No step is skipped.

        Raises:
            BrimfulError: a closure is given, which would compute new gradients; or the errors of `unscale_`,
                for an optimizer that does not take scaled gradients.
        """
        if any(value is not None for value in (*args, kwargs.get("closure"))):
            raise BrimfulError("loss scaling takes no closure: call backward() and step() without one")
        if id(optimizer) not in self._unscaled:
            if getattr(optimizer, "_step_supports_amp_scaling", False):
                return self._scaled_step(optimizer, *args, **kwargs)
            self.unscale_(optimizer)
        return optimizer.step(*args, **kwargs)

    @torch.no_grad()
    def update(self) -> None:
        """Sum the counts over ranks, and every `period` updates halve or double the scale.

        All ranks call it. If no gradient was counted, the scale stays.
        """
        counts = watching.take_counts(self._scale.device)
        # Gradients up to the edge and above it; what overflowed, or became NaN on the way, was above.
        lower_and_above = torch.stack([counts[watching.LOWER], counts[watching.UPPER :].sum()])
        if _has_ranks():
            dist.all_reduce(lower_and_above)
        device = lower_and_above.device
        self._recent = self._recent.to(device) + torch.cat([lower_and_above, counts[watching.CLIPPED :]])
        self._window = self._window.to(device) + lower_and_above
        self._updates += 1
        if self._updates % self.period == 0:
            total = self._window.sum()
            # The rule works on the device, so that nothing waits for it: docs/precision.md has its source.
            above = self._window[1] / total
            factor = torch.where(above > THRESHOLD, 0.5, 2.0)
            changed = (self._scale * factor).clamp(MIN_SCALE, self.max_scale)
            self._scale = torch.where(total > 0, changed, self._scale)
            self._window.zero_()
        self._begin_update()

    def forget(self) -> None:
        """Drop the counts. Call it instead of `step` and `update` for an update that is left out."""
        watching.forget_counts()
        self._begin_update()

    def metrics(self) -> Numbers:
        """Return the scale, the proportion of gradients above the edge, and how many were clipped or NaN.

        All but the scale cover the updates since the last call. The proportion is over all ranks, the two
        counts are this rank's. It waits for the device.
        """
        lower, above, clipped, nan = self._recent.tolist()
        self._recent.zero_()
        return {
            "loss_scale": self.get_scale(),
            "upper_share": above / max(lower + above, 1.0),
            "clipped": clipped,
            "nan": nan,
        }

    def state_dict(self) -> Numbers:
        """Return the state with which a run resumes, the same on all ranks. Take it after `update`."""
        lower, above = self._window.tolist()
        return {"scale": self.get_scale(), "updates": self._updates, "lower": lower, "above": above}

    def load_state_dict(self, state_dict: Numbers) -> None:
        """Restore a `state_dict`. The period and the bounds stay as they are.

        Raises:
            BrimfulError: it is not a state of this class.
        """
        missing = {"scale", "updates", "lower", "above"} - state_dict.keys()
        if missing:
            raise BrimfulError(f"not a state of AutomaticLossScaler: it lacks {', '.join(sorted(missing))}")
        self._scale.fill_(state_dict["scale"]).clamp_(MIN_SCALE, self.max_scale)
        self._updates = int(state_dict["updates"])
        self._window = self._window.new_tensor([state_dict["lower"], state_dict["above"]])
        self.forget()

    def _begin_update(self) -> None:
        self._divisor = self._scale
        self._clipped = False
        self._unscaled: set[int] = set()  # ids of optimizers
        self._saturated_ids: set[int] = set()  # ids of parameters

    def _to(self, device: torch.device) -> None:
        self._scale, self._divisor = self._scale.to(device), self._divisor.to(device)

    @torch.no_grad()
    def _saturate(self, parameters: Iterable[Tensor]) -> list[Tensor]:
        """Return the parameters' gradients, saturated, so that an optimizer may read them.

        Gradients that were not watched in the backward passes are counted and saturated now. Watched ones are
        only mended if they have overflowed since.
        """
        gradients = []
        for parameter in parameters:
            if self._scale.device.type == "cpu":  # e.g. this rank has had no loss to scale yet
                self._to(parameter.device)
            if parameter.grad is None:
                continue
            require_dense(parameter.grad)
            gradients.append(parameter.grad)
            if id(parameter) in self._saturated_ids:
                continue
            self._saturated_ids.add(id(parameter))
            if watching.is_counted_elsewhere(parameter):
                continue
            gradient = parameter.grad
            if not watching.is_watched(parameter):
                gradient.copy_(watching.saturate_and_count(gradient))
            elif gradient.dtype == torch.float16 or _has_ranks():  # whose sums may have overflowed
                watching.mend(gradient)
        return gradients

    def _scaled_step(self, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        gradients = self._saturate(list_parameters(optimizer.param_groups))
        if not gradients:
            return optimizer.step(*args, **kwargs)
        optimizer.grad_scale = self._divisor.to(gradients[0].device, non_blocking=True)
        try:
            return optimizer.step(*args, **kwargs)
        finally:
            del optimizer.grad_scale


def _has_ranks() -> bool:
    return dist.is_available() and dist.is_initialized()
