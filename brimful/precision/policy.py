"""The number format of a step's computation. Optimizer states are always float32."""

from contextlib import AbstractContextManager, nullcontext
from typing import TypeVar

import torch
from torch import Tensor

from brimful.base.errors import BrimfulError
from brimful.base.types import InferencePrecision, Precision, Residual

P = TypeVar("P", Precision, InferencePrecision)
DTYPES: dict[str, torch.dtype] = {
    "fp32": torch.float32,
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
    "int8": torch.bfloat16,
}
"""The dtype of activations; with int8, the dtype between products."""
LARGEST = 65504.0
"""The largest finite float16."""
BIN_EDGE = 2.0**13
"""The edge between the two bins of automatic loss scaling."""
THRESHOLD = 1e-7
"""The loss scale is doubled while at most this proportion of gradients is above the edge."""


def has_fast_bf16(device: torch.device) -> bool:
    """Whether bfloat16 products are faster than float32 ones (docs/predict.md).

    They are faster on Ampere and newer GPUs, and on CPUs with AVX-512-BF16 or AMX.
    """
    if device.type == "cuda":
        return torch.cuda.get_device_capability(device) >= (8, 0)
    if device.type != "cpu" or not hasattr(torch.cpu, "get_capabilities"):
        return False
    return torch.cpu.get_capabilities().get("avx512_bf16", False) and has_onednn_bf16()


def has_onednn_bf16() -> bool:
    """Whether oneDNN computes in bfloat16 here: it is there, and may use the instructions that it needs."""
    is_supported = getattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", None)
    return is_supported is not None and is_supported()


def resolve(precision: P, device: torch.device) -> P:
    """Replace `auto` by the format that suits the device.

    It is bfloat16 where its products are fast, float16 on other GPUs with fast float16, else float32.

    Raises:
        BrimfulError: bf16 on a GPU that does not have it.
    """
    if precision == "auto":
        if has_fast_bf16(device):
            return "bf16"
        has_fast_fp16 = device.type == "cuda" and torch.cuda.get_device_capability(device) >= (7, 0)
        return "fp16" if has_fast_fp16 else "fp32"
    if precision == "bf16" and device.type == "cuda" and not has_fast_bf16(device):
        raise BrimfulError("this GPU has no bfloat16; use --precision fp16")
    return precision


def resolve_residual(setting: Residual, precision: Precision, device: torch.device) -> Residual:
    """Return the format of the residual stream in pretraining. `precision` must be resolved."""
    if setting == "auto":
        return "bf16" if precision == "bf16" and device.type == "cuda" else "fp32"
    return setting


def widen(tensor: Tensor) -> Tensor:
    """Return the tensor in float32 or wider, in which losses are summed."""
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))


def autocast(precision: InferencePrecision, device: torch.device) -> AbstractContextManager:
    """Return the context of a forward pass with float32 parameters. `precision` must be resolved."""
    if precision == "fp32":
        return nullcontext()
    return torch.autocast(device.type, dtype=DTYPES[precision])
