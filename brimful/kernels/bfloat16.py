"""bfloat16 on a CPU: one loop (bfloat16_loops.py) in place of several operations of ATen."""

import importlib.util
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from brimful.base.cpu_threads import count_workers, run_loops

Int16Array = np.ndarray[Any, np.dtype[np.int16]]
MIN_WORKER_NUMBERS = 1 << 15
"""The fewest numbers for a worker: fewer are done before another worker wakes."""


@cache
def has_numba() -> bool:
    """Whether numba is installed; training and inference also run without it."""
    return importlib.util.find_spec("numba") is not None


@cache
def _loops() -> Any:
    from brimful.kernels import bfloat16_loops  # needs numba

    return bfloat16_loops


def applies(x: Tensor) -> bool:
    """Whether the functions of this module can compute with the tensor."""
    return x.dtype == torch.bfloat16 and _has_memory(x)


def autocasts(x: Tensor) -> bool:
    """Whether autocast makes of this float32 tensor one to which `applies` applies."""
    is_autocast = torch.is_autocast_enabled("cpu") and torch.get_autocast_dtype("cpu") == torch.bfloat16
    return x.dtype == torch.float32 and is_autocast and _has_memory(x)


def _has_memory(x: Tensor) -> bool:
    """Whether loops can read the tensor: traced ones have no memory, and Inductor has loops of its own."""
    is_real = type(x) in (Tensor, torch.nn.Parameter) and not torch.compiler.is_compiling()
    return is_real and x.device.type == "cpu" and has_numba()


def as_int16(tensor: Tensor) -> Int16Array:
    """Return the memory of a bfloat16 tensor on the CPU as int16, since numpy has no bfloat16."""
    return tensor.detach().view(torch.int16).numpy()


def split_rows(*tensors: Tensor) -> list[tuple[np.ndarray, ...]]:
    """Return the memory of tensors with the same number of rows, in pieces for the workers."""
    rows, numbers = len(tensors[0]), tensors[0].numel()
    min_rows = MIN_WORKER_NUMBERS * rows // max(1, numbers)
    rows_each = max(1, min_rows, -(-rows // count_workers()))
    pieces = []
    for parts in zip(*(tensor.split(rows_each) for tensor in tensors), strict=True):
        arrays = [as_int16(part) if part.dtype == torch.bfloat16 else part.detach().numpy() for part in parts]
        pieces.append(tuple(arrays))
    return pieces


def _run_rows(loop: Callable[..., None], *tensors: Tensor, constants: tuple = ()) -> None:
    """Run a loop over the rows of tensors: loop(*piece of each tensor, *constants)."""
    run_loops(loop, [(*piece, *constants) for piece in split_rows(*tensors)])


def rotate(qkv: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """Rotate each pair (x[i], x[i + head_dim / 2]) of queries and keys in place.

    Args:
        qkv: bfloat16 or float32 (T, 3, heads, head_dim), changed and returned.
        cosine, sine: float32 (T, head_dim / 2).
    """
    _run_rows(_loops().rotate_rows, qkv, cosine, sine)
    return qkv


def gate(up: Tensor) -> Tensor:
    """Return GeLU of the first half of each row times its second half: (T, 2 * inner) -> (T, inner)."""
    return _Gate.apply(up)


class _Gate(torch.autograd.Function):
    @staticmethod
    def forward(ctx, up: Tensor) -> Tensor:
        ctx.save_for_backward(up)
        out = up.new_empty(len(up), up.shape[1] // 2)
        _run_rows(_loops().gate_rows, up, out)
        return out

    @staticmethod
    def backward(ctx, gradients: Tensor) -> Tensor:
        (up,) = ctx.saved_tensors
        return gate_gradients(up, gradients.contiguous())[0]


def gate_gradients(up: Tensor, gradients: Tensor) -> tuple[Tensor, Tensor]:
    """Return the gradient of `gate` by its input, from the one by its output, and its output again."""
    d_up, out = torch.empty_like(up), torch.empty_like(gradients)
    _run_rows(_loops().gate_gradients, up, gradients, d_up, out)
    return d_up, out


def normalize(x: Tensor, weight: Tensor, bias: Tensor | None, eps: float) -> tuple[Tensor, Tensor]:
    """Return LayerNorm of x, float32 (T, hidden), in bfloat16, and mean and factor of rows, (T, 2)."""
    y, statistics = torch.empty_like(x, dtype=torch.bfloat16), x.new_empty(len(x), 2)
    _run_rows(_loops().norm_rows, x, y, statistics, constants=_norm_constants(weight, bias, eps))
    return y, statistics


def add_and_normalize(
    x: Tensor, added: Tensor, weight: Tensor, bias: Tensor | None, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Return x + added, float32 + bfloat16 (T, hidden), and `normalize` of it."""
    total, y, statistics = torch.empty_like(x), torch.empty_like(added), x.new_empty(len(x), 2)
    constants = _norm_constants(weight, bias, eps)
    _run_rows(_loops().add_and_norm_rows, x, added, total, y, statistics, constants=constants)
    return total, y, statistics


def norm(x: Tensor, layer: nn.LayerNorm) -> Tensor:
    """Return `normalize` without statistics, for inference."""
    return normalize(x, layer.weight, layer.bias, layer.eps)[0]


def add_and_norm(x: Tensor, added: Tensor, layer: nn.LayerNorm) -> tuple[Tensor, Tensor]:
    """Return `add_and_normalize` without statistics, for inference."""
    return add_and_normalize(x, added, layer.weight, layer.bias, layer.eps)[:2]


def norm_of_sum(x: Tensor, added: Tensor, layer: nn.LayerNorm) -> Tensor:
    """Return the LayerNorm of x + added, all bfloat16 (T, hidden); the sum is not rounded."""
    y = torch.empty_like(added)
    constants = _norm_constants(layer.weight, layer.bias, layer.eps)
    _run_rows(_loops().norm_of_sum_rows, x, added, y, constants=constants)
    return y


def add(x: Tensor, added: Tensor) -> Tensor:
    """Return x + added, float32, with bfloat16 `added`."""
    total = torch.empty_like(x)  # ATen's sum of two dtypes takes several times as long as the loop
    _run_rows(_loops().add_rows, x, added, total)
    return total


def round_to_bytes(x: Tensor, factors: np.ndarray, zero: int) -> Tensor:
    """Return x * factors + zero, (T, channels), rounded to uint8; `factors` is float32 (channels,)."""
    out = torch.empty(x.shape, dtype=torch.uint8)
    _run_rows(_loops().round_rows, x, out, constants=(factors, np.float32(zero)))
    return out


def _norm_constants(weight: Tensor, bias: Tensor | None, eps: float) -> tuple:
    if bias is None:
        bias = torch.zeros_like(weight)
    return weight.detach().numpy(), bias.detach().numpy(), np.float32(eps)
