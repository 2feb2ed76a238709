"""The shape of an encoder, rotary positions, and the one transformer layer of all architectures."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from brimful.errors import BrimfulError, nearest
from brimful.kernels import bfloat16, bfloat16_layer, fused
from brimful.kernels.bfloat16_layer import Weights, kept_rows
from brimful.model.attention import CaptureFunction, Layout, SequenceLayout, attend
from brimful.model.drawing import Linear, draw

Architecture = Literal["bert", "prenorm", "modern"]
Variant = Literal["roberta", "xlm-roberta", "camembert", "electra"]
Pooling = Literal["mean", "first"]
"""What stands for a text: the mean of its tokens' hidden states, or its first token's."""


@dataclass(frozen=True, kw_only=True)
class EncoderConfig:
    """Shape of an encoder. The defaults describe a short-context modern encoder of mini size."""

    architecture: Architecture = "modern"
    """modern: ModernBERT (pre-LN, RoPE, GeGLU, no biases); bert: BERT (post-LN, learned positions); prenorm:
    Megatron-BERT (BERT with pre-LN and a final norm)."""
    variant: Variant | None = None
    """The family other than BERT that a bert encoder is saved as. In all but Electra, position embeddings
    start at pad_id + 1."""
    vocabulary_size: int = 30522
    """Number of tokens; padded to a multiple of 64 inside, invisible outside."""
    hidden_size: int = 256
    """Width of the residual stream."""
    embedding_size: int | None = None
    """Width of the embeddings, which a matrix projects to hidden_size; Electra only. By default, embeddings
    have hidden_size and there is no such matrix."""
    layers: int = 4
    """Number of transformer layers."""
    heads: int = 4
    """Attention heads; hidden_size is a multiple."""
    intermediate_size: int = 512
    """Width of the feed-forward layer; of each of its two halves in modern, which has a gate."""
    max_length: int = 512
    """The longest sequence, in tokens."""
    segments: int = 2
    """Token types; bert and prenorm only."""
    pad_id: int = 0
    """The token that fills unused slots."""
    norm_eps: float = 1e-5
    """Added to the variance in LayerNorm."""
    dropout: float = 0.0
    """Dropout of hidden states while training."""
    attention_dropout: float = 0.0
    """Dropout of attention probabilities while training, in the backend sdpa alone. In modern also dropout of
    the output of attention, in every backend."""
    rope_theta: float = 10_000.0
    """Base of the rotary frequencies in global layers; modern only."""
    rope_theta_local: float = 10_000.0
    """Base of the rotary frequencies in local layers; modern only."""
    local_attention: int = 128
    """Width of the window in local layers: a token sees tokens at most half of it away; modern only."""
    global_every: int = 1
    """Layers 0, n, 2n ... see the whole sequence, the others a window. 1: all are global; modern only."""
    initializer_range: float = 0.02
    """Standard deviation of initial weights."""

    def __post_init__(self) -> None:
        for name, kinds in (("architecture", Architecture), ("variant", Variant)):
            value, known = getattr(self, name), get_args(kinds)
            if value not in known and (name, value) != ("variant", None):
                raise BrimfulError(f"unknown model.{name} {value!r}: {nearest(str(value), known)}")
        sizes = ("vocabulary_size", "hidden_size", "layers", "heads", "intermediate_size", "max_length")
        for name in (*sizes, "segments", "local_attention", "global_every"):
            if getattr(self, name) < 1:
                raise BrimfulError(f"model.{name} is {getattr(self, name)}: it must be at least 1")
        if self.hidden_size % self.heads:
            raise BrimfulError(
                f"model.hidden_size: {self.hidden_size} is not divisible by {self.heads} heads"
            )
        if self.rotary and self.head_dim % 2:
            raise BrimfulError(f"model.heads: rotary positions need an even head size, not {self.head_dim}")
        if not 0 <= self.pad_id < self.vocabulary_size:
            raise BrimfulError(f"model.pad_id: {self.pad_id} is not one of {self.vocabulary_size} tokens")
        for name in ("dropout", "attention_dropout"):
            if not 0 <= getattr(self, name) < 1:
                raise BrimfulError(
                    f"model.{name} is {getattr(self, name)}: it must be at least 0 and less than 1"
                )
        if self.variant is not None and self.architecture != "bert":
            raise BrimfulError(f"model.variant: {self.variant} is bert, not {self.architecture}")
        if self.embedding_size is not None and (self.variant != "electra" or self.embedding_size < 1):
            raise BrimfulError(
                f"model.embedding_size is {self.embedding_size}: only Electra has one, of at least 1"
            )

    @property
    def modern(self) -> bool:
        """Whether initial weights and heads follow ModernBERT."""
        return self.architecture == "modern"

    @property
    def pre_norm(self) -> bool:
        """Whether sub-layers normalize their input, and a final norm the output; else each residual sum is
        normalized."""
        return self.architecture != "bert"

    @property
    def embedding_norm(self) -> bool:
        """Whether embeddings are normalized."""
        return self.architecture != "prenorm"

    @property
    def rotary(self) -> bool:
        """Whether positions rotate queries and keys; else positions and token types are embedded."""
        return self.modern

    @property
    def gated(self) -> bool:
        """Whether a gate multiplies the activation of the feed-forward layer."""
        return self.modern

    @property
    def bias(self) -> bool:
        """Whether matrices and norms have biases."""
        return not self.modern

    @property
    def position_offset(self) -> int:
        """The row of the position embeddings for a sequence's first token."""
        return self.pad_id + 1 if self.variant in ("roberta", "xlm-roberta", "camembert") else 0

    @property
    def embedding_width(self) -> int:
        """Width of the embeddings, also where it is that of the hidden states."""
        return self.hidden_size if self.embedding_size is None else self.embedding_size

    @property
    def reads_segments(self) -> bool:
        """Whether token types make a difference."""
        return not self.rotary and self.segments > 1

    @property
    def head_dim(self) -> int:
        """Width of an attention head."""
        return self.hidden_size // self.heads

    def is_global(self, layer: int) -> bool:
        """Whether a layer sees whole sequences."""
        return not self.rotary or layer % self.global_every == 0


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


