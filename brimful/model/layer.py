"""The transformer layer of all architectures."""

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from brimful.model.attention import CaptureFunction, Layout, attend
from brimful.model.fast_forms import check_switch, find_fast_form
from brimful.model.initial_weights import Linear, draw_normal
from brimful.model.shape import EncoderConfig


class Layer(nn.Module):
    """Attention and feed-forward sub-layers with residual connections.

    bert normalizes after each residual sum (Devlin et al. 2018). prenorm and modern normalize the input of
    each sub-layer (Xiong et al. 2020, "On Layer Normalization in the Transformer Architecture"), except in
    the first attention of modern, which follows the norm of the embeddings. modern gates its feed-forward
    layer with GeLU (Shazeer 2020; Warner et al. 2024, section 2.1), and has dropout at the gate instead of
    after that sub-layer. After attention it has the dropout rate of attention probabilities, as in
    `transformers`.

    Backward computes norms, activations and gates again (see `recompute_in_backward`).
    """

    def __init__(self, config: EncoderConfig, index: int) -> None:
        super().__init__()
        check_switch()
        self.heads = config.heads
        self.gated = config.gated
        self.pre_norm = config.pre_norm
        self.window = None if config.is_global(index) else config.local_attention
        self.attention_dropout = config.attention_dropout
        hidden, inner, bias = config.hidden_size, config.intermediate_size, config.bias
        already_normalized = config.pre_norm and config.embedding_norm and index == 0
        self.attention_norm = nn.Identity() if already_normalized else make_norm(config)
        self.qkv = Linear(hidden, 3 * hidden, bias=bias)
        self.attention_out = Linear(hidden, hidden, bias=bias)
        self.mlp_norm = make_norm(config)
        self.up = Linear(hidden, 2 * inner if self.gated else inner, bias=bias)
        self.down = Linear(inner, hidden, bias=bias)
        self.attention_out_dropout = make_dropout(config.attention_dropout if self.gated else config.dropout)
        self.gate_dropout = make_dropout(config.dropout if self.gated else 0.0)
        self.down_dropout = make_dropout(0.0 if self.gated else config.dropout)
        self.draws = self.gated and config.dropout > 0
        self.drops = config.dropout > 0 or config.attention_dropout > 0

    def forward(
        self,
        x: Tensor,
        layout: Layout,
        rotation: tuple[Tensor, Tensor] | None,
        capture: CaptureFunction | None,
        output_slots: Tensor | None = None,
    ) -> Tensor:
        """x (T, hidden) -> (T, hidden), or with `output_slots`, int64 (N,), the (N, hidden) of these slots.

        All slots are attended to; what follows attention is computed for the output_slots ones alone.
        """
        if (fast := find_fast_form("layer", self, x, layout, rotation, capture)) is not None:
            return fast(self, x, layout, rotation, capture, output_slots)
        if self.pre_norm:
            qkv = recompute_in_backward(lambda x: self.qkv(self.attention_norm(x)), x)
            out = select_rows(self.attention(qkv, layout, rotation, capture), output_slots)
            x = select_rows(x, output_slots) + self.attention_out_dropout(self.attention_out(out))
            return x + self.project_down(recompute_in_backward(lambda x: self.up(self.mlp_norm(x)), x))
        out = select_rows(self.attention(self.qkv(x), layout, rotation, capture), output_slots)
        x = select_rows(x, output_slots) + self.attention_out_dropout(self.attention_out(out))
        x, up = recompute_in_backward(self._norm_and_up, x)
        return self.mlp_norm(x + self.project_down(up))

    def attention(
        self,
        qkv: Tensor,
        layout: Layout,
        rotation: tuple[Tensor, Tensor] | None,
        capture: CaptureFunction | None,
    ) -> Tensor:
        """(T, 3 * hidden) -> (T, hidden), without the product after attention."""
        T = qkv.shape[0]  # not len, which would be a constant in an ONNX graph
        qkv = qkv.view(T, 3, self.heads, -1)
        q, k, v = qkv.unbind(1) if rotation is None else rotate(qkv, rotation)
        rate = self.attention_dropout if self.training and layout.drops else 0.0
        out = attend(q, k, v, layout, window=self.window, dropout=rate, capture=capture)
        return out.reshape(T, -1)

    def _norm_and_up(self, x: Tensor) -> tuple[Tensor, Tensor]:
        x = self.attention_norm(x)
        return x, self.up(x)

    def project_down(self, up: Tensor) -> Tensor:
        """What `up` gave -> (T, hidden)."""
        return self.down_dropout(recompute_in_backward(self._activate_and_down, up, draws=self.draws))

    def _activate_and_down(self, up: Tensor) -> Tensor:
        return self.down(self.activate(up))

    def activate(self, up: Tensor) -> Tensor:
        if not self.gated:
            return F.gelu(up)
        if (fast := find_fast_form("gate", up)) is not None:
            return self.gate_dropout(fast(up))
        value, gate = up.chunk(2, dim=-1)
        return self.gate_dropout(F.gelu(value) * gate)


