"""Scaled gradients: torch's contract with optimizers that divide them by the scale inside their step.

The optimizer's class has `_step_supports_amp_scaling`. During a step the optimizer has the attribute
`grad_scale`, a float32 scalar that brimful.precision.scaler.AutomaticLossScaler or torch.amp.GradScaler sets.
GradScaler also sets `found_inf`; if it is not 0, the step is skipped.
"""

import torch
from torch import Tensor


def grad_scale(optimizer: torch.optim.Optimizer) -> Tensor | None:
    """The divisor of the gradients, or None if they are not scaled."""
    return getattr(optimizer, "grad_scale", None)


def is_skipped(optimizer: torch.optim.Optimizer) -> bool:
    """Whether this step is skipped. Waits for the device, but only under GradScaler."""
    found = getattr(optimizer, "found_inf", None)
    return found is not None and bool(found)
