"""The layer with fewer bytes to move, for a compiled step on a GPU, where elementwise kernels take the time.

Its results are the plain layer's except for rounding.

    product_of_norm    multiplies a norm's weight and bias into the matrix that follows. The remainder of the
                       norm keeps only its 16-bit output, not its input, and has no gradients of its own
    plus_product       lets a matrix product add its result to the residual stream in place, so between two
                       products that stream is read once
    rotate_compiled    (rotation.py) rotates queries and keys in place, and does not touch values

Each of them makes a step on a CPU slower.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from brimful.model.attention import CaptureFunction, Layout
from brimful.model.layer import Layer, Rotation, select_rows
from brimful.precision.policy import widen


def applies(x: Tensor) -> bool:
    """Whether a layer with this input is part of a compiled training step on a GPU."""
    return x.is_cuda and torch.compiler.is_compiling() and torch.is_grad_enabled()


def layer_applies(layer: Layer, x: Tensor, *_: Any) -> bool:
    """Whether `forward` computes this layer: only pre-LN has a product after each norm."""
    return layer.pre_norm and applies(x)


def forward(
    layer: Layer,
    x: Tensor,
    layout: Layout,
    rotation: Rotation | None,
    capture: CaptureFunction | None,
    output_slots: Tensor | None,
) -> Tensor:
    """Compute `Layer.forward`: x (T, hidden) -> (T, hidden), or (N, hidden) with `output_slots`."""
    qkv = product_of_norm(x, layer.attention_norm, layer.qkv)  # (T, 3 * hidden)
    attended = select_rows(layer.attention(qkv, layout, rotation, capture), output_slots)
    x = select_rows(x, output_slots)
    x = plus_product(x, attended, layer.attention_out, layer.attention_out_dropout)
    up = product_of_norm(x, layer.mlp_norm, layer.up)  # (N, inner), in modern (N, 2 * inner)
    if not layer.gated:  # the kernel of GeLU's gradient computes GeLU again, which costs nothing
        return x + layer.project_down(up)
    return plus_product(x, layer.activate(up), layer.down, layer.down_dropout)


def product_of_norm(x: Tensor, norm: nn.Module, linear: nn.Linear) -> Tensor:
    """Return linear(norm(x)), (T, hidden) -> (T, out), in the dtype of autocast, or of the matrix.

    The norm is a LayerNorm, or the identity. With n the standardized x, w and b of the norm, W and c of the
    matrix: (n * w + b) W' + c = n (W * w)' + (W b + c).
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
    """x (T, hidden) with mean 0 and variance 1 in each row, in another dtype.

    Backward reads the output, as in DeepSpeed's "invertible" norm, so the wider input need not be kept.
    """

    @staticmethod
    def forward(ctx, x: Tensor, eps: float, dtype: torch.dtype) -> Tensor:
        wide = widen(x)
        variance, mean = torch.var_mean(wide, 1, correction=0, keepdim=True)
        scale = (variance + eps).rsqrt()
        y = (wide - mean) * scale
        if y.dtype != dtype:  # torch 2.11 compiles a wrong gradient of a conversion that changes nothing
            y = y.to(dtype)
        ctx.save_for_backward(y, scale)
        ctx.dtype = x.dtype
        return y

    @staticmethod
    def backward(ctx, d_y: Tensor) -> tuple[Tensor, None, None]:
        y, scale = ctx.saved_tensors  # (T, hidden), (T, 1)
        # LayerNorm's gradient without weights: the mean and the variance are taken out of d_y.
        y, d_y = y.to(scale.dtype), d_y.to(scale.dtype)
        d_x = scale * (d_y - d_y.mean(1, keepdim=True) - y * (d_y * y).mean(1, keepdim=True))
        return d_x.to(ctx.dtype), None, None


def plus_product(x: Tensor, a: Tensor, linear: nn.Linear, dropout: nn.Module) -> Tensor:
    """Return x + dropout(linear(a)): (T, out), (T, in) -> (T, out). x has the dtype of `a`, or float32.

    The sum is part of the product unless there is dropout or a bias.
    """
    if linear.bias is not None or not isinstance(dropout, nn.Identity):
        return x + dropout(linear(a))
    return _PlusProduct.apply(x, a, linear.weight)


class _PlusProduct(torch.autograd.Function):
    """x (T, out) + a (T, in) @ weight (out, in)."""

    @staticmethod
    def forward(ctx, x: Tensor, a: Tensor, weight: Tensor) -> Tensor:
        narrow = weight.to(a.dtype)
        ctx.save_for_backward(a, narrow)
        ctx.dtype = weight.dtype
        total = x.clone()  # autograd wants it; Inductor leaves it out where nothing else reads x
        _add_product(total, a, narrow)
        return total

    @staticmethod
    def backward(ctx, d_total: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        a, weight = ctx.saved_tensors
        narrow = d_total.to(a.dtype)
        return d_total, narrow @ weight, (narrow.t() @ a).to(ctx.dtype)


@torch.library.custom_op("brimful::add_product", mutates_args={"total"})
def _add_product(total: Tensor, a: Tensor, weight: Tensor) -> None:
    """Compute total += a @ weight.T. Inductor would split torch's own addmm into a product and a sum."""
    if total.dtype == a.dtype:
        total.addmm_(a, weight.t())
    elif total.is_cuda:  # only there can the sum have another dtype than the factors
        torch.addmm(total, a, weight.t(), total.dtype, out=total)
    else:
        total.add_(a @ weight.t())


@_add_product.register_fake
def _(total: Tensor, a: Tensor, weight: Tensor) -> None:
    pass
