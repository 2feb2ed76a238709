"""Brimful's step, and the same step with one idea or several switched off: what each contributes.

Nothing in Brimful has a switch for this: modules are replaced here, or the loss is written another way.
"""

from collections.abc import Callable, Collection
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bench.common.reference import sdpa
from brimful.base.types import IGNORED
from brimful.data.batch import PackedBatch
from brimful.model import layer as layers
from brimful.model.attention import Layout, SequenceLayout
from brimful.model.encoder import Encoder
from brimful.model.heads import MaskedLMHead
from brimful.model.linear_cross_entropy import linear_cross_entropy
from brimful.train.freed_memory import keep_freed_memory

PACKING, HEAD, CROSS_ENTROPY = "packing", "masked-only head", "chunked cross-entropy"
KEPT = "masked-only last layer"
QKV, ATTENTION = "fused QKV", "blockwise attention"
RECOMPUTING, MEMORY = "recomputing", "kept memory"
IDEAS = (PACKING, HEAD, KEPT, CROSS_ENTROPY, QKV, ATTENTION, RECOMPUTING, MEMORY)
"""Those that exist as code; compiling and bf16 are options of a step."""

PackedLoss = Callable[[PackedBatch, Layout, Tensor | None], Tensor]


def packed_loss(encoder: Encoder, head: MaskedLMHead, off: Collection[str] = ()) -> PackedLoss:
    """The MLM loss of a batch: the mean over its predictions, or their sum with given weights."""

    def loss(batch: PackedBatch, layout: Layout, weights: Tensor | None) -> Tensor:
        positions, labels = batch.mlm_positions, batch.mlm_labels
        if TYPE_CHECKING:
            assert positions is not None
            assert labels is not None
        with patch.object(layers, "recompute_in_backward", _kept) if RECOMPUTING in off else nullcontext():
            hidden = encoder(batch, layout, output_slots=None if {HEAD, KEPT} & {*off} else positions)
        if HEAD in off:  # the cross-entropy is plain here, as the chunked one would skip what is not masked
            everywhere = torch.full_like(batch.tokens, IGNORED, dtype=torch.long).scatter(
                0, positions, labels
            )
            return F.cross_entropy(head(hidden).float(), everywhere, ignore_index=IGNORED)
        if KEPT in off:
            hidden = hidden.index_select(0, positions)
        if CROSS_ENTROPY in off:
            return F.cross_entropy(head(hidden).float(), labels)
        total, _ = linear_cross_entropy(head.transform(hidden), *head.decoder, labels, weights)
        return total / len(labels) if weights is None else total

    return loss


def _kept(function: Callable[[Tensor], Any], x: Tensor, *, draws: bool = False) -> Any:
    return function(x)


class SeparateQKV(nn.Module):
    """Three matrix products for Q, K and V. They are joined, as the layer wants them: a copy more."""

    def __init__(self, fused: nn.Linear) -> None:
        super().__init__()
        self.weights = nn.ParameterList(part.detach().clone() for part in fused.weight.chunk(3))
        biases = [None] * 3 if fused.bias is None else fused.bias.chunk(3)
        self.biases = nn.ParameterList(part.detach().clone() for part in biases if part is not None)

    def forward(self, x: Tensor) -> Tensor:
        """x (T, hidden) -> (T, 3 * hidden)."""
        biases = list(self.biases) or [None] * 3
        return torch.cat([F.linear(x, w, b) for w, b in zip(self.weights, biases, strict=True)], 1)


class AloneLayout(SequenceLayout):
    """F.scaled_dot_product_attention of each sequence."""

    def attend(self, q: Tensor, k: Tensor, v: Tensor, window: int | None, dropout: float) -> Tensor:
        assert window is None
        assert not dropout
        return sdpa(q, k, v, self.lengths.tolist())


def switch_off(encoder: Encoder, off: Collection[str]) -> None:
    """Replace what is off in an encoder, and in this process."""
    if MEMORY not in off:
        keep_freed_memory()  # as the trainer does
    if QKV in off:
        for layer in encoder.layers:
            assert isinstance(layer.qkv, nn.Linear)
            layer.qkv = SeparateQKV(layer.qkv)


def layout_of(encoder: Encoder, batch: PackedBatch, off: Collection[str] = ()) -> Layout:
    """What attention reads of a batch."""
    return AloneLayout.prepare(batch) if ATTENTION in off else encoder.prepare(batch)
