"""Rotary positions whose backward pass keeps the angles alone (plain: `model.rotary.rotate`).

The values are copied, since a view would keep all of `qkv` in memory; in a compiled step on a GPU, `qkv` is
rotated where it lies instead. In bfloat16 on a CPU a loop rotates. Compiled, forward and backward are one
kernel each.
"""

from typing import Any

import torch
from torch import Tensor

from brimful.kernels import bfloat16, fused
from brimful.model.rotary import rotated


def rotate(qkv: Tensor, cosine: Tensor, sine: Tensor) -> tuple[Tensor, ...]:
    """As the plain form."""
    return _Rotate.apply(qkv, cosine, sine, fused.applies(qkv))


class _Rotate(torch.autograd.Function):
    """`rotate`. Its backward pass rotates by the negative angle."""

    @staticmethod
    def forward(ctx: Any, qkv: Tensor, cosine: Tensor, sine: Tensor, in_place: bool) -> tuple[Tensor, ...]:
        ctx.save_for_backward(cosine, sine)
        if in_place:
            qkv = qkv.clone()  # Inductor leaves it out
            fused.rotate_in_place(qkv, cosine, sine)
            return qkv.unbind(1)
        q, k, v = qkv.unbind(1)
        return _rotated(q, k, v, cosine, sine).unbind(1)

    @staticmethod
    def backward(ctx: Any, d_q: Tensor, d_k: Tensor, d_v: Tensor) -> tuple[Tensor, None, None, None]:
        cosine, sine = ctx.saved_tensors
        if not torch.compiler.is_compiling():
            return _rotated(d_q, d_k, d_v, cosine, -sine), None, None, None
        # Inductor makes two kernels of that one, and one of this; eagerly this one takes four times as long.
        x = torch.stack((d_q, d_k, d_v), 1).unflatten(-1, (2, -1))
        cosine, sine = cosine[:, None, :, None], sine[:, None, :, None]
        is_first = torch.arange(2, device=x.device)[:, None] == 0
        turns = torch.arange(3, device=x.device)[:, None, None, None] < 2
        other = x.flip(-2)
        turned = x * cosine + torch.where(is_first, other, -other) * sine
        return torch.where(turns, turned, x).to(d_q.dtype).flatten(-2), None, None, None


def _rotated(q: Tensor, k: Tensor, v: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """q and k rotated, and v: each (T, heads, head_dim) -> (T, 3, heads, head_dim)."""
    if bfloat16.applies(q):
        return bfloat16.rotate(torch.stack((q, k, v), dim=1), cosine[:, 0], sine[:, 0])

    return torch.stack((rotated(q, cosine, sine), rotated(k, cosine, sine), v), dim=1)