class Rotary(nn.Module):
    """Tables of cosines and sines of rotary positions (Su et al. 2021, "RoFormer", section 3.2)."""

    cosine: Tensor
    sine: Tensor

    def __init__(self, head_dim: int, max_length: int, theta: float) -> None:
        super().__init__()
        frequency = 1.0 / theta ** (torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim)
        angle = torch.arange(max_length, dtype=torch.float32)[:, None] * frequency
        self.register_buffer("cosine", angle.cos(), persistent=False)
        self.register_buffer("sine", angle.sin(), persistent=False)

    def forward(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """positions int32 (T,) -> cosines and sines (T, 1, head_dim / 2)."""
        cosine, sine = F.embedding(positions, self.cosine), F.embedding(positions, self.sine)
        return cosine[:, None], sine[:, None]


def rotate(qkv: Tensor, rotation: tuple[Tensor, Tensor]) -> tuple[Tensor, ...]:
    """Queries, keys and values, with each pair (x[i], x[i + head_dim / 2]) of queries and keys rotated by its
    position's angle.

    Args:
        qkv: (T, 3, heads, head_dim).
        rotation: what `Rotary` gives for the positions.

    Returns:
        Three of (T, heads, head_dim), in the dtype of `qkv`.
    """
    if (fast := find_fast_form("rotate", qkv)) is not None:
        return fast(qkv, *rotation)
    q, k, v = qkv.unbind(1)
    return rotate_pairs(q, *rotation), rotate_pairs(k, *rotation), v


def rotate_pairs(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """x (T, heads, head_dim), rotated by angles whose cosines and sines are (T, 1, head_dim / 2)."""
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * cosine - b * sine, b * cosine + a * sine), dim=-1).to(x.dtype)


def select_rows(x: Tensor, output_slots: Tensor | None) -> Tensor:
    """x (T, hidden) at the slots `output_slots`, int64 (N,); all of it without them."""
    return x if output_slots is None else x.index_select(0, output_slots)


def recompute_in_backward(function: Callable[[Tensor], Any], x: Tensor, *, draws: bool = False) -> Any:
    """function(x); backward computes its cheap operations again instead of keeping their results.

    The function must end with a matrix product. Backward stops when it has the input of that product, so the
    product is not computed again, and `x` is all that a norm or an activation keeps (as in DeepSpeed's
    "invertible" norm and recomputed GeLU). torch.compile keeps this, and recomputes more on its own.

    Args:
        draws: whether the function draws random numbers, which backward must draw again.
    """
    if not torch.is_grad_enabled():
        return function(x)
    return checkpoint(function, x, use_reentrant=False, preserve_rng_state=draws)


class Norm(nn.LayerNorm):
    """LayerNorm, which computes in float32 under autocast.

    Attributes:
        dtype: of the output; None: what LayerNorm gives, which under autocast is float32.
    """

    dtype: torch.dtype | None = None

    def forward(self, x: Tensor) -> Tensor:
        """x (N, hidden) -> (N, hidden)."""
        out = super().forward(x)
        return out if self.dtype is None else out.to(self.dtype)


def make_norm(config: EncoderConfig, width: int | None = None) -> Norm:
    """The LayerNorm of the architecture, by default over hidden states."""
    return Norm(width or config.hidden_size, eps=config.norm_eps, bias=config.bias)


def make_dropout(rate: float) -> nn.Module:
    """Dropout, or the identity where the rate is 0."""
    return nn.Dropout(rate) if rate else nn.Identity()


@torch.no_grad()
def initialize(linear: nn.Linear | nn.Embedding, config: EncoderConfig, *, output: bool = False) -> None:
    """Initial weights of a matrix; biases 0.

    Normal (Devlin et al. 2018); truncated at two standard deviations in modern, as in `transformers`.
    `output` matrices write to the residual stream. They are divided by sqrt(2 * layers) where that stream is
    not normalized: in prenorm (Shoeybi et al. 2019, "Megatron-LM", section 4; `transformers` leaves this out)
    and in modern (Warner et al. 2024, section B).
    """
    std = config.initializer_range
    if output and config.pre_norm:
        std /= math.sqrt(2 * config.layers)
    draw_normal(linear.weight, std, truncated=config.modern)
    if isinstance(linear, nn.Linear) and linear.bias is not None:
        nn.init.zeros_(linear.bias)
