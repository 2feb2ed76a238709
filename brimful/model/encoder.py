"""The encoder: flat rows in, hidden states out. Architectures differ only by their configuration.

Three things differ from `transformers`. There is no batch dimension and no padding mask: a layout says which
tokens see each other. One matrix product makes Q, K and V. The vocabulary is padded to a multiple of 64
internally, since matrix units work on whole tiles.
"""

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
from brimful.model.layer import Layer, Norm, Rotary, initialize, make_dropout, make_norm, select_rows
from brimful.model.shape import EncoderConfig, Pooling


@dataclass
class Capture:
    """The inner states of a forward pass, for distillation.

    Attributes:
        layers: the layers whose states are kept, 0-based; by default all layers. Other states are freed
            during the pass.
        hidden: tensors (T, hidden): 0 has the embeddings, i + 1 the output of layer i. The last one is the
            result of `forward` (after the final norm of prenorm and modern).
        queries, keys: the inputs of attention of each layer, (T, heads, head_dim), rotated.
    """

    layers: Collection[int] | None = None
    hidden: dict[int, Tensor] = field(default_factory=dict)
    queries: dict[int, Tensor] = field(default_factory=dict)
    keys: dict[int, Tensor] = field(default_factory=dict)

    def keeps(self, layer: int) -> bool:
        """Whether the states of a layer are kept."""
        return self.layers is None or layer in self.layers

    def make_hook(self, layer: int) -> CaptureFunction | None:
        """Return the `capture` of `attend` in a layer, or None if the layer is not kept."""
        if not self.keeps(layer):
            return None

        def keep(q: Tensor, k: Tensor, v: Tensor) -> None:
            self.queries[layer], self.keys[layer] = q, k

        return keep

    def keep_output(self, layer: int, x: Tensor) -> None:
        """Keep the output of a layer, if the layer is kept."""
        if self.keeps(layer):
            self.hidden[layer + 1] = x


