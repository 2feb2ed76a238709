"""bfloat16 on a CPU: loops (bfloat16_loops.py) in place of several operations of ATen."""

import importlib.util
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from brimful.nn.workers import run, workers


@cache
def _has_numba() -> bool:
    """The training core also runs where numba is not installed."""
    return importlib.util.find_spec("numba") is not None


def applies(x: Tensor) -> bool:
    """Whether the functions of this module take the tensor. Inductor has loops of its own."""
    is_bfloat16 = x.dtype == torch.bfloat16 and x.device.type == "cpu"
    return is_bfloat16 and not torch.compiler.is_compiling() and _has_numba()


def numbers(tensor: Tensor) -> np.ndarray[Any, np.dtype[np.int16]]:
    """The memory of a bfloat16 tensor on the CPU, as int16."""
    return tensor.detach().view(torch.int16).numpy()


def exp_rows(scores: Tensor, tops: Tensor, sums: Tensor) -> None:
    """Replace scores (rows, columns) by exp(score - highest of its row).

    Args:
        tops, sums: float32 (rows,), written: the highest score, and the sum of the results before rounding.
    """
    from brimful.nn.bfloat16_loops import exp_rows

    exp_rows(numbers(scores), tops.numpy(), sums.numpy())


def scale_rows(scores: Tensor, factors: Tensor, places: Tensor, values: Tensor, sums: Tensor) -> None:
    """Multiply rows of scores (rows, columns) by their factors, replace one number of each, and add all rows.

    Args:
        factors, values: float32 (rows,), the factor, and the number that replaces another.
        places: int64 (rows,), the column of the number that is replaced; outside of the columns: none.
        sums: float32 (columns,), to which the rounded results of each column are added.
    """
    from brimful.nn.bfloat16_loops import scale_rows

    scale_rows(numbers(scores), factors.numpy(), places.numpy(), values.numpy(), sums.numpy())


def rotate(qkv: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """Rotate each pair (x[i], x[i + head_dim / 2]) of queries and keys where it lies.

    Args:
        qkv: (T, 3, heads, head_dim), changed and returned.
        cosine, sine: float32 (T, head_dim / 2).
    """
    from brimful.nn.bfloat16_loops import rotate_rows

    rows = max(1, -(-len(qkv) // workers()))
    parts = zip(qkv.split(rows), cosine.split(rows), sine.split(rows), strict=True)
    run(lambda x, c, s: rotate_rows(numbers(x), c.numpy(), s.numpy()), parts, device=qkv.device)
    return qkv


def gate(up: Tensor) -> Tensor:
    """GeLU of the first half of each row times its second half: (T, 2 * inner) -> (T, inner)."""
    return _Gate.apply(up)


class _Gate(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, up: Tensor) -> Tensor:
        from brimful.nn.bfloat16_loops import gate_rows

        ctx.save_for_backward(up)
        out = up.new_empty(len(up), up.shape[1] // 2)
        _by_rows(gate_rows, up, out)
        return out

    @staticmethod
    def backward(ctx: Any, gradients: Tensor) -> Tensor:
        from brimful.nn.bfloat16_loops import gate_gradients

        (up,) = ctx.saved_tensors
        d_up = torch.empty_like(up)
        _by_rows(gate_gradients, up, gradients.contiguous(), d_up)
        return d_up


def _by_rows(loop: Any, *tensors: Tensor) -> None:
    """Call a loop with the memory of bfloat16 tensors, their rows shared among the workers."""
    rows = max(1, -(-len(tensors[0]) // workers()))
    parts = zip(*(tensor.split(rows) for tensor in tensors), strict=True)
    run(lambda *part: loop(*map(numbers, part)), parts, device=tensors[0].device)
