"""What bench/step compares: a cell (which model, which data), and variants of one training step in it."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from bench.common.flops import packed_shape, padded_shape
from bench.common.ideas import ATTENTION, PACKING, layout_of, packed_loss, switch_off
from bench.common.lengths import careful_batches, quantile_sample, read_wikipedia
from bench.common.peers import masked_lm
from bench.common.workload import (
    CAPACITY,
    MASKED,
    VOCABULARY,
    Sequences,
    in_rows,
    make_sequences,
    model_config,
    packed,
    padded,
    per_sequence_weights,
    sample_lengths,
)
from brimful.data.masking import count_prediction_slots
from brimful.model.encoder import Encoder
from brimful.model.flops import STORED, Shape
from brimful.model.heads import MaskedLMHead
from brimful.model.shape import Architecture
from brimful.train.determinism import deterministic

Side = Literal["brimful", "padded", "careful"]
SEED = 0
POOL = 4096  # sequences that rows of a limited depth are packed from


@dataclass(frozen=True)
class Cell:
    """What all variants of a comparison have in common; JSON types."""

    model: str
    architecture: Architecture
    length: int
    dtype: Literal["fp32", "bf16"]
    sequences: int
    threads: int
    vocabulary: int = VOCABULARY

    def lengths(self) -> list[int]:
        """Lengths of the sequences of a step."""
        return sample_lengths(self.sequences, self.length)


@dataclass(frozen=True)
class Variant:
    """How a step is made.

    Attributes:
        side: brimful; padded (transformers, to the longest there may be); careful (transformers, batches of
            similar lengths, padded to the longest there is).
        compile: torch.compile; with dynamic shapes for careful, whose shapes vary.
        off: ideas of Brimful that are switched off.
        depth: the most sequences in a row of 512 (0: any number). There are as many rows as the cell has
            sequences, and the loss is a mean over the sequences' own.
        deterministic: the trainer's setting.
    """

    side: Side
    compile: bool = False
    off: tuple[str, ...] = ()
    depth: int | None = None
    deterministic: bool = False


@dataclass(frozen=True)
class Item:
    """A batch: what the loss is called with, and what there is in it."""

    arguments: Any
    real_tokens: int
    shape: Shape
    per_row: float = 1.0  # sequences in a row, of the packing as a whole


class Step:
    """A model in training. `items` are what is measured; all variants of a cell see the batch `check`."""

    def __init__(self, cell: Cell, variant: Variant) -> None:
        torch.manual_seed(SEED)
        self.cell, self.variant = cell, variant
        self.config = model_config(cell.model, cell.architecture, vocabulary=cell.vocabulary)
        self.encoder = Encoder(self.config)
        head = MaskedLMHead(self.encoder)
        self.call: Callable[..., Tensor]
        self.parameters: list[nn.Parameter]
        if variant.side == "brimful":
            switch_off(self.encoder, variant.off)
            self.parameters = [*self.encoder.parameters(), *head.parameters()]
            loss = packed_loss(self.encoder, head, variant.off)
            self.call = torch.compile(loss, fullgraph=True, dynamic=False) if variant.compile else loss
        else:
            # ModernBERT can leave out logits of what is not masked; who cares about speed asks for that.
            self.sparse = variant.side == "careful" and cell.architecture == "modern"
            peer = masked_lm(self.encoder, head, **({"sparse_prediction": True} if self.sparse else {}))
            self.parameters = list(peer.parameters())
            dynamic = variant.side == "careful"
            self.call = torch.compile(peer, dynamic=dynamic) if variant.compile else peer
        self.check = self.item(cell.lengths())
        self.items = [self.check]
        if variant.side == "careful":
            batches = careful_batches(cell.sequences, cell.length, len(cell.lengths()))
            self.items = [self.item(lengths) for lengths in batches]
        elif variant.depth is not None:
            self.items = [self._rows(variant.depth or None)]
        self.optimizer = torch.optim.AdamW(self.parameters, lr=1e-5, fused=True)

    def autocast(self) -> torch.autocast:
        """The context of a forward pass."""
        return torch.autocast("cpu", torch.bfloat16, enabled=self.cell.dtype == "bf16")

    def item(self, lengths: list[int]) -> Item:
        """A batch of random sequences of these lengths."""
        sequences = make_sequences(lengths, self.config.vocabulary_size, SEED)
        real, predictions = sum(lengths), sequences.predictions
        if self.variant.side == "brimful":
            if PACKING in self.variant.off:
                sequences = in_rows(sequences, [[i] for i in range(len(lengths))], self.cell.length)
            return self._packed(sequences, real, predictions, None)
        width = self.cell.length if self.variant.side == "padded" else max(lengths)
        shape = padded_shape(len(lengths), width, predictions if self.sparse else None)
        return Item(padded(sequences, width), real, shape)

    def _packed(
        self, sequences: Sequences, real: int, predictions: int, weights: Tensor | None, per_row: float = 1.0
    ) -> Item:
        batch = packed(sequences, self.cell.length)
        off = self.variant.off
        shape = packed_shape(sequences.lengths, predictions)
        if ATTENTION in off:
            shape = packed_shape(sequences.lengths, predictions, STORED)
        return Item((batch, layout_of(self.encoder, batch, off), weights), real, shape, per_row)

    def _rows(self, depth: int | None) -> Item:
        """Rows at even distances through the plan of a pool of sequences, which has them by pattern."""
        from brimful.packing.assignment import assign
        from brimful.packing.histogram import count_lengths
        from brimful.packing.pack_first import best_fit

        lengths = np.array(quantile_sample(read_wikipedia(), POOL, SEED))
        plan = best_fit(count_lengths(lengths), CAPACITY, max_sequences=depth)
        offsets, order = assign(plan, lengths, key=np.uint64(SEED))
        count = self.cell.sequences
        chosen = [int((i + 0.5) * plan.rows / count) for i in range(count)]
        rows = [lengths[order[offsets[row] : offsets[row + 1]]].tolist() for row in chosen]
        flat = [length for row in rows for length in row]
        ends = np.cumsum([len(row) for row in rows])
        indices = [range(end - len(row), end) for row, end in zip(rows, ends.tolist(), strict=True)]
        sequences = make_sequences(flat, self.config.vocabulary_size, SEED)
        sequences = in_rows(sequences, indices, CAPACITY)
        slots = count_prediction_slots(CAPACITY * count, MASKED)
        positions, labels, weights = per_sequence_weights(sequences, slots)
        item = self._packed(sequences, sum(flat), slots, weights, plan.packing_factor)
        batch = replace(item.arguments[0], mlm_positions=positions, mlm_labels=labels)
        return replace(item, arguments=(batch, *item.arguments[1:]))

    def loss(self, item: Item) -> Tensor:
        """The loss of a batch, forward alone."""
        with self.autocast():
            if self.variant.side == "brimful":
                return self.call(*item.arguments)
            return self.call(**item.arguments).loss  # type: ignore[attr-defined]

    def train(self, item: Item) -> None:
        """Forward, backward, AdamW."""
        with deterministic(self.variant.deterministic):
            self.loss(item).backward()
            self.optimizer.step()
        self.optimizer.zero_grad()
