"""bfloat16 on a CPU: loops (bfloat16_loops.py) in place of several operations of ATen."""

import importlib.util
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from brimful.nn.workers import run_loops, workers


@cache
def _has_numba() -> bool:
    """The training core also runs where numba is not installed."""
    return importlib.util.find_spec("numba") is not None


def applies(x: Tensor) -> bool:
    """Whether the functions of this module take the tensor, which must have memory: traced ones have none.

    Inductor has loops of its own.
    """
    is_bfloat16 = x.dtype == torch.bfloat16 and x.device.type == "cpu"
    has_memory = type(x) in (Tensor, torch.nn.Parameter) and not torch.compiler.is_compiling()
    return is_bfloat16 and has_memory and _has_numba()


def numbers(tensor: Tensor) -> np.ndarray[Any, np.dtype[np.int16]]:
    """The memory of a bfloat16 tensor on the CPU, as int16."""
    return tensor.detach().view(torch.int16).numpy()


def score_gradients(
    scores: Tensor, labels: Tensor, scales: Tensor, sums: Tensor | None, *, write: bool
) -> tuple[Tensor, Tensor]:
    """Cross-entropy of each row, and 1 if the label has the highest score, else 0: both float32 (rows,).

    Args:
        scores: (rows, columns), contiguous; if `write`, replaced by the gradients of the losses.
        labels: int64 (rows,), each a column.
        scales: float32 (rows,), what the gradients of each row are multiplied by.
        sums: float32 (columns,), to which the gradients of each column are added; None: not needed.
    """
    from brimful.nn.bfloat16_loops import score_gradients

    losses, hits = scales.new_empty(2, len(scores))
    parts = _parts(scores, labels, scales, losses, hits)
    own_sums = scales.new_zeros(len(parts), scores.shape[1])
    items = zip(parts, own_sums.numpy(), strict=True)
    run_loops(score_gradients, [(*part, own, write) for part, own in items])
    if write and sums is not None:
        sums += own_sums.sum(0)
    return losses, hits


def rotate(qkv: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """Rotate each pair (x[i], x[i + head_dim / 2]) of queries and keys where it lies.

    Args:
        qkv: (T, 3, heads, head_dim), changed and returned.
        cosine, sine: float32 (T, head_dim / 2).
    """
    from brimful.nn.bfloat16_loops import rotate_rows

    run_loops(rotate_rows, _parts(qkv, cosine, sine))
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
        run_loops(gate_rows, _parts(up, out))
        return out

    @staticmethod
    def backward(ctx: Any, gradients: Tensor) -> Tensor:
        from brimful.nn.bfloat16_loops import gate_gradients

        (up,) = ctx.saved_tensors
        d_up = torch.empty_like(up)
        run_loops(gate_gradients, _parts(up, gradients.contiguous(), d_up))
        return d_up


def _parts(*tensors: Tensor) -> list[tuple[np.ndarray, ...]]:
    """The memory of tensors with the same number of rows, which the workers share."""
    rows = max(1, -(-len(tensors[0]) // workers()))
    split = zip(*(tensor.split(rows) for tensor in tensors), strict=True)
    return [tuple(map(_memory, part)) for part in split]


def _memory(tensor: Tensor) -> np.ndarray:
    return numbers(tensor) if tensor.dtype == torch.bfloat16 else tensor.numpy()
