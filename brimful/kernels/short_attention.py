"""Attention of many short sequences on a CPU in bfloat16: one product for the heads of a group of them.

A product for the heads of one sequence of 100 tokens takes 10 microseconds; its call takes 20 more. So the
heads of all sequences are copied into groups of matrices of the same length, a multiple of `STEP`. Each
product is one call for a group, and compiled loops (bfloat16_loops.py) do the rest.

A matrix has the same result in any group, to the last bit: oneDNN computes each alone, in an order that
depends on its shape (checked with AMX, avx512_bf16, avx512 and avx2). Backward has the scores transposed,
keys by queries. So all that belongs to a query is a vector of the loops, and two of the three products that
follow read the scores as they lie.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from brimful.base.cpu_threads import count_workers
from brimful.kernels.bfloat16 import numbers

STEP = 32
"""Matrix units take 32 numbers at a time."""

GROUP = 4 << 20
"""Bytes of the matrices of a group in backward."""

MIN_MATRICES = 16
"""Matrices below which a group is not divided among threads: each product has a call."""

TOGETHER = 4
"""Products have a multiple of this number of matrices, the last of which may be no sequence's: for each new
number oneDNN compiles, which takes longer than the product."""

Places = np.ndarray[Any, np.dtype[np.int64]]
"""(matrices, 3): first token, length and head of the rows that a matrix has of a packed tensor."""


class TensorRows(NamedTuple):
    """The memory of a packed tensor (T, heads, head_dim), bfloat16 as int16."""

    memory: np.ndarray[Any, np.dtype[np.int16]]
    token_stride: int
    head_stride: int

    @classmethod
    def of(cls, tensor: Tensor) -> "TensorRows":
        """Of a tensor that is not empty; of a copy, if its last dimension is not contiguous."""
        tensor = tensor if tensor.stride(-1) == 1 else tensor.contiguous()
        last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
        return cls(numbers(tensor.as_strided((last + 1,), (1,))), tensor.stride(0), tensor.stride(1))


def _tensor(array: np.ndarray) -> Tensor:
    return torch.from_numpy(array).view(torch.bfloat16)


def groups(sequences: Iterable[tuple[int, int]], heads: int, head_dim: int) -> list[tuple[int, int, Places]]:
    """Padded length, width of heads, and places of the matrices of each group, the largest first.

    Args:
        sequences: first token and length of each.
    """
    found = []
    padded: dict[int, list[tuple[int, int]]] = {}
    for start, length in sequences:
        padded.setdefault(-(-length // STEP) * STEP, []).append((start, length))
    for width, same in padded.items():
        places = np.empty((len(same), heads, 3), np.int64)
        places[..., :2] = np.array(same)[:, None]
        places[..., 2] = np.arange(heads)
        count = len(same) * heads
        needed = -(-count // max(1, GROUP // (2 * width * (2 * width + 4 * head_dim))))
        fair = -(-needed // count_workers()) * count_workers()
        each = _rounded(-(-count // max(needed, min(fair, count // MIN_MATRICES))))
        found += [
            (width, head_dim, places.reshape(-1, 3)[first : first + each]) for first in range(0, count, each)
        ]
    return sorted(found, key=lambda group: -(group[0] ** 2) * len(group[2]))


def _rounded(count: int) -> int:
    return -(-count // TOGETHER) * TOGETHER


def forward(
    width: int,
    head_dim: int,
    places: Places,
    scale: float,
    inputs: tuple[TensorRows, TensorRows, TensorRows],
    out: TensorRows,
    normalizer: np.ndarray,
) -> None:
    """Write a group's part of the output, and of the logarithms of the softmax's normalizers.

    Args:
        scale: factor of the scores, above 0.
        inputs: q, k, v.
        normalizer: float32 (heads, T), written.
    """
    from brimful.kernels.bfloat16_loops import copy, softmax

    count = _rounded(len(places))
    matrices = np.empty((3, count, width, head_dim), np.int16)
    scores = np.empty((count, width, width), np.int16)
    copy(inputs, places, matrices, True)
    matrices[:, len(places) :] = 0
    (q, k, v), s = _tensor(matrices), _tensor(scores)
    torch.bmm(q, k.transpose(1, 2), out=s)
    softmax(scores, places, np.float32(scale), normalizer)
    torch.bmm(s, v, out=q)
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
    """Write a group's part of the gradients.

    Args:
        inputs: k, q, v, and the gradient of the output.
        gradients: of q, v and k.
    """
    from brimful.kernels.bfloat16_loops import copy, softmax_backward

    count = _rounded(len(places))
    matrices = np.empty((4, count, width, head_dim), np.int16)
    scores, d_scores = np.empty((2, count, width, width), np.int16)
    copy(inputs, places, matrices, True)
    matrices[:, len(places) :] = 0
    (k, q, v, d_out), p, d_p = _tensor(matrices), _tensor(scores), _tensor(d_scores)
    torch.bmm(k, q.transpose(1, 2), out=p)
    torch.bmm(v, d_out.transpose(1, 2), out=d_p)
    softmax_backward(scores, d_scores, places, np.float32(scale), normalizer)
    # Each product takes the place of a matrix that no later one reads.
    torch.bmm(p, d_out, out=v)
    torch.bmm(d_p, q, out=d_out)
    torch.bmm(d_p.transpose(1, 2), k, out=q)
    copy(gradients, places, matrices[1:], False)
