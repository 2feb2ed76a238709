"""The encoder: flat rows in, hidden states out. Architectures differ by configuration alone.

Three things differ from `transformers`. There is no batch dimension and no padding mask: a layout says which
tokens see each other. One matrix product makes Q, K and V. The vocabulary is padded to a multiple of 64
internally.
"""

import copy
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Self

import torch
from tokenizers import Tokenizer
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from brimful.base.console import warn
from brimful.base.errors import BrimfulError
from brimful.data.batch import PackedBatch
from brimful.model.attention import CaptureFunction, Layout, choose_backend
from brimful.model.initial_weights import Embedding, Linear, skip_initial_weights
from brimful.model.layer import Layer, Norm, Rotary, initialize, make_dropout, make_norm
from brimful.model.shape import EncoderConfig, Pooling


@dataclass
class Capture:
    """The inner states of a forward pass, for distillation.

    Attributes:
        layers: whose states are kept, 0-based; by default all. Others are freed as the pass goes on.
        hidden: tensors (T, hidden): 0 has the embeddings, i + 1 the output of layer i. That of the last layer
            is the result of `forward` (after the final norm of prenorm and modern).
        queries, keys: by layer (T, heads, head_dim), the inputs of attention (rotated).
    """

    layers: Collection[int] | None = None
    hidden: dict[int, Tensor] = field(default_factory=dict)
    queries: dict[int, Tensor] = field(default_factory=dict)
    keys: dict[int, Tensor] = field(default_factory=dict)

    def of_layer(self, layer: int) -> CaptureFunction | None:
        """The `capture` of `attend` in a layer; None if the layer is not kept."""
        if self.layers is not None and layer not in self.layers:
            return None

        def keep(q: Tensor, k: Tensor, v: Tensor) -> None:
            self.queries[layer], self.keys[layer] = q, k

        return keep

    def output(self, layer: int, x: Tensor) -> None:
        """Keep what a layer gives, if the layer is kept."""
        if self.layers is None or layer in self.layers:
            self.hidden[layer + 1] = x


@cache
def _warn_of_attention_dropout(rate: float) -> None:
    warn(f"the model's attention dropout of {rate:g} is left out: only the attention backend 'sdpa' has it")


