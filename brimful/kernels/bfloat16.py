"""bfloat16 on a CPU: loops (bfloat16_loops.py) in place of several operations of ATen."""

import importlib.util
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from brimful.base.cpu_threads import count_workers, run_loops

ALONE = 1 << 15
"""Numbers that one worker is done with before another one has been woken."""


@cache
def has_numba() -> bool:
    """The training core also runs where numba is not installed."""
    return importlib.util.find_spec("numba") is not None


@cache
def _loops() -> Any:
    from brimful.kernels import bfloat16_loops  # needs numba

    return bfloat16_loops


def applies(x: Tensor) -> bool:
    """Whether the functions of this module take the tensor."""
    return x.dtype == torch.bfloat16 and _has_memory(x)


def autocasts(x: Tensor) -> bool:
    """Whether `applies` holds for what autocast makes of this float32 tensor."""
    casts = torch.is_autocast_enabled("cpu") and torch.get_autocast_dtype("cpu") == torch.bfloat16
    return x.dtype == torch.float32 and casts and _has_memory(x)


def _has_memory(x: Tensor) -> bool:
    """Whether loops can read the tensor: traced ones have no memory, and Inductor has loops of its own."""
    is_real = type(x) in (Tensor, torch.nn.Parameter) and not torch.compiler.is_compiling()
    return is_real and x.device.type == "cpu" and has_numba()


def numbers(tensor: Tensor) -> np.ndarray[Any, np.dtype[np.int16]]:
    """The memory of a bfloat16 tensor on the CPU, as int16."""
    return tensor.detach().view(torch.int16).numpy()


def rotate(qkv: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """Rotate each pair (x[i], x[i + head_dim / 2]) of queries and keys where it lies.

    Args:
        qkv: bfloat16 or float32 (T, 3, heads, head_dim), changed and returned.
        cosine, sine: float32 (T, head_dim / 2).
    """
    loop = _loops().rotate_rows if qkv.dtype == torch.bfloat16 else _loops().rotate_wide_rows
    run_loops(loop, divided(qkv, cosine, sine))
    return qkv


def gate(up: Tensor) -> Tensor:
    """GeLU of the first half of each row times its second half: (T, 2 * inner) -> (T, inner)."""
    return _Gate.apply(up)


class _Gate(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, up: Tensor) -> Tensor:
        ctx.save_for_backward(up)
        out = up.new_empty(len(up), up.shape[1] // 2)
        run_loops(_loops().gate_rows, divided(up, out))
        return out

    @staticmethod
    def backward(ctx: Any, gradients: Tensor) -> Tensor:
        (up,) = ctx.saved_tensors
        return gate_gradients(up, gradients.contiguous())[0]


def gate_gradients(up: Tensor, gradients: Tensor) -> tuple[Tensor, Tensor]:
    """The gradients of `gate` by its input, and its output again.

    Args:
        up: (T, 2 * inner).
        gradients: (T, inner), by the output.
    """
    d_up, out = torch.empty_like(up), torch.empty_like(gradients)
    run_loops(_loops().gate_gradients, divided(up, gradients, d_up, out))
    return d_up, out


def normalize(x: Tensor, weight: Tensor, bias: Tensor | None, eps: float) -> tuple[Tensor, Tensor]:
    """LayerNorm.

    Args:
        x: float32 (T, hidden).
        weight, bias: float32 (hidden,).

    Returns:
        bfloat16 (T, hidden); and float32 (T, 2), mean and factor of each row, for `norm_gradients`.
    """
    y, statistics = torch.empty_like(x, dtype=torch.bfloat16), x.new_empty(len(x), 2)
    given = _weights(weight, bias, eps)
    run_loops(_loops().norm_rows, [(*part, *given) for part in divided(x, y, statistics)])
    return y, statistics


def add_and_normalize(
    x: Tensor, added: Tensor, weight: Tensor, bias: Tensor | None, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """x + added, float32 (T, hidden), and `normalize` of it.

    Args:
        added: bfloat16 (T, hidden).
    """
    total, y, statistics = torch.empty_like(x), torch.empty_like(added), x.new_empty(len(x), 2)
    given = _weights(weight, bias, eps)
    parts = divided(x, added, total, y, statistics)
    run_loops(_loops().add_and_norm_rows, [(*part, *given) for part in parts])
    return total, y, statistics


def norm(x: Tensor, layer: nn.LayerNorm) -> Tensor:
    """`normalize` in inference."""
    return normalize(x, layer.weight, layer.bias, layer.eps)[0]


def add_and_norm(x: Tensor, added: Tensor, layer: nn.LayerNorm) -> tuple[Tensor, Tensor]:
    """`add_and_normalize` in inference."""
    return add_and_normalize(x, added, layer.weight, layer.bias, layer.eps)[:2]


def norm_of_sum(x: Tensor, added: Tensor, layer: nn.LayerNorm) -> Tensor:
    """The LayerNorm of x + added, all bfloat16 (T, hidden); the sum is not rounded."""
    y, given = torch.empty_like(added), _weights(layer.weight, layer.bias, layer.eps)
    run_loops(_loops().norm_of_sum_rows, [(*part, *given) for part in divided(x, added, y)])
    return y


def add(x: Tensor, added: Tensor) -> Tensor:
    """x + added, float32, of bfloat16 `added`: ATen's sum of two dtypes takes several times as long."""
    total = torch.empty_like(x)
    run_loops(_loops().add_rows, divided(x, added, total))
    return total


def integers(x: Tensor, factors: np.ndarray, zero: int) -> Tensor:
    """x * factors + zero, rounded, from 0 to 255: uint8 (T, channels).

    Args:
        x: bfloat16 or float32 (T, channels).
        factors: float32 (channels,).
    """
    out = torch.empty(x.shape, dtype=torch.uint8)
    loop = _loops().round_rows if x.dtype == torch.bfloat16 else _loops().round_wide_rows
    run_loops(loop, [(*part, factors, np.float32(zero)) for part in divided(x, out)])
    return out


def _weights(weight: Tensor, bias: Tensor | None, eps: float) -> tuple[np.ndarray, np.ndarray, np.float32]:
    bias = torch.zeros_like(weight) if bias is None else bias
    return weight.detach().numpy(), bias.detach().numpy(), np.float32(eps)


def divided(*tensors: Tensor) -> list[tuple[np.ndarray, ...]]:
    """The memory of tensors with the same number of rows, which the workers share if there is enough."""
    first = tensors[0]
    least = ALONE * len(first) // max(1, first.numel())
    rows = max(1, least, -(-len(first) // count_workers()))
    split = zip(*(tensor.split(rows) for tensor in tensors), strict=True)
    return [tuple(map(_memory, part)) for part in split]


def _memory(tensor: Tensor) -> np.ndarray:
    return numbers(tensor) if tensor.dtype == torch.bfloat16 else tensor.detach().numpy()