def rotate(qkv: Tensor, rotation: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values, with each pair (x[i], x[i + head_dim / 2]) of queries and keys rotated by its
    position's angle.

    qkv (T, 3, heads, head_dim) -> three of (T, heads, head_dim). Compiled, forward and backward are one
    kernel each. The values are copied, since a view would keep all of `qkv` in memory; in a compiled step on
    a GPU, `qkv` is rotated where it lies instead.
    """
    return _Rotate.apply(qkv, *rotation, fused.applies(qkv))


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

    def turned(x: Tensor) -> Tensor:
        a, b = x.chunk(2, dim=-1)
        return torch.cat((a * cosine - b * sine, b * cosine + a * sine), dim=-1).to(x.dtype)

    return torch.stack((turned(q), turned(k), v), dim=1)


class Layer(nn.Module):
    """Attention and feed-forward sub-layers with residual connections.

    bert normalizes after each residual sum (Devlin et al. 2018). prenorm and modern normalize the input of
    each sub-layer (Xiong et al. 2020, "On Layer Normalization in the Transformer Architecture"), except in
    the first attention of modern, which follows the norm of the embeddings. modern gates its feed-forward
    layer with GeLU (Shazeer 2020; Warner et al. 2024, section 2.1), and has dropout at the gate instead of
    after that sub-layer. After attention it has the dropout rate of attention probabilities, as in
    `transformers`.

    Backward computes norms, activations and gates again (see `recomputed`). Two cases have another form: in a
    compiled step on a GPU, prenorm and modern (fused.py); in bfloat16 on a CPU, modern (bfloat16_layer.py).
    """

    def __init__(self, config: EncoderConfig, index: int) -> None:
        super().__init__()
        self.heads = config.heads
        self.gated = config.gated
        self.pre_norm = config.pre_norm
        self.window = None if config.is_global(index) else config.local_attention
        self.attention_dropout = config.attention_dropout
        hidden, inner, bias = config.hidden_size, config.intermediate_size, config.bias
        already_normalized = config.pre_norm and config.embedding_norm and index == 0
        self.attention_norm = nn.Identity() if already_normalized else norm(config)
        self.qkv = Linear(hidden, 3 * hidden, bias=bias)
        self.attention_out = Linear(hidden, hidden, bias=bias)
        self.mlp_norm = norm(config)
        self.up = Linear(hidden, 2 * inner if self.gated else inner, bias=bias)
        self.down = Linear(inner, hidden, bias=bias)
        self.attention_out_dropout = dropout(config.attention_dropout if self.gated else config.dropout)
        self.gate_dropout = dropout(config.dropout if self.gated else 0.0)
        self.down_dropout = dropout(0.0 if self.gated else config.dropout)
        self.draws = self.gated and config.dropout > 0
        self.drops = config.dropout > 0 or config.attention_dropout > 0

    def forward(
        self,
        x: Tensor,
        layout: Layout,
        rotation: tuple[Tensor, Tensor] | None,
        capture: CaptureFunction | None,
        kept: Tensor | None = None,
    ) -> Tensor:
        """x (T, hidden) -> (T, hidden), or with `kept`, int64 (N,), the (N, hidden) of these slots.

        All slots are attended to; what follows attention is computed for the kept ones alone.
        """
        if rotation is not None and capture is None and self._is_in_bfloat16(x, layout):
            return self._in_bfloat16(x, layout, rotation, kept)
        if self.pre_norm and fused.applies(x):
            return self._with_fewer_bytes(x, layout, rotation, capture, kept)
        if self.pre_norm:
            qkv = recomputed(lambda x: self.qkv(self.attention_norm(x)), x)
            out = kept_rows(self._attention(qkv, layout, rotation, capture), kept)
            x = kept_rows(x, kept) + self.attention_out_dropout(self.attention_out(out))
            return x + self._down(recomputed(lambda x: self.up(self.mlp_norm(x)), x))
        out = kept_rows(self._attention(self.qkv(x), layout, rotation, capture), kept)
        x = kept_rows(x, kept) + self.attention_out_dropout(self.attention_out(out))
        x, up = recomputed(self._norm_and_up, x)
        return self.mlp_norm(x + self._down(up))

    def _is_in_bfloat16(self, x: Tensor, layout: Layout) -> bool:
        drops = self.training and self.drops
        norms = self.mlp_norm.weight.dtype == torch.float32
        matrices = (self.qkv, self.attention_out, self.up, self.down)
        plain = all(type(linear) is Linear for linear in matrices)  # not replaced from outside
        return self.gated and norms and plain and not drops and bfloat16_layer.applies(x, layout)

    def _in_bfloat16(
        self, x: Tensor, layout: Layout, rotation: tuple[Tensor, Tensor], kept: Tensor | None
    ) -> Tensor:
        """`forward` of modern in bfloat16 on a CPU (see bfloat16_layer.py)."""
        assert isinstance(layout, SequenceLayout)
        weights = Weights(
            self.attention_norm.weight if isinstance(self.attention_norm, Norm) else None,
            self.mlp_norm.weight,
            self.qkv.weight,
            self.attention_out.weight,
            self.up.weight,
            self.down.weight,
        )
        return bfloat16_layer.outputs(
            x,
            layout,
            rotation,
            weights,
            heads=self.heads,
            reach=-1 if self.window is None else self.window // 2,
            eps=self.mlp_norm.eps,
            kept=kept,
        )

    def _with_fewer_bytes(
        self,
        x: Tensor,
        layout: Layout,
        rotation: tuple[Tensor, Tensor] | None,
        capture: CaptureFunction | None,
        kept: Tensor | None,
    ) -> Tensor:
        """`forward` in a compiled step on a GPU (see fused.py), unless norms follow sums."""
        qkv = fused.product_of_norm(x, self.attention_norm, self.qkv)
        out = kept_rows(self._attention(qkv, layout, rotation, capture), kept)
        x = fused.plus_product(kept_rows(x, kept), out, self.attention_out, self.attention_out_dropout)
        up = fused.product_of_norm(x, self.mlp_norm, self.up)
        if not self.gated:  # the kernel of GeLU's gradient computes GeLU again, which costs nothing
            return x + self._down(up)
        return fused.plus_product(x, self._activate(up), self.down, self.down_dropout)

    def _attention(
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

    def _down(self, up: Tensor) -> Tensor:
        """What `up` gave -> (T, hidden)."""
        return self.down_dropout(recomputed(self._activate_and_down, up, draws=self.draws))

    def _activate_and_down(self, up: Tensor) -> Tensor:
        return self.down(self._activate(up))

    def _activate(self, up: Tensor) -> Tensor:
        if not self.gated:
            return F.gelu(up)
        if bfloat16.applies(up):
            return self.gate_dropout(bfloat16.gate(up))
        value, gate = up.chunk(2, dim=-1)
        return self.gate_dropout(F.gelu(value) * gate)


def recomputed(function: Callable[[Tensor], Any], x: Tensor, *, draws: bool = False) -> Any:
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


def norm(config: EncoderConfig, width: int | None = None) -> Norm:
    """The LayerNorm of the architecture, by default over hidden states."""
    return Norm(width or config.hidden_size, eps=config.norm_eps, bias=config.bias)


def dropout(rate: float) -> nn.Module:
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


def draw_normal(weight: Tensor, std: float, *, truncated: bool) -> None:
    """Fill a matrix from a normal distribution, truncated at two standard deviations if asked for."""
    if truncated:
        draw(weight, lambda matrix: _truncated_normal(matrix, std))
    else:
        draw(weight, lambda matrix: nn.init.normal_(matrix, std=std))


def _truncated_normal(matrix: Tensor, std: float) -> None:
    """Draw again what is outside, until nothing is: 1.05 draws for each number.

    torch.nn.init draws the whole matrix again each time, in another way in each version.
    """
    matrix.normal_(std=std)
    if matrix.is_meta:
        return
    numbers = matrix.view(-1)
    outside = (numbers.abs() > 2 * std).nonzero()[:, 0]
    while len(outside):
        drawn = numbers.new_empty(len(outside)).normal_(std=std)
        numbers[outside] = drawn
        outside = outside[drawn.abs() > 2 * std]
