"""Which number format a step computes in. Weights, gradients and optimizer states stay float32."""

from contextlib import AbstractContextManager, nullcontext
from typing import Literal

import torch
from torch import Tensor

from brimful.errors import BrimfulError

Precision = Literal["auto", "fp32", "bf16"]


def has_fast_bf16(device: torch.device) -> bool:
    """Whether bfloat16 products are faster than float32 ones: Ampere and later, AVX-512-BF16 and AMX."""
    if device.type == "cuda":
        return torch.cuda.get_device_capability(device) >= (8, 0)
    if device.type != "cpu" or not hasattr(torch.cpu, "get_capabilities"):
        return False
    return bool(torch.cpu.get_capabilities().get("avx512_bf16"))


def resolve(precision: Precision, device: torch.device) -> Precision:
    """`auto` as what this device does fastest without loss scaling.

    Raises:
        BrimfulError: bf16 was asked for on a GPU that has none.
    """
    if precision == "auto":
        return "bf16" if has_fast_bf16(device) else "fp32"
    if precision == "bf16" and device.type == "cuda" and not has_fast_bf16(device):
        raise BrimfulError("this GPU has no bfloat16; use --precision fp32")
    return precision


def widen(tensor: Tensor) -> Tensor:
    """The tensor in float32 at least: what losses are summed in."""
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))


def autocast(precision: Precision, device: torch.device) -> AbstractContextManager:
    """The context in which a step's forward pass runs. `precision` must be resolved."""
    if precision == "bf16":
        return torch.autocast(device.type, dtype=torch.bfloat16)
    return nullcontext()
