"""Attention of many short sequences on a CPU in bfloat16: one matrix product for all heads of a group.

A product for the heads of one sequence of 100 tokens takes 10 microseconds; its call takes 20 more. So the
heads of all sequences are copied into groups of matrices of the same length, a multiple of `STEP`. Each
product is one call for a group, and compiled loops (bfloat16_loops.py) do the rest.

A matrix has the same result in any group, to the last bit: oneDNN computes each by itself, in an order that
depends on its shape (checked with AMX, avx512_bf16, avx512 and avx2). Backward has the scores transposed,
keys by queries. So the loops run over vectors of queries, and two of the three products that follow read the
scores without transposing them.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from brimful.base.cpu_threads import count_workers
from brimful.kernels.bfloat16 import Int16Array, as_int16

STEP = 32
"""Numbers that a matrix unit takes at a time: lengths of matrices are a multiple of it."""

GROUP_BYTES = 4 << 20
"""Bytes of the matrices of a group in backward."""

MIN_MATRICES = 16
"""Matrices below which a group is not divided among threads, since each product costs a call."""

MATRICES_STEP = 4
"""A product has a multiple of this number of matrices, the last of which may be empty. oneDNN compiles for
each new number, which takes longer than the product."""

Places = np.ndarray[Any, np.dtype[np.int64]]
"""(matrices, 3): the first token, length and head of each matrix in a packed tensor."""


class TensorRows(NamedTuple):
    """The memory of a packed tensor (T, heads, head_dim), bfloat16 as int16."""

    memory: Int16Array
    token_stride: int
    head_stride: int

    @classmethod
    def of(cls, tensor: Tensor) -> "TensorRows":
        """Return the memory of a tensor that is not empty; of a copy, where heads are not contiguous."""
        if tensor.stride(-1) != 1:
            tensor = tensor.contiguous()
        last = 0  # the offset of the last number
        for size, stride in zip(tensor.shape, tensor.stride(), strict=True):
            last += (size - 1) * stride
        return cls(as_int16(tensor.as_strided((last + 1,), (1,))), tensor.stride(0), tensor.stride(1))


def _as_bfloat16(array: np.ndarray) -> Tensor:
    return torch.from_numpy(array).view(torch.bfloat16)


def make_groups(
    sequences: Iterable[tuple[int, int]], heads: int, head_dim: int
) -> list[tuple[int, int, Places]]:
    """Return padded length, width of heads, and places of each group, for sequences (first token, length).

    The largest group comes first, so that no worker has one left while the others wait.
    """
    by_length: dict[int, list[tuple[int, int]]] = {}
    for start, length in sequences:
        padded_length = -(-length // STEP) * STEP
        by_length.setdefault(padded_length, []).append((start, length))
    groups = []
    for length, members in by_length.items():
        places = np.empty((len(members), heads, 3), np.int64)
        places[..., :2] = np.array(members)[:, None]
        places[..., 2] = np.arange(heads)
        count = len(members) * heads
        bytes_each = 2 * length * (2 * length + 4 * head_dim)  # two matrices of scores and four of rows
        min_groups = -(-count // max(1, GROUP_BYTES // bytes_each))
        fair_groups = -(-min_groups // count_workers()) * count_workers()  # the same number for each worker
        matrices_each = -(-count // max(min_groups, min(fair_groups, count // MIN_MATRICES)))
        matrices_each = _round_up(matrices_each)
        for part in np.split(places.reshape(-1, 3), range(matrices_each, count, matrices_each)):
            groups.append((length, head_dim, part))
    return sorted(groups, key=lambda group: -(group[0] ** 2) * len(group[2]))


def _round_up(count: int) -> int:
    return -(-count // MATRICES_STEP) * MATRICES_STEP


def forward(
    width: int,
    head_dim: int,
    places: Places,
    scale: float,
    inputs: tuple[TensorRows, TensorRows, TensorRows],
    out: TensorRows,
    normalizer: np.ndarray,
) -> None:
    """Compute a group's attention.

    Args:
        width, head_dim, places: a group of `make_groups`; `width` is the padded length.
        scale: factor of the scores, above 0.
        inputs: q, k, v.
        out: the output, of which the group's part is written.
        normalizer: float32 (heads, T), the logarithms of the softmax's normalizers, written in the same way.
    """
    from brimful.kernels.bfloat16_loops import copy, softmax

    count = _round_up(len(places))  # empty matrices at the end stay 0
    matrices = np.empty((3, count, width, head_dim), np.int16)
    scores = np.empty((count, width, width), np.int16)
    copy(inputs, places, matrices, True)
    matrices[:, len(places) :] = 0
    q, k, v = _as_bfloat16(matrices)  # (count, width, head_dim) each
    p = _as_bfloat16(scores)  # (count, width, width)
    torch.bmm(q, k.transpose(1, 2), out=p)
    softmax(scores, places, np.float32(scale), normalizer)  # in the memory of p
    torch.bmm(p, v, out=q)  # q has been read
    copy((out,), places, matrices[:1], False)


def backward(
    width: int,
    head_dim: int,
    places: Places,
    scale: float,
    inputs: tuple[TensorRows, TensorRows, TensorRows, TensorRows],
    normalizer: np.ndarray,
    gradients: tuple[TensorRows, TensorRows, TensorRows],
) -> None:
    """Compute a group's gradients: `inputs` are k, q, v and the output's gradient, `gradients` of q, v, k."""
    from brimful.kernels.bfloat16_loops import copy, softmax_backward

    count = _round_up(len(places))
    matrices = np.empty((4, count, width, head_dim), np.int16)
    scores, d_scores = np.empty((2, count, width, width), np.int16)
    copy(inputs, places, matrices, True)
    matrices[:, len(places) :] = 0
    (k, q, v, d_out), p, d_p = _as_bfloat16(matrices), _as_bfloat16(scores), _as_bfloat16(d_scores)
    torch.bmm(k, q.transpose(1, 2), out=p)  # scores again: (count, keys, queries)
    torch.bmm(v, d_out.transpose(1, 2), out=d_p)
    softmax_backward(scores, d_scores, places, np.float32(scale), normalizer)
    # Each product overwrites a matrix that no later one reads: matrices then hold k, d_q, d_v, d_k.
    torch.bmm(p, d_out, out=v)
    torch.bmm(d_p, q, out=d_out)
    torch.bmm(d_p.transpose(1, 2), k, out=q)
    copy(gradients, places, matrices[1:], False)
