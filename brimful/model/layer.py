"""The transformer layer of all architectures."""

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from brimful.model.attention import CaptureFunction, Layout, attend
from brimful.model.fast_forms import find_fast_form, load_forms
from brimful.model.initial_weights import Linear, fill_normal
from brimful.model.shape import EncoderConfig

Rotation = tuple[Tensor, Tensor]
"""Cosines and sines of the tokens' rotary angles, each (T, 1, head_dim / 2)."""


class Layer(nn.Module):
    """Attention and feed-forward sub-layers with residual connections.

    bert normalizes after each residual sum (Devlin et al. 2018). prenorm and modern normalize the input of
    each sub-layer (Xiong et al. 2020, "On Layer Normalization in the Transformer Architecture"), except in
    the first attention of modern, which follows the norm of the embeddings. modern gates its feed-forward
    layer with GeLU (Shazeer 2020; Warner et al. 2024, section 2.1), and has dropout at the gate instead of
    after that sub-layer. After attention it has the dropout rate of attention probabilities, as in
    `transformers`.

    Backward computes norms, activations and gates again (see `recompute_in_backward`).

    Attributes:
        window: the width of local attention; None: global.
        gate_draws: whether the activation has dropout, whose numbers backward must draw again.
        has_dropout: whether anything in the layer draws random numbers in training.
    """

    def __init__(self, config: EncoderConfig, index: int) -> None:
        super().__init__()
        load_forms()
        self.heads = config.heads
        self.gated = config.gated
        self.pre_norm = config.pre_norm
        self.window = config.window(index)
        self.attention_dropout = config.attention_dropout
        hidden, inner, bias = config.hidden_size, config.intermediate_size, config.bias
        # A second norm right after the embeddings' own would only repeat it.
        already_normalized = config.pre_norm and config.embedding_norm and index == 0
        self.attention_norm = nn.Identity() if already_normalized else make_norm(config)
        self.qkv = Linear(hidden, 3 * hidden, bias=bias)
        self.attention_out = Linear(hidden, hidden, bias=bias)
        self.mlp_norm = make_norm(config)
        self.up = Linear(hidden, 2 * inner if self.gated else inner, bias=bias)
        self.down = Linear(inner, hidden, bias=bias)
        rates = config.attention_dropout, config.dropout, 0.0
        if not self.gated:
            rates = config.dropout, 0.0, config.dropout
        self.attention_out_dropout, self.gate_dropout, self.down_dropout = map(make_dropout, rates)
        self.gate_draws = self.gated and config.dropout > 0
        self.has_dropout = config.dropout > 0 or config.attention_dropout > 0

    def forward(
        self,
        x: Tensor,
        layout: Layout,
        rotation: Rotation | None,
        capture: CaptureFunction | None,
        output_slots: Tensor | None = None,
    ) -> Tensor:
        """Compute the layer.

        Args:
            x: (T, hidden), the residual stream.
            layout: which tokens see each other.
            rotation: the angles of the positions; None: positions are embedded.
            capture: receives queries, keys and values, (T, heads, head_dim) each.
            output_slots: int64 (N,), the slots whose output is needed. Attention still reads all slots, but
                what follows it is computed only for these.

        Returns:
            (T, hidden), or (N, hidden) with `output_slots`.
        """
        fast = find_fast_form("layer", self, x, layout, rotation, capture)
        if fast is not None:
            return fast(self, x, layout, rotation, capture, output_slots)
        # (T, 3 * hidden). A product that reads a norm computes that norm again in backward.
        qkv = recompute_in_backward(self._norm_and_qkv, x) if self.pre_norm else self.qkv(x)
        attended = self.attention(qkv, layout, rotation, capture)  # (T, hidden)
        # From here on the rows are N: no token reads another one any more.
        attended = select_rows(attended, output_slots)
        x = select_rows(x, output_slots) + self.attention_out_dropout(self.attention_out(attended))
        if self.pre_norm:  # x + f(norm(x)): nothing normalizes the stream itself
            return x + self.project_down(recompute_in_backward(self._mlp_norm_and_up, x))
        # norm(x + f(x)): post-LN, and the next sum adds to the normalized stream
        x, up = recompute_in_backward(self._attention_norm_and_up, x)
        return self.mlp_norm(x + self.project_down(up))

    def attention(
        self, qkv: Tensor, layout: Layout, rotation: Rotation | None, capture: CaptureFunction | None
    ) -> Tensor:
        """Attend, without the product that follows: (T, 3 * hidden) -> (T, hidden)."""
        T = qkv.shape[0]  # not len, which would be a constant in an ONNX graph
        qkv = qkv.view(T, 3, self.heads, -1)  # (T, 3, heads, head_dim)
        q, k, v = qkv.unbind(1) if rotation is None else rotate(qkv, rotation)  # (T, heads, head_dim) each
        rate = self.attention_dropout if self.training and layout.drops else 0.0
        return attend(q, k, v, layout, window=self.window, dropout=rate, capture=capture).reshape(T, -1)

    def _norm_and_qkv(self, x: Tensor) -> Tensor:
        return self.qkv(self.attention_norm(x))

    def _mlp_norm_and_up(self, x: Tensor) -> Tensor:
        return self.up(self.mlp_norm(x))

    def _attention_norm_and_up(self, x: Tensor) -> tuple[Tensor, Tensor]:
        x = self.attention_norm(x)
        return x, self.up(x)  # the residual sum needs the norm's result too

    def project_down(self, up: Tensor) -> Tensor:
        """Activate the output of `up` and project it: (N, inner or 2 * inner) -> (N, hidden)."""
        return self.down_dropout(recompute_in_backward(self._activate_and_down, up, draws=self.gate_draws))

    def _activate_and_down(self, up: Tensor) -> Tensor:
        return self.down(self.activate(up))

    def activate(self, up: Tensor) -> Tensor:
        """Apply GeLU, and in modern the gate: (N, inner or 2 * inner) -> (N, inner)."""
        if not self.gated:
            return F.gelu(up)
        fast = find_fast_form("gate", up)
        if fast is not None:
            return self.gate_dropout(fast(up))
        value, gate = up.chunk(2, dim=-1)  # (N, inner) each
        return self.gate_dropout(F.gelu(value) * gate)  # GeGLU (Shazeer 2020, section 2)


