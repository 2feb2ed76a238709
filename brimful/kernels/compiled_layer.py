"""The same layer with fewer bytes to move, for a compiled step on a GPU, which the bytes of its elementwise
kernels slow down. Results are those of the plain modules but for rounding.

    product_of_norm    a norm's weight and bias are multiplied into the matrix that follows. What is left of
                       the norm keeps its 16-bit output alone, not its input, and has no gradients of its own
    plus_product       a matrix product adds its result to the residual stream where it lies, so between two
                       products that stream is read once
    rotate_in_place    queries and keys are rotated where they lie, and values are not touched

On a CPU none of them pays.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from brimful.kernels import rotation as plain_rotation
from brimful.model.attention import CaptureFunction, Layout
from brimful.model.layer import Layer, select_rows


def applies(x: Tensor) -> bool:
    """Whether a layer with this input is part of a compiled training step on a GPU."""
    return x.is_cuda and torch.compiler.is_compiling() and torch.is_grad_enabled()


def layer_applies(layer: Layer, x: Tensor, *given: Any) -> bool:
    """Whether `forward` computes this layer: unless norms follow sums."""
    return layer.pre_norm and applies(x)


def forward(
    layer: Layer,
    x: Tensor,
    layout: Layout,
    rotation: tuple[Tensor, Tensor] | None,
    capture: CaptureFunction | None,
    output_slots: Tensor | None,
) -> Tensor:
    """`Layer.forward`."""
    qkv = product_of_norm(x, layer.attention_norm, layer.qkv)
    out = select_rows(layer.attention(qkv, layout, rotation, capture), output_slots)
    x = plus_product(select_rows(x, output_slots), out, layer.attention_out, layer.attention_out_dropout)
    up = product_of_norm(x, layer.mlp_norm, layer.up)
    if not layer.gated:  # the kernel of GeLU's gradient computes GeLU again, which costs nothing
        return x + layer.project_down(up)
    return plus_product(x, layer.activate(up), layer.down, layer.down_dropout)


def product_of_norm(x: Tensor, norm: nn.Module, linear: nn.Linear) -> Tensor:
    """linear(norm(x)).

    With n the standardized x, (n * w + b) W' + c = n (W * w)' + (W b + c).

    Args:
        x: (T, hidden), 16 bits or wider.
        norm: a LayerNorm, or the identity.

    Returns:
        (T, out), in the dtype of autocast, or of the matrix.
    """
    if not isinstance(norm, nn.LayerNorm):
        return linear(norm(x))
    kind = x.device.type
    dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else linear.weight.dtype
    bias: Tensor | None = linear.bias
    if norm.bias is not None:
        shift = (linear.weight * norm.bias).sum(1)  # a sum in float32; autocast would narrow a product
        bias = shift if bias is None else bias + shift
    return F.linear(_Standardized.apply(x, norm.eps, dtype), linear.weight * norm.weight, bias)


class _Standardized(torch.autograd.Function):
    """x (T, hidden) with mean 0 and variance 1 in each row, in another dtype. Backward reads the output."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, eps: float, dtype: torch.dtype) -> Tensor:
        wide = x.to(torch.promote_types(x.dtype, torch.float32))
        variance, mean = torch.var_mean(wide, 1, correction=0, keepdim=True)
        scale = (variance + eps).rsqrt()
        y = (wide - mean) * scale
        if y.dtype != dtype:  # torch 2.11 compiles a wrong gradient of a conversion that changes nothing
            y = y.to(dtype)
        ctx.save_for_backward(y, scale)
        ctx.dtype = x.dtype
        return y

    @staticmethod
    def backward(ctx: Any, d_y: Tensor) -> tuple[Tensor, None, None]:
        y, scale = ctx.saved_tensors
        y, d_y = y.to(scale.dtype), d_y.to(scale.dtype)
        d_x = scale * (d_y - d_y.mean(1, keepdim=True) - y * (d_y * y).mean(1, keepdim=True))
        return d_x.to(ctx.dtype), None, None


def plus_product(x: Tensor, a: Tensor, linear: nn.Linear, dropout: nn.Module) -> Tensor:
    """x + dropout(linear(a)).

    Args:
        x: (T, out), in the dtype of `a` or float32.
        a: (T, in), in the dtype of autocast, or of the matrix.
        dropout: with it, or with a bias, the sum is not part of the product.

    Returns:
        (T, out), in the dtype of x.
    """
    if linear.bias is not None or not isinstance(dropout, nn.Identity):
        return x + dropout(linear(a))
    return _PlusProduct.apply(x, a, linear.weight)


class _PlusProduct(torch.autograd.Function):
    """x (T, out) + a (T, in) @ weight (out, in)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, a: Tensor, weight: Tensor) -> Tensor:
        narrow = weight.to(a.dtype)
        ctx.save_for_backward(a, narrow)
        ctx.dtype = weight.dtype
        total = x.clone()  # Inductor leaves it out where nothing else reads x
        _add_product(total, a, narrow)
        return total

    @staticmethod
    def backward(ctx: Any, d_total: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        a, weight = ctx.saved_tensors
        narrow = d_total.to(a.dtype)
        return d_total, narrow @ weight, (narrow.t() @ a).to(ctx.dtype)


@torch.library.custom_op("brimful::add_product", mutates_args={"total"})
def _add_product(total: Tensor, a: Tensor, weight: Tensor) -> None:
    """total += a @ weight.T. Inductor would make a product and a sum of torch's own addmm."""
    if total.dtype == a.dtype:
        total.addmm_(a, weight.t())
    elif total.is_cuda:  # only there can the sum have another dtype than the factors
        torch.addmm(total, a, weight.t(), total.dtype, out=total)
    else:
        total.add_(a @ weight.t())


@_add_product.register_fake
def _(total: Tensor, a: Tensor, weight: Tensor) -> None:
    pass


def rotate(qkv: Tensor, cosine: Tensor, sine: Tensor) -> tuple[Tensor, ...]:
    """`model.layer.rotate`."""
    return _Rotate.apply(qkv, cosine, sine)


class _Rotate(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, qkv: Tensor, cosine: Tensor, sine: Tensor) -> tuple[Tensor, ...]:
        ctx.save_for_backward(cosine, sine)
        qkv = qkv.clone()  # Inductor leaves it out
        rotate_in_place(qkv, cosine, sine)
        return qkv.unbind(1)

    @staticmethod
    def backward(ctx: Any, d_q: Tensor, d_k: Tensor, d_v: Tensor) -> tuple[Tensor, None, None]:
        return plain_rotation.gradients(d_q, d_k, d_v, *ctx.saved_tensors), None, None


@torch.library.custom_op("brimful::rotate_in_place", mutates_args={"qkv"})
def rotate_in_place(qkv: Tensor, cosine: Tensor, sine: Tensor) -> None:
    """Rotate queries and keys by their positions' angles (see kernels.rotation).

    Args:
        qkv: (T, 3, heads, head_dim), contiguous.
        cosine, sine: (T, 1, head_dim / 2).
    """
    turned = qkv[:, :2]
    if qkv.is_cuda:
        from brimful.kernels import rotary_kernel  # needs Triton

        rotary_kernel.rotate(turned, cosine, sine)
    else:
        cosine, sine = cosine[:, None], sine[:, None]
        a, b = turned.chunk(2, dim=-1)
        turned.copy_(torch.cat((a * cosine - b * sine, b * cosine + a * sine), dim=-1))


@rotate_in_place.register_fake
def _(qkv: Tensor, cosine: Tensor, sine: Tensor) -> None:
    pass
