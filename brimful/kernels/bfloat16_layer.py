"""A layer of modern in bfloat16 on a CPU: matrix products, and one loop between two of them.

Autograd's form of the same layer takes 40 operations and their Python. It casts every input of a product,
keeps what it casts, and calls functions again in backward. Here backward reads what forward has saved: the
input, the residual sum, queries, keys and values, the output of attention, and the input of the gate. Norms
and gates are computed again by the loops that compute their gradients.

Numbers are rounded where autocast rounds them: products to bfloat16, the residual stream not at all.

Least work, beside products and attention, of T slots of width H whose gate has width 2 H: 48 * T * H bytes in
forward, 76 * T * H in backward.
"""

from collections.abc import Iterable

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from brimful.base.cpu_threads import run_loops
from brimful.kernels import bfloat16
from brimful.kernels.blockwise import blockwise_attention_backward, operator
from brimful.kernels.inference_layer import is_as_made, takes
from brimful.model.attention import CaptureFunction, Layout, SequenceLayout
from brimful.model.layer import Layer, Norm, Rotation, select_rows


def applies(
    layer: Layer, x: Tensor, layout: Layout, rotation: Rotation | None, capture: CaptureFunction | None
) -> bool:
    """Whether `forward` computes this layer: modern without dropout, under autocast to bfloat16, on a CPU."""
    return (
        takes(layer, layout, capture)
        and rotation is not None
        and layer.gated
        and not (layer.training and layer.has_dropout)
        and bfloat16.autocasts(x)
        and is_as_made(layer)
    )


def forward(
    layer: Layer,
    x: Tensor,
    layout: SequenceLayout,
    rotation: Rotation,
    capture: CaptureFunction | None,
    output_slots: Tensor | None,
) -> Tensor:
    """Compute `Layer.forward` of float32 x (T, hidden)."""
    cosine, sine = rotation
    reach = -1 if layer.window is None else layer.window // 2
    # The first layer of modern has no norm before its attention.
    first_norm = layer.attention_norm.weight if isinstance(layer.attention_norm, Norm) else None
    return _Layer.apply(
        *(x, output_slots, layout.lengths, cosine[:, 0], sine[:, 0]),
        *((layer.heads, reach, layer.mlp_norm.eps), first_norm, layer.mlp_norm.weight),
        *(layer.qkv.weight, layer.attention_out.weight, layer.up.weight, layer.down.weight),
    )