class Rotary(nn.Module):
    """Tables of cosines and sines of rotary positions (Su et al. 2021, "RoFormer", section 3.2).

    Position p turns pair i by the angle p * theta^(-2i / head_dim).
    """

    cosine: Tensor
    sine: Tensor

    def __init__(self, head_dim: int, max_length: int, theta: float) -> None:
        super().__init__()
        frequency = 1.0 / theta ** (torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim)
        # float32: bfloat16 could not tell positions above 256 apart.
        positions = torch.arange(max_length, dtype=torch.float32)
        angle = positions[:, None] * frequency  # (max_length, head_dim / 2)
        self.register_buffer("cosine", angle.cos(), persistent=False)
        self.register_buffer("sine", angle.sin(), persistent=False)

    def forward(self, positions: Tensor) -> Rotation:
        """Look up positions, int32 (T,): cosines and sines, (T, 1, head_dim / 2), alike for all heads."""
        cosine, sine = F.embedding(positions, self.cosine), F.embedding(positions, self.sine)
        return cosine[:, None], sine[:, None]


def rotate(qkv: Tensor, rotation: Rotation) -> tuple[Tensor, ...]:
    """Rotate each pair (x[i], x[i + head_dim / 2]) of queries and keys by its position's angle.

    Args:
        qkv: (T, 3, heads, head_dim).
        rotation: what `Rotary` returns for the positions.

    Returns:
        Queries, keys and values, each (T, heads, head_dim) in the dtype of `qkv`. Values are not rotated.
    """
    fast = find_fast_form("rotate", qkv)
    if fast is not None:
        return fast(qkv, *rotation)
    q, k, v = qkv.unbind(1)
    return rotate_pairs(q, *rotation), rotate_pairs(k, *rotation), v


def rotate_pairs(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """Rotate x (T, heads, head_dim) by angles whose cosines and sines are (T, 1, head_dim / 2)."""
    # The numbers of a pair are half a head apart, as in `transformers`; RoFormer's own are neighbours.
    a, b = x.chunk(2, dim=-1)
    # Under autocast x has 16 bits and the tables have 32, so only the result is rounded.
    return torch.cat((a * cosine - b * sine, b * cosine + a * sine), dim=-1).to(x.dtype)


def select_rows(x: Tensor, slots: Tensor | None) -> Tensor:
    """Return the rows `slots`, int64 (N,), of x (T, hidden), or all of x without them."""
    return x if slots is None else x.index_select(0, slots)


def recompute_in_backward(function: Callable[[Tensor], Any], x: Tensor, *, draws: bool = False) -> Any:
    """Return function(x), whose cheap operations backward computes again instead of keeping their results.

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
        dtype: of the output; None: the dtype that LayerNorm returns, which under autocast is float32.
    """

    dtype: torch.dtype | None = None

    def forward(self, x: Tensor) -> Tensor:
        """Normalize each row: (N, hidden) -> (N, hidden)."""
        out = super().forward(x)
        return out if self.dtype is None else out.to(self.dtype)


def make_norm(config: EncoderConfig, width: int | None = None) -> Norm:
    """Return the LayerNorm of the architecture, by default over hidden states."""
    return Norm(width or config.hidden_size, eps=config.norm_eps, bias=config.bias)


def make_dropout(rate: float) -> nn.Module:
    """Return dropout, or the identity where the rate is 0."""
    return nn.Dropout(rate) if rate else nn.Identity()


@torch.no_grad()
def initialize(linear: nn.Linear | nn.Embedding, config: EncoderConfig, *, output: bool = False) -> None:
    """Fill a matrix with its initial weights, and its bias with 0.

    The distribution is normal (Devlin et al. 2018), in modern truncated at two standard deviations, as in
    `transformers`. Where the residual stream is not normalized, the `output` matrices that write to it are
    divided by sqrt(2 * layers), so that the sum over all layers keeps its size: in prenorm (Shoeybi et al.
    2019, "Megatron-LM", section 4; `transformers` leaves this out) and in modern (Warner et al. 2024, section
    B).
    """
    std = config.initializer_range
    if output and config.pre_norm:
        std /= math.sqrt(2 * config.layers)
    fill_normal(linear.weight, std, truncated=config.modern)
    if isinstance(linear, nn.Linear) and linear.bias is not None:
        nn.init.zeros_(linear.bias)
