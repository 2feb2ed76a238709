"""The norm of a whole gradient, and gradients that are scaled.

Torch has a contract with optimizers that divide scaled gradients within their step. The optimizer's class
has `_step_supports_amp_scaling`. During a step the optimizer has the attribute `grad_scale`, a float32 scalar
that `precision.scaler.AutomaticLossScaler` or torch.amp.GradScaler sets. GradScaler also sets `found_inf`; if
it is not 0, the step is skipped.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from brimful.base.errors import BrimfulError
from brimful.base.types import Values


def gradient_norm(gradients: Sequence[Tensor]) -> Tensor:
    """Return the norm of all gradients together, in few kernels: a float32 scalar, whatever their formats."""
    parts = []
    for gradient in gradients:
        # foreach computes a norm in a wider format than its input's, but not in a narrower one.
        parts.append(gradient.float() if gradient.itemsize > 4 else gradient)
    if not parts:
        return torch.zeros(())
    norms = torch._foreach_norm(parts, 2, dtype=torch.float32)
    device = norms[-1].device  # a model may be spread over several
    return torch.linalg.vector_norm(torch.stack([norm.to(device) for norm in norms]))


def list_parameters(groups: Iterable[Values]) -> list[Any]:
    """Return the parameters of an optimizer's groups, or their indices in a state dict."""
    return [parameter for group in groups for parameter in group["params"]]


def require_dense(tensor: Tensor) -> None:
    """Raise BrimfulError for a parameter or gradient that is sharded over ranks, sparse, or complex."""
    if tensor.is_sparse or tensor.is_complex() or hasattr(tensor, "device_mesh"):
        raise BrimfulError(
            "loss scaling and 16-bit weights take dense, real tensors that are whole on each rank: use DDP in"
            " place of FSDP2 and tensor parallelism, and embeddings with sparse=False"
        )


def grad_scale(optimizer: torch.optim.Optimizer) -> Tensor | None:
    """Return the divisor of the gradients, or None if they are not scaled."""
    return getattr(optimizer, "grad_scale", None)


def is_skipped(optimizer: torch.optim.Optimizer) -> bool:
    """Whether this step is skipped. Waits for the device, but only under GradScaler."""
    overflow = getattr(optimizer, "found_inf", None)
    return overflow is not None and bool(overflow)
