"""Scaled gradients: torch's contract with optimizers that divide them by the scale within their step.

The class has `_step_supports_amp_scaling`. While it steps it has the attribute `grad_scale`, a float32 scalar
(of `brimful.precision.AutomaticLossScaler` or torch.amp.GradScaler), and under GradScaler `found_inf`, which
is not 0 where the step is to be left out.
"""

import torch
from torch import Tensor


def grad_scale(optimizer: torch.optim.Optimizer) -> Tensor | None:
    """What gradients are to be divided by; None: they are not scaled."""
    return getattr(optimizer, "grad_scale", None)


def is_skipped(optimizer: torch.optim.Optimizer) -> bool:
    """Whether this step is to be left out. Waits for the device, under GradScaler only."""
    found = getattr(optimizer, "found_inf", None)
    return found is not None and bool(found)