class Encoder(nn.Module):
    """A BERT-style encoder over packed rows. `brimful.Encoder` adds folders and texts to it.

    Attributes:
        config: its shape.
        tokenizer: the tokenizer of its vocabulary, or None; saved beside the weights.
        pooling: how texts became vectors in its training, or None if that is not known; saved too.
        recomputes: whether training keeps only the input of each layer for the backward pass, which computes
            the rest again. A forward pass with `capture` keeps everything.
    """

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.config = config
        self.tokenizer: Tokenizer | None = None
        self.pooling: Pooling | None = None
        self.recomputes = False
        self._residual: torch.dtype | None = None
        padded = -(-config.vocabulary_size // 64) * 64
        width = config.embedding_width
        self.embedding = Embedding(padded, width)
        self.position: nn.Embedding | None = None
        self.segment: nn.Embedding | None = None
        if not config.rotary:
            self.position = Embedding(config.position_offset + config.max_length, width)
            self.segment = Embedding(config.segments, width)
        self.embedding_norm = make_norm(config, width) if config.embedding_norm else nn.Identity()
        self.dropout = make_dropout(config.dropout)
        self.embedding_projection = (
            nn.Identity() if config.embedding_size is None else Linear(width, config.hidden_size)
        )
        self.layers = nn.ModuleList(Layer(config, index) for index in range(config.layers))
        self.final_norm = make_norm(config) if config.pre_norm else nn.Identity()
        self.rotary: Rotary | None = None
        self.rotary_local: Rotary | None = None
        if config.rotary:
            self.rotary = Rotary(config.head_dim, config.max_length, config.rope_theta)
            if config.global_every > 1:
                self.rotary_local = Rotary(config.head_dim, config.max_length, config.rope_theta_local)
        for name, module in self.named_modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                initialize(module, config, output=name.endswith((".attention_out", ".down")))
        with torch.no_grad():
            self.embedding.weight[config.vocabulary_size :] = 0

    @property
    def device(self) -> torch.device:
        """The device of the weights."""
        return self.embedding.weight.device

    @property
    def word_embeddings(self) -> Tensor:
        """The embedding matrix without its padding, (vocabulary, embedding width)."""
        weight = self.embedding.weight
        # The backward of a slice, even of the whole, makes a matrix of zeros.
        return weight if len(weight) == self.config.vocabulary_size else weight[: self.config.vocabulary_size]

    def fused_blocks(self) -> dict[str, int]:
        """The matrices of the layers: name -> number of logical matrices that are stacked along its rows."""
        blocks = {"qkv": 3, "up": 2 if self.config.gated else 1}
        return {
            f"layers.{index}.{name}.weight": blocks.get(name, 1)
            for index in range(self.config.layers)
            for name in ("qkv", "attention_out", "up", "down")
        }

    def depths(self) -> dict[str, int]:
        """How far below the head each parameter stands, by name.

        Of L layers the last has 1 and the first L; the embeddings have L + 1. The norm after the last layer
        has 0, as a head has (Bao et al. 2022, "BEiT", whose decay of learning rates counts like this).
        """
        layers = self.config.layers
        depths = {}
        for name, _ in self.named_parameters():
            part, _, rest = name.partition(".")
            if part == "layers":
                depths[name] = layers - int(rest.partition(".")[0])
            else:
                depths[name] = 0 if part == "final_norm" else layers + 1
        return depths

    def set_residual(self, dtype: torch.dtype | None) -> None:
        """Set the dtype of the residual stream: of embeddings, residual sums, and hidden states.

        Norms compute in float32 all the same, and their weights keep their dtype.

        Args:
            dtype: that of autocast, under which `forward` must then run. None: what the operators give,
                which under autocast is float32.
        """
        self._residual = dtype
        for module in self.modules():
            if isinstance(module, Norm):
                module.dtype = dtype

    def prepare(self, batch: PackedBatch, backend: str = "auto") -> Layout:
        """The layout of a batch on the encoder's device, for `forward` under the current autocast.

        `forward` makes its own layout by default. A compiled `forward` must be given one, and several passes
        over a batch can share one.
        """
        kind = self.device.type
        dtype = (
            torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else self.embedding.weight.dtype
        )
        shape = self.config
        windows = {None if shape.is_global(i) else shape.local_attention for i in range(shape.layers)}
        chosen = choose_backend(self.device, dtype, backend)
        if shape.attention_dropout and self.training and not chosen.drops:
            _warn_of_attention_dropout(shape.attention_dropout)
        return chosen.prepare(batch, windows)

    def forward(
        self,
        batch: PackedBatch,
        layout: Layout | None = None,
        capture: Capture | None = None,
        *,
        output_slots: Tensor | None = None,
    ) -> Tensor:
        """Hidden states of a packed batch on the encoder's device.

        Args:
            batch: tokens, positions and segments of T slots; sequences at most `config.max_length` long.
            layout: the result of `prepare(batch)`, by default made here.
            capture: receives hidden states, queries and keys of each layer.
            output_slots: int64 (N,), the slots whose hidden states are needed. For the others the last layer
                computes nothing after attention, which changes no result. With `capture` it computes all.

        Returns:
            (T, hidden), or (N, hidden) with `output_slots`.

        Raises:
            BrimfulError: the batch allows sequences longer than the encoder.
        """
        if batch.max_length > self.config.max_length:
            raise BrimfulError(
                f"sequences of up to {batch.max_length} tokens do not fit an encoder of"
                f" {self.config.max_length}; lower max_length, or train an encoder with a longer one"
            )
        layout = self.prepare(batch) if layout is None else layout
        x = self.embedding(batch.tokens)
        if self.position is not None and self.segment is not None:
            reads = self.config.reads_segments  # with one type, ids of the tokenizer do not matter
            types = self.segment(batch.segments.int()) if reads else self.segment.weight
            x = x + types + self.position(batch.positions + self.config.position_offset)
        x = self.embedding_norm(x)
        x = self.embedding_projection(self.dropout(x if self._residual is None else x.to(self._residual)))
        everywhere = self.rotary(batch.positions) if self.rotary is not None else None
        nearby = self.rotary_local(batch.positions) if self.rotary_local is not None else None
        if capture is not None:
            capture.hidden[0] = x
        for index, layer in enumerate(self.layers):
            keep = None if capture is None else capture.of_layer(index)
            angles = everywhere if self.config.is_global(index) else nearby
            slots = output_slots if capture is None and index == self.config.layers - 1 else None
            if self.recomputes and self.training and torch.is_grad_enabled() and capture is None:
                x = checkpoint(layer, x, layout, angles, None, slots, use_reentrant=False)
            else:
                x = layer(x, layout, angles, keep, slots)
            if capture is not None:
                capture.output(index, x)
        x = self.final_norm(x)
        if capture is not None:
            capture.output(self.config.layers - 1, x)
            return x if output_slots is None else x.index_select(0, output_slots)
        return x

    def keep_layers(self, indices: Sequence[int]) -> Self:
        """A new encoder with copies of the given layers, in that order: where a student starts.

        Embeddings and final norm are copied too. The first layer of modern has no norm before its attention:
        a layer that becomes the first loses that norm, and the old first layer gets a unit norm elsewhere.
        Whether a layer is local follows from its new place.

        Raises:
            BrimfulError: `indices` is empty, or names a layer that does not exist.
        """
        if not indices or not all(0 <= index < self.config.layers for index in indices):
            raise BrimfulError(f"cannot keep layers {list(indices)} of an encoder of {self.config.layers}")
        with skip_initial_weights():
            student = type(self)(replace(self.config, layers=len(indices))).to(self.embedding.weight)
        student.tokenizer, student.pooling = self.tokenizer, self.pooling
        weights = {k: v for k, v in self.state_dict().items() if not k.startswith("layers.")}
        student.load_state_dict(weights, strict=False)
        for target, index in zip(student.layers, indices, strict=True):
            target.load_state_dict(copy.copy(self.layers[index].state_dict()), strict=False)
        return student
