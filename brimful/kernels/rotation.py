"""Rotary positions whose backward pass keeps only the angles (plain: `model.layer.rotate`).

A rotation's gradient is the rotation by the negative angle (Su et al. 2021, "RoFormer", section 3.2), so it
needs no queries or keys. The values are copied, since a view would keep all of `qkv` in memory. In bfloat16
on a CPU, a loop rotates queries and keys. In a compiled step, forward and backward are one kernel each.
"""

import torch
from torch import Tensor

from brimful.kernels import bfloat16
from brimful.model.layer import rotate_pairs


def rotate(qkv: Tensor, cosine: Tensor, sine: Tensor) -> tuple[Tensor, ...]:
    """Compute `model.layer.rotate` on any device."""
    return _Rotate.apply(qkv, cosine, sine)


def rotate_compiled(qkv: Tensor, cosine: Tensor, sine: Tensor) -> tuple[Tensor, ...]:
    """Compute `model.layer.rotate` in a compiled step on a GPU: in place, so that values are not moved."""
    return _RotateInPlace.apply(qkv, cosine, sine)


class _Rotate(torch.autograd.Function):
    @staticmethod
    def forward(ctx, qkv: Tensor, cosine: Tensor, sine: Tensor) -> tuple[Tensor, ...]:
        ctx.save_for_backward(cosine, sine)
        q, k, v = qkv.unbind(1)
        return _stack_rotated(q, k, v, cosine, sine).unbind(1)

    @staticmethod
    def backward(ctx, d_q: Tensor, d_k: Tensor, d_v: Tensor) -> tuple[Tensor, None, None]:
        cosine, sine = ctx.saved_tensors
        if not torch.compiler.is_compiling():
            return _stack_rotated(d_q, d_k, d_v, cosine, -sine), None, None
        # Inductor makes two kernels of the form above, and one of this form. Eagerly, this form takes
        # four times as long.
        x = torch.stack((d_q, d_k, d_v), 1).unflatten(-1, (2, -1))  # (T, 3, heads, 2, head_dim / 2)
        cosine, sine = cosine[:, None, :, None], sine[:, None, :, None]  # (T, 1, 1, 1, head_dim / 2)
        is_first = torch.arange(2, device=x.device)[:, None] == 0
        is_rotated = torch.arange(3, device=x.device)[:, None, None, None] < 2  # queries and keys
        other = x.flip(-2)  # each number's partner in its pair
        turned = x * cosine + torch.where(is_first, other, -other) * sine
        d_qkv = torch.where(is_rotated, turned, x).to(d_q.dtype)
        return d_qkv.flatten(-2), None, None


class _RotateInPlace(_Rotate):
    @staticmethod
    def forward(ctx, qkv: Tensor, cosine: Tensor, sine: Tensor) -> tuple[Tensor, ...]:
        ctx.save_for_backward(cosine, sine)
        qkv = qkv.clone()  # autograd wants it; Inductor leaves it out
        _rotate_in_place(qkv, cosine, sine)
        return qkv.unbind(1)


def _stack_rotated(q: Tensor, k: Tensor, v: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """Rotate q and k and stack them with v: each (T, heads, head_dim) -> (T, 3, heads, head_dim)."""
    if bfloat16.applies(q):
        return bfloat16.rotate(torch.stack((q, k, v), dim=1), cosine[:, 0], sine[:, 0])
    return torch.stack((rotate_pairs(q, cosine, sine), rotate_pairs(k, cosine, sine), v), dim=1)


@torch.library.custom_op("brimful::rotate_in_place", mutates_args={"qkv"})
def _rotate_in_place(qkv: Tensor, cosine: Tensor, sine: Tensor) -> None:
    """Rotate queries and keys of contiguous qkv (T, 3, heads, head_dim) by angles (T, 1, head_dim / 2)."""
    queries_and_keys = qkv[:, :2]
    if qkv.is_cuda:
        from brimful.kernels import rotary_kernel  # needs Triton

        rotary_kernel.rotate(queries_and_keys, cosine, sine)
    else:  # for tests
        queries_and_keys.copy_(rotate_pairs(queries_and_keys, cosine[:, None], sine[:, None]))


@_rotate_in_place.register_fake
def _(qkv: Tensor, cosine: Tensor, sine: Tensor) -> None:
    pass
