"""Rounding of inputs and weights for int8 inference, and whether a processor sums their products exactly."""

import importlib.util
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

INSTRUCTIONS = ("amx_int8", "avx512_vnni", "avx_vnni")
"""Instructions of x86 that sum four 8-bit products in 32 bits. Older ones sum two in 16 bits and saturate."""
WHOLE, NARROW = 127, 64
"""The largest integer of 8-bit weights, and of 7-bit weights: twice 255 * 64 is below 2 ** 15."""


@dataclass(frozen=True, eq=False)
class Steps:
    """The rounding of a product's inputs to integers from 0 to 255: round(x / factors / size) + zero.

    Attributes:
        size: the size of a step, above 0.
        zero: the integer that stands for 0.
        factors: the factor of each channel, float32 (in,), above 0; None: all are 1.
        largest: the largest integer of the weights.
    """

    size: float
    zero: int
    factors: Tensor | None = None
    largest: int = WHOLE


def round_weights(weight: Tensor, steps: Steps) -> tuple[Tensor, Tensor]:
    """Return weight * factors, float32 (out, in), rounded to int8, and the step of each output, (out,)."""
    if steps.factors is not None:
        weight = weight * steps.factors
    # An output whose weights are all 0 gets the smallest step rather than a division by 0.
    sizes = weight.abs().amax(1).clamp_min(torch.finfo(torch.float32).tiny) / steps.largest
    return (weight / sizes[:, None]).round().to(torch.int8), sizes


def find_largest_weight() -> int:
    """Return the largest integer of weights whose products this processor sums exactly.

    It is `WHOLE` with VNNI or AMX, `NARROW` without them, and 0 if the processor sums neither exactly.
    """
    if not hasattr(torch.ops.onednn, "qlinear_pointwise") or not hasattr(torch.cpu, "get_capabilities"):
        return 0
    capabilities = torch.cpu.get_capabilities()
    if any(capabilities.get(name) for name in INSTRUCTIONS) and _sums_exactly(WHOLE):
        return WHOLE
    return NARROW if capabilities.get("avx2") and _sums_exactly(NARROW) else 0


@cache
def _sums_exactly(largest: int) -> bool:
    """Whether a product of the largest inputs and weights is exact.

    The processor's name does not decide it, since a user can tell oneDNN to leave instructions out.
    """
    rows, width = 32, 64
    packed = torch.ops.onednn.qlinear_prepack(torch.full((width, width), largest, dtype=torch.int8), None)
    weights = packed, torch.ones(width), torch.zeros(width, dtype=torch.int64), None
    x = torch.full((rows, width), 255, dtype=torch.uint8)
    outputs = 1.0, 0, torch.float32, "none"
    sums = torch.ops.onednn.qlinear_pointwise(x, 1.0, 0, *weights, *outputs, [], "none")
    return bool((sums == 255 * largest * width).all())


def is_wide() -> bool:
    """Whether numbers between int8 products are float32.

    They are float32 without VNNI and AMX, where oneDNN's bfloat16 is hundreds of times slower.
    """
    return find_largest_weight() < WHOLE


def find_obstacle(largest: int = NARROW) -> str | None:
    """Return what is missing for exact and fast products of weights up to `largest`, or None."""
    largest_here = find_largest_weight()
    if largest_here < largest:
        return "a processor with VNNI or AMX" if largest_here else "an x86 processor with AVX2, VNNI or AMX"
    return None if importlib.util.find_spec("numba") else "numba"
