"""Rotary positions whose backward pass keeps the angles alone (plain: `model.layer.rotate`).

The values are copied, since a view would keep all of `qkv` in memory. In bfloat16 on a CPU a loop rotates.
Compiled, forward and backward are one kernel each.
"""

from typing import Any

import torch
from torch import Tensor

from brimful.kernels import bfloat16
from brimful.model.layer import rotate_pairs


def rotate(qkv: Tensor, cosine: Tensor, sine: Tensor) -> tuple[Tensor, ...]:
    """As the plain form."""
    return _Rotate.apply(qkv, cosine, sine)


class _Rotate(torch.autograd.Function):
    """`rotate`. Its backward pass rotates by the negative angle."""

    @staticmethod
    def forward(ctx: Any, qkv: Tensor, cosine: Tensor, sine: Tensor) -> tuple[Tensor, ...]:
        ctx.save_for_backward(cosine, sine)
        q, k, v = qkv.unbind(1)
        return _rotated(q, k, v, cosine, sine).unbind(1)

    @staticmethod
    def backward(ctx: Any, d_q: Tensor, d_k: Tensor, d_v: Tensor) -> tuple[Tensor, None, None]:
        return gradients(d_q, d_k, d_v, *ctx.saved_tensors), None, None


def gradients(d_q: Tensor, d_k: Tensor, d_v: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """The gradient by `qkv`, (T, 3, heads, head_dim), from those by what `rotate` gave."""
    if not torch.compiler.is_compiling():
        return _rotated(d_q, d_k, d_v, cosine, -sine)
    # Inductor makes two kernels of that one, and one of this; eagerly this one takes four times as long.
    x = torch.stack((d_q, d_k, d_v), 1).unflatten(-1, (2, -1))
    cosine, sine = cosine[:, None, :, None], sine[:, None, :, None]
    is_first = torch.arange(2, device=x.device)[:, None] == 0
    turns = torch.arange(3, device=x.device)[:, None, None, None] < 2
    other = x.flip(-2)
    turned = x * cosine + torch.where(is_first, other, -other) * sine
    return torch.where(turns, turned, x).to(d_q.dtype).flatten(-2)


def _rotated(q: Tensor, k: Tensor, v: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """q and k rotated, and v: each (T, heads, head_dim) -> (T, 3, heads, head_dim)."""
    if bfloat16.applies(q):
        return bfloat16.rotate(torch.stack((q, k, v), dim=1), cosine[:, 0], sine[:, 0])

    return torch.stack((rotate_pairs(q, cosine, sine), rotate_pairs(k, cosine, sine), v), dim=1)
