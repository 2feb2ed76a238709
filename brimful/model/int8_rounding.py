"""What inference in int8 needs: how inputs of products are rounded, and a processor that sums them right."""

import importlib.util
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor

INSTRUCTIONS = ("amx_int8", "avx512_vnni", "avx_vnni")
"""Of x86, any of them sums four 8-bit products in 32 bits. Older ones sum two in 16 bits, and saturate."""
WHOLE, NARROW = 127, 64
"""The largest integer of weights: of eight bits, and of seven: twice 255 * 64 is below 2 ** 15."""


@dataclass(frozen=True, eq=False)
class Steps:
    """How the inputs of a product become integers from 0 to 255: round(x / factors / size) + zero.

    Attributes:
        size: of a step, above 0.
        zero: the integer that stands for 0.
        factors: float32 (in,), of each channel, above 0; None: all are 1.
        largest: integer of the weights.
    """

    size: float
    zero: int
    factors: Tensor | None = None
    largest: int = WHOLE


def round_weights(weight: Tensor, steps: Steps) -> tuple[Tensor, Tensor]:
    """Weights as integers from -steps.largest to steps.largest.

    Args:
        weight: float32 (out, in).

    Returns:
        weight * factors, rounded, int8 (out, in), and the step of each output, float32 (out,).
    """
    if steps.factors is not None:
        weight = weight * steps.factors
    sizes = weight.abs().amax(1).clamp_min(torch.finfo(torch.float32).tiny) / steps.largest
    return (weight / sizes[:, None]).round().to(torch.int8), sizes


def find_largest_weight() -> int:
    """The largest integer of weights whose products this processor sums right: `WHOLE`, without VNNI and AMX
    `NARROW`; 0: none."""
    able = torch.cpu.get_capabilities() if hasattr(torch.cpu, "get_capabilities") else {}
    if not hasattr(torch.ops.onednn, "qlinear_pointwise"):
        return 0
    if any(able.get(name) for name in INSTRUCTIONS) and _sums_right(WHOLE):
        return WHOLE
    return NARROW if able.get("avx2") and _sums_right(NARROW) else 0


@cache
def _sums_right(largest: int) -> bool:
    """Whether the product of largest inputs and weights is exact: oneDNN may have been told to leave
    instructions out."""
    rows, width = 32, 64
    packed = torch.ops.onednn.qlinear_prepack(torch.full((width, width), largest, dtype=torch.int8), None)
    weights = packed, torch.ones(width), torch.zeros(width, dtype=torch.int64), None
    x = torch.full((rows, width), 255, dtype=torch.uint8)
    out: tuple[Any, ...] = (1.0, 0, torch.float32, "none", [], "none")
    found = torch.ops.onednn.qlinear_pointwise(x, 1.0, 0, *weights, *out)
    return bool((found == 255 * largest * width).all())


def is_wide() -> bool:
    """Whether what is between the products of int8 is in float32: without VNNI and AMX, oneDNN's bfloat16 is
    hundreds of times slower."""
    return find_largest_weight() < WHOLE


def find_obstacle(largest: int = NARROW) -> str | None:
    """Why products in int8 are wrong or slow here; None if they are neither.

    Args:
        largest: integer of the weights.
    """
    most = find_largest_weight()
    if most < largest:
        return "a processor with VNNI or AMX" if most else "an x86 processor with AVX2, VNNI or AMX"
    return None if importlib.util.find_spec("numba") else "numba"
