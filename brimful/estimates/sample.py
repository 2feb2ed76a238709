"""What a micro-batch of a run holds: from the plan of its data, or assumed where there is no data."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from brimful.data.batch import IGNORED, PackedBatch, blank
from brimful.data.masking import MaskingConfig, prediction_slots
from brimful.data.rows import Phase
from brimful.data.sources import Source
from brimful.estimates.rates import Work

SAMPLED = 4096
"""Sequences whose lengths stand for all."""


@dataclass(frozen=True)
class Sample:
    """The rows of a phase.

    Attributes:
        lengths: int64, of sequences, each as often as its length occurs.
        tokens, sequences: of a row, on average.
        capacity: of a row.
        max_length: of a sequence.
        epochs: tokens of an epoch of each source, by name, and its proportion of the tokens.
    """

    lengths: np.ndarray
    tokens: float
    sequences: float
    capacity: int
    max_length: int
    epochs: dict[str, tuple[float, float]]

    def rows_of(self, phase: Phase) -> int:
        """The rows of an update."""
        if phase.counted == "rows":
            return phase.size
        return max(1, round(phase.size / self.sequences))

    def work(self, rows: int, masking: MaskingConfig, tokens_per_word: float) -> Work:
        """A micro-batch of `rows` rows."""
        slots = rows * self.capacity
        count = max(1, round(self.sequences * rows))
        places = ((np.arange(count) + 0.5) * len(self.lengths) / count).astype(np.int64)
        lengths = self.lengths[places]
        while lengths.sum() > slots:
            lengths = lengths[:-1]
        predictions = prediction_slots(slots, masking.highest_rate, masking.unit, tokens_per_word)
        predicted = min(predictions, round(masking.rate * float(lengths.sum())))
        return Work(tuple(lengths.tolist()), slots, predictions, predicted)

    def batch(self, work: Work, *, paired: bool) -> PackedBatch:
        """A batch of such shapes, for tracing."""
        found = blank(list(work.lengths), max_length=self.max_length, pad=0, slots=work.slots)
        labels = torch.full((work.predictions,), IGNORED, dtype=torch.int64)
        targets = {"pair": torch.zeros(len(found.offsets) - 1, dtype=torch.int64)} if paired else {}
        return replace(
            found,
            mlm_positions=torch.zeros_like(labels),
            mlm_labels=labels,
            predictions=work.predicted,
            targets=targets,
        )


def sampled(sources: Sequence[Source], phase: Phase) -> Sample:
    """The rows of a phase, from the first block of each source, which is planned here."""
    proportions = np.array([source.proportion for source in sources])
    proportions = proportions / proportions.sum()
    rows = sequences = 0.0
    lengths, weights, epochs = [], [], {}
    for source, proportion in zip(sources, proportions.tolist(), strict=True):
        blocks = source.blocks[phase.packing.max_length]
        some, plan = blocks.preview()
        tokens = float(some.length.sum())
        filled = float(plan.tokens)
        if phase.counted == "sequences":  # the block's rows hold one each; updates pack them
            rows += proportion / phase.packing.capacity
        else:
            rows += proportion * plan.rows / filled
        sequences += proportion * len(some) / tokens
        lengths.append(np.asarray(some.length, dtype=np.int64))
        weights.append(np.full(len(some), proportion / tokens))
        epochs[source.name] = (blocks.count * tokens, proportion)
    every, weight = np.concatenate(lengths), np.concatenate(weights)
    order = np.argsort(every, kind="stable")
    below = np.cumsum(weight[order])
    drawn = np.searchsorted(below, (np.arange(SAMPLED) + 0.5) / SAMPLED * below[-1])
    chosen = every[order[np.minimum(drawn, len(order) - 1)]]
    packing = phase.packing
    return Sample(chosen, 1 / rows, sequences / rows, packing.capacity, packing.max_length, epochs)


def assumed(phase: Phase, length: int, fill: float, tokens: float) -> Sample:
    """The rows of a phase without data: sequences of one length.

    Args:
        tokens: of an epoch.
    """
    packing = phase.packing
    length = min(length, packing.max_length)
    held = fill * packing.capacity
    lengths = np.full(SAMPLED, length, dtype=np.int64)
    return Sample(lengths, held, held / length, packing.capacity, packing.max_length, {"text": (tokens, 1.0)})