class _Layer(torch.autograd.Function):
    """The layer with a backward pass of its own; gradients of a tensor `name` are called `d_name`."""

    @staticmethod
    def forward(
        ctx,
        x: Tensor,
        output_slots: Tensor | None,
        lengths: Tensor,
        cosine: Tensor,
        sine: Tensor,
        shape: tuple[int, int, float],
        first: Tensor | None,
        second: Tensor,
        *weights: Tensor,
    ) -> Tensor:
        heads, reach, eps = shape
        qkv_weight, out_weight, up_weight, down_weight = _narrow(weights)
        y, statistics = x.to(torch.bfloat16), None
        if first is not None:
            y, statistics = bfloat16.normalize(x, first, None, eps)
        qkv = (y @ qkv_weight.t()).view(len(x), 3, heads, -1)  # (T, 3, heads, head_dim)
        qkv = bfloat16.rotate(qkv, cosine, sine)
        scale = qkv.shape[-1] ** -0.5
        attended, normalizer = operator()(*qkv.unbind(1), lengths, None, scale, reach, 0.0)
        out = select_rows(attended.view(x.shape), output_slots) @ out_weight.t()  # (N, hidden)
        middle, y, middle_statistics = bfloat16.add_and_normalize(
            select_rows(x, output_slots), out, second, None, eps
        )
        up = y @ up_weight.t()  # (N, 2 * inner)
        ctx.save_for_backward(
            *(x, output_slots, lengths, cosine, sine, first, second),
            *(statistics, qkv, attended, normalizer, middle, middle_statistics, up),
            *weights,
        )
        ctx.reach, ctx.scale = reach, scale
        return bfloat16.add(middle, bfloat16.gate(up) @ down_weight.t())

    @staticmethod
    @once_differentiable
    def backward(ctx, d_x: Tensor) -> tuple[Tensor | None, ...]:
        saved = ctx.saved_tensors  # once: activation checkpointing unpacks them only once
        x, output_slots, lengths, cosine, sine, first, second = saved[:7]
        statistics, qkv, attended, normalizer, middle, middle_statistics, up = saved[7:14]
        weights = saved[14:]
        qkv_weight, out_weight, up_weight, down_weight = _narrow(weights)
        # The feed-forward sub-layer: (N, hidden). d_x also flows past it, along the residual stream.
        d_down = d_x.to(torch.bfloat16)
        d_up, gated = bfloat16.gate_gradients(up, d_down @ down_weight)
        d_x, y, d_second = norm_gradients(middle, middle_statistics, second, d_up @ up_weight, d_x)
        d_down_weight, d_up_weight = d_down.t() @ gated, d_up.t() @ y
        # Attention: (T, hidden), since a slot without output is still read as key and value.
        d_out = d_x.to(torch.bfloat16)
        d_out_weight = d_out.t() @ select_rows(attended.view(x.shape), output_slots)
        d_attended = _scatter_rows(d_out @ out_weight, output_slots, len(x)).view_as(attended)
        d_qkv = blockwise_attention_backward(
            d_attended, *qkv.unbind(1), attended, normalizer, lengths, None, ctx.scale, ctx.reach, 0.0
        )
        # A rotation's gradient is the rotation back.
        d_qkv = bfloat16.rotate(d_qkv, cosine, -sine).view(len(x), -1)
        d_x = _scatter_rows(d_x, output_slots, len(x))
        d_first = None
        if first is None:
            y = x.to(torch.bfloat16)
            d_x = bfloat16.add(d_x, d_qkv @ qkv_weight)
        else:
            d_x, y, d_first = norm_gradients(x, statistics, first, d_qkv @ qkv_weight, d_x)
        products = d_qkv.t() @ y, d_out_weight, d_up_weight, d_down_weight
        d_weights = (product.to(weight.dtype) for product, weight in zip(products, weights, strict=True))
        return d_x, *(None,) * 5, d_first, d_second, *d_weights


def norm_gradients(
    x: Tensor, statistics: Tensor, weight: Tensor, d_y: Tensor, d_x: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradient of `bfloat16.normalize` by x, its output again, and the gradient by the weight.

    Arguments as in `gradient_loops.norm_gradients`; d_x is the gradient by the other readers of x.
    """
    from brimful.kernels import gradient_loops  # needs numba

    total, y = torch.empty_like(x), torch.empty_like(d_y)
    pieces = bfloat16.split_rows(x, statistics, d_y, d_x.contiguous(), total, y)
    # Each worker sums the gradient by the weight over its own rows.
    d_weight = x.new_zeros(len(pieces), len(weight))
    weight_array = weight.detach().numpy()
    items = [(*piece, weight_array, row) for piece, row in zip(pieces, d_weight.numpy(), strict=True)]
    run_loops(gradient_loops.norm_gradients, items)
    return total, y, d_weight.sum(0)


def _narrow(weights: Iterable[Tensor]) -> list[Tensor]:
    # Backward casts them again, so that a layer keeps only activations between the passes.
    return [weight.to(torch.bfloat16) for weight in weights]


def _scatter_rows(rows: Tensor, output_slots: Tensor | None, length: int) -> Tensor:
    """Return the gradient of `select_rows`: (N, hidden) -> (length, hidden)."""
    if output_slots is None:
        return rows
    # A sum: a slot can occur several times, as slot 0 does in place of predictions that are not used.
    return rows.new_zeros(length, rows.shape[1]).index_add_(0, output_slots, rows)
