"""The shape of an encoder. Architectures differ only by their shape."""

from dataclasses import dataclass
from typing import Literal, get_args

from brimful.base.errors import BrimfulError, require_known, require_range

Architecture = Literal["bert", "prenorm", "modern"]
Variant = Literal["roberta", "xlm-roberta", "camembert", "electra"]
Pooling = Literal["mean", "first"]
"""What a classifier reads of a text: the mean of its tokens' hidden states, or the first token's."""
TextPooling = Literal["mean", "first", "max"]
"""How hidden states become the vector of a text: `Pooling`, or the largest value of each unit."""


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
    """Dropout of attention probabilities while training, only in the backend sdpa. In modern also dropout of
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
        require_known("model.architecture", self.architecture, get_args(Architecture))
        if self.variant is not None:
            require_known("model.variant", self.variant, get_args(Variant))
        sizes = ("vocabulary_size", "hidden_size", "layers", "heads", "intermediate_size", "max_length")
        lengths = ("segments", "local_attention", "global_every")
        require_range(self, "at least 1", *sizes, *lengths, group="model.")
        require_range(self, "at least 0 and below 1", "dropout", "attention_dropout", group="model.")
        if self.hidden_size % self.heads:
            raise BrimfulError(f"model.hidden_size {self.hidden_size} is not divisible by {self.heads} heads")
        if self.rotary and self.head_dim % 2:
            raise BrimfulError(f"model.heads: rotary positions need an even head size, not {self.head_dim}")
        if not 0 <= self.pad_id < self.vocabulary_size:
            raise BrimfulError(f"model.pad_id: {self.pad_id} is not one of {self.vocabulary_size} tokens")
        if self.variant is not None and self.architecture != "bert":
            raise BrimfulError(f"model.variant: {self.variant} is bert, not {self.architecture}")
        if self.embedding_size is not None and (self.variant != "electra" or self.embedding_size < 1):
            raise BrimfulError(f"model.embedding_size {self.embedding_size}: only Electra has one, above 0")

    @property
    def modern(self) -> bool:
        """Whether initial weights and heads follow ModernBERT."""
        return self.architecture == "modern"

    @property
    def pre_norm(self) -> bool:
        """Whether sub-layers normalize their inputs and a final norm the output; else sums are normalized."""
        return self.architecture != "bert"

    @property
    def embedding_norm(self) -> bool:
        """Whether embeddings are normalized."""
        return self.architecture != "prenorm"

    @property
    def rotary(self) -> bool:
        """Whether positions rotate queries and keys; if not, positions and token types are embedded."""
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
        # RoBERTa's family came from fairseq, whose positions begin after the padding token's id.
        return self.pad_id + 1 if self.variant in ("roberta", "xlm-roberta", "camembert") else 0

    @property
    def embedding_width(self) -> int:
        """Width of the embeddings: `embedding_size`, by default `hidden_size`."""
        return self.hidden_size if self.embedding_size is None else self.embedding_size

    @property
    def reads_segments(self) -> bool:
        """Whether token types make a difference."""
        return not self.rotary and self.segments > 1

    @property
    def head_dim(self) -> int:
        """Width of an attention head."""
        return self.hidden_size // self.heads

    def window(self, layer: int) -> int | None:
        """Return the width of a layer's window; None if the layer sees whole sequences."""
        return self.local_attention if self.rotary and layer % self.global_every else None
