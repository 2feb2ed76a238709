"""What inference in int8 needs: how inputs of products are rounded, and a processor that sums them right."""

import importlib.util
from dataclasses import dataclass

import torch
from torch import Tensor

INSTRUCTIONS = ("amx_int8", "avx512_vnni", "avx_vnni")
"""Of x86, any of them sums four 8-bit products in 32 bits. Older ones sum two in 16 bits, and saturate."""


@dataclass(frozen=True, eq=False)
class Steps:
    """How the inputs of a product become integers from 0 to 255: round(x / factors / size) + zero.

    Attributes:
        size: of a step, above 0.
        zero: the integer that stands for 0.
        factors: float32 (in,), of each channel, above 0; None: all are 1.
    """

    size: float
    zero: int
    factors: Tensor | None = None


def rounded_weights(weight: Tensor, factors: Tensor | None) -> tuple[Tensor, Tensor]:
    """Weights as integers from -127 to 127.

    Args:
        weight: float32 (out, in).
        factors: as in `Steps`.

    Returns:
        weight * factors in steps, int8 (out, in), and the step of each output, float32 (out,).
    """
    if factors is not None:
        weight = weight * factors
    sizes = weight.abs().amax(1).clamp_min(torch.finfo(torch.float32).tiny) / 127
    return (weight / sizes[:, None]).round().to(torch.int8), sizes


def missing() -> str | None:
    """Why products in int8 are wrong or slow here; None if they are neither."""
    able = torch.cpu.get_capabilities() if hasattr(torch.cpu, "get_capabilities") else {}
    if not any(able.get(name) for name in INSTRUCTIONS):
        return "a processor with VNNI or AMX"
    if not (hasattr(torch.ops.onednn, "qlinear_pointwise") and importlib.util.find_spec("numba")):
        return "torch's oneDNN, and numba"
    return None