@cache
def _warn_about_attention_dropout(rate: float) -> None:
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
        padded_vocabulary = -(-config.vocabulary_size // 64) * 64
        width = config.embedding_width
        self.embedding = Embedding(padded_vocabulary, width)
        self.position: nn.Embedding | None = None
        self.segment: nn.Embedding | None = None
        if not config.rotary:
            self.position = Embedding(config.position_offset + config.max_length, width)
            self.segment = Embedding(config.segments, width)
        self.embedding_norm = make_norm(config, width) if config.embedding_norm else nn.Identity()
        self.dropout = make_dropout(config.dropout)
        self.embedding_projection: nn.Module = nn.Identity()
        if config.embedding_size is not None:
            self.embedding_projection = Linear(width, config.hidden_size)
        self.layers = nn.ModuleList(Layer(config, index) for index in range(config.layers))
        # The stream of pre-LN has grown with each layer, so one norm follows the last (Xiong et al. 2020).
        self.final_norm = make_norm(config) if config.pre_norm else nn.Identity()
        # Local layers may turn by other frequencies than global ones (Warner et al. 2024, section 2.1.2).
        self.rotary: Rotary | None = None
        self.rotary_local: Rotary | None = None
        if config.rotary:
            self.rotary = Rotary(config.head_dim, config.max_length, config.rope_theta)
            if config.global_every > 1:
                self.rotary_local = Rotary(config.head_dim, config.max_length, config.rope_theta_local)
        for name, module in self.named_modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                initialize(module, config, output=name.endswith((".attention_out", ".down")))
        with torch.no_grad():  # rows that stand for no token stay 0, as they get no gradient
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
        """Return the number of logical matrices that each weight of the layers stacks by rows, by name."""
        matrices = {"qkv": 3, "attention_out": 1, "up": 2 if self.config.gated else 1, "down": 1}
        blocks = {}
        for layer in range(self.config.layers):
            for name, count in matrices.items():
                blocks[f"layers.{layer}.{name}.weight"] = count
        return blocks

    def depths(self) -> dict[str, int]:
        """Return the depth of each parameter below the head, by name.

        In an encoder of L layers the last layer has depth 1, the first layer L, and the embeddings L + 1. The
        norm after the last layer has 0, as a head has. The decay of learning rates of BEiT counts like this
        (Bao et al. 2022).
        """
        layers = self.config.layers
        depths = {}
        for name, _ in self.named_parameters():
            part, number = name.split(".")[:2]
            depths[name] = layers + 1
            if part == "layers":
                depths[name] = layers - int(number)
            elif part == "final_norm":
                depths[name] = 0
        return depths

    def set_residual(self, dtype: torch.dtype | None) -> None:
        """Set the dtype of the residual stream: of embeddings, residual sums, and hidden states.

        Norms compute in float32 all the same, and their weights keep their dtype.

        Args:
            dtype: the dtype of autocast, under which `forward` must then run. None: the dtype that the
                operators return, which under autocast is float32.
        """
        self._residual = dtype
        for module in self.modules():
            if isinstance(module, Norm):
                module.dtype = dtype

    def prepare(self, batch: PackedBatch, backend: str = "auto") -> Layout:
        """Return the layout of a batch on the encoder's device, for `forward` under the current autocast.

        `forward` makes its own layout by default. A compiled `forward` must be given one, and several passes
        over a batch can share one.
        """
        kind, dtype = self.device.type, self.embedding.weight.dtype
        if torch.is_autocast_enabled(kind):  # then q, k and v have its dtype, which decides the backend
            dtype = torch.get_autocast_dtype(kind)
        config = self.config
        chosen = choose_backend(self.device, dtype, backend)
        if config.attention_dropout and self.training and not chosen.drops:
            _warn_about_attention_dropout(config.attention_dropout)
        return chosen.prepare(batch, {config.window(layer) for layer in range(config.layers)})

    def forward(
        self,
        batch: PackedBatch,
        layout: Layout | None = None,
        capture: Capture | None = None,
        *,
        output_slots: Tensor | None = None,
    ) -> Tensor:
        """Return hidden states of a packed batch on the encoder's device.

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
        config = self.config
        if batch.max_length > config.max_length:
            raise BrimfulError(
                f"sequences of up to {batch.max_length} tokens do not fit an encoder of"
                f" {config.max_length}; lower max_length, or train an encoder with a longer one"
            )
        layout = layout or self.prepare(batch)
        x = self._embed(batch)  # (T, hidden)
        global_rotation = local_rotation = None
        if self.rotary is not None:
            global_rotation = self.rotary(batch.positions)
        if self.rotary_local is not None:
            local_rotation = self.rotary_local(batch.positions)
        if capture is not None:
            capture.hidden[0] = x
        for index, layer in enumerate(self.layers):
            rotation = local_rotation if config.window(index) else global_rotation
            # Every other layer needs all slots, since the next attention reads them.
            slots = output_slots if capture is None and index == config.layers - 1 else None
            if capture is not None:
                x = layer(x, layout, rotation, capture.make_hook(index))
                capture.keep_output(index, x)
            elif self.recomputes and self.training and torch.is_grad_enabled():
                x = checkpoint(layer, x, layout, rotation, None, slots, use_reentrant=False)
            else:
                x = layer(x, layout, rotation, None, slots)
        x = self.final_norm(x)
        if capture is not None:
            capture.keep_output(config.layers - 1, x)
            return select_rows(x, output_slots)
        return x

    def _embed(self, batch: PackedBatch) -> Tensor:
        """Return the residual stream before the first layer: (T, hidden)."""
        x = self.embedding(batch.tokens)  # (T, embedding width)
        if self.position is not None and self.segment is not None:
            types = self.segment.weight  # with one type, (1, width), the ids of the tokenizer do not matter
            if self.config.reads_segments:
                types = self.segment(batch.segments.int())
            x = x + types + self.position(batch.positions + self.config.position_offset)
        x = self.embedding_norm(x)
        if self._residual is not None:
            x = x.to(self._residual)
        return self.embedding_projection(self.dropout(x))

    def keep_layers(self, indices: Sequence[int]) -> Self:
        """Return a new encoder with copies of the given layers, in that order: where a student starts.

        Embeddings and final norm are copied too. The first layer of modern has no norm before its attention:
        a layer that becomes the first loses that norm, and the old first layer gets a unit norm elsewhere. A
        layer's new place decides whether it is local.

        Raises:
            BrimfulError: `indices` is empty, or names a layer that does not exist.
        """
        if not indices or not all(0 <= index < self.config.layers for index in indices):
            raise BrimfulError(f"cannot keep layers {list(indices)} of an encoder of {self.config.layers}")
        with skip_initial_weights():
            student = type(self)(replace(self.config, layers=len(indices))).to(self.embedding.weight)
        student.tokenizer, student.pooling = self.tokenizer, self.pooling
        shared = {name: w for name, w in self.state_dict().items() if not name.startswith("layers.")}
        student.load_state_dict(shared, strict=False)
        for target, index in zip(student.layers, indices, strict=True):
            # Not strict: only one of the two may have a norm before its attention.
            target.load_state_dict(self.layers[index].state_dict(), strict=False)
        return student
