"""What a pretraining step is given, on both sides: the same model, sequences and masks, packed or padded."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from bench.common.lengths import cut, quantile_sample, read_wikipedia
from brimful.base.types import IGNORED
from brimful.data.batch import PackedBatch, pack
from brimful.model.presets import preset
from brimful.model.shape import Architecture, EncoderConfig

VOCABULARY, MASKED, CAPACITY = 30522, 0.15, 512
LOWEST = 1000  # below are special and unused tokens

OTHER_MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "minilm": ("base", {"layers": 6, "hidden_size": 384, "intermediate_size": 1536}),
    "30m": ("small", {"layers": 6, "vocabulary_size": 32768}),
}
"""Shapes that are no presets: the preset that they start from, and what differs."""


def model_config(name: str, architecture: Architecture, vocabulary: int = VOCABULARY) -> EncoderConfig:
    """A preset, or one of `OTHER_MODELS`, for sequences of up to `CAPACITY`; without dropout."""
    start, changes = OTHER_MODELS.get(name, (name, {}))
    if architecture == "modern" and "intermediate_size" in changes:
        changes = changes | {"intermediate_size": 2 * changes["hidden_size"]}
    return preset(start, architecture, **{"vocabulary_size": vocabulary, "max_length": CAPACITY, **changes})


@dataclass(frozen=True)
class Sequences:
    """Token ids and labels (IGNORED where not masked) of each sequence."""

    tokens: list[np.ndarray]
    labels: list[np.ndarray]

    @property
    def lengths(self) -> list[int]:
        """Tokens of each sequence; all of them are real."""
        return [len(tokens) for tokens in self.tokens]

    @property
    def predictions(self) -> int:
        """Masked tokens of all sequences."""
        return sum(int((labels != IGNORED).sum()) for labels in self.labels)


def make_sequences(lengths: Sequence[int], vocabulary: int, seed: int) -> Sequences:
    """Random sequences of these lengths; `MASKED` of the tokens of each have labels, one at least."""
    rng = np.random.default_rng(seed)
    lowest = min(LOWEST, vocabulary // 2)
    tokens = [rng.integers(lowest, vocabulary, length) for length in lengths]
    labels = []
    for length in lengths:
        wanted = np.full(length, IGNORED)
        chosen = rng.permutation(length)[: max(1, int(MASKED * length + rng.random()))]
        wanted[chosen] = rng.integers(lowest, vocabulary, len(chosen))
        labels.append(wanted)
    return Sequences(tokens, labels)


def sample_lengths(count: int, longest: int) -> list[int]:
    """Lengths of `count` sequences at 512, cut into pieces if `longest` is less."""
    return cut(quantile_sample(read_wikipedia(), count, seed=0), longest)


def packed(
    sequences: Sequences, max_length: int, slots: int | None = None, sequence_slots: int | None = None
) -> PackedBatch:
    """One flat row with its masked positions: of these tokens alone, or of `slots` with filler at the end.

    Args:
        sequence_slots: S; by default as many as are needed.
    """
    batch = pack(sequences.tokens, max_length=max_length, pad=0, slots=slots, sequence_slots=sequence_slots)
    labels = torch.from_numpy(np.concatenate(sequences.labels))
    positions = (labels != IGNORED).nonzero()[:, 0]
    return replace(batch, mlm_positions=positions, mlm_labels=labels[positions])


def in_rows(sequences: Sequences, rows: Sequence[Sequence[int]], capacity: int) -> Sequences:
    """The sequences of each row, followed by one of filler that makes the row `capacity` long."""
    tokens, labels = [], []
    for row in rows:
        room = capacity - sum(len(sequences.tokens[index]) for index in row)
        tokens += [sequences.tokens[index] for index in row]
        labels += [sequences.labels[index] for index in row]
        if room:
            tokens.append(np.zeros(room, dtype=np.int64))
            labels.append(np.full(room, IGNORED))
    return Sequences(tokens, labels)


def padded(sequences: Sequences, width: int) -> dict[str, Tensor]:
    """The arguments of a model of transformers: (B, width) ids, mask and labels."""
    shape = (len(sequences.tokens), width)
    ids, mask = torch.zeros(2, *shape, dtype=torch.long)
    labels = torch.full(shape, IGNORED)
    for row, (tokens, wanted) in enumerate(zip(sequences.tokens, sequences.labels, strict=True)):
        ids[row, : len(tokens)] = torch.from_numpy(tokens)
        labels[row, : len(tokens)] = torch.from_numpy(wanted)
        mask[row, : len(tokens)] = 1
    return {"input_ids": ids, "attention_mask": mask, "labels": labels}


def flattened(sequences: Sequences) -> dict[str, Any]:
    """The arguments of a model of transformers with FlashAttention: one row (1, T) without padding, as its
    DataCollatorWithFlattening makes it."""
    lengths = torch.tensor(sequences.lengths)
    ends = F.pad(lengths.cumsum(0), (1, 0)).int()
    longest = int(lengths.max())
    return {
        "input_ids": torch.from_numpy(np.concatenate(sequences.tokens))[None],
        "labels": torch.from_numpy(np.concatenate(sequences.labels))[None],
        "position_ids": torch.cat([torch.arange(length) for length in sequences.lengths])[None],
        "cu_seq_lens_q": ends,
        "cu_seq_lens_k": ends,
        "max_length_q": longest,
        "max_length_k": longest,
    }


def per_sequence_weights(sequences: Sequences, slots: int) -> tuple[Tensor, Tensor, Tensor]:
    """Positions, labels and weights (slots,) of the mean over sequences of their mean MLM losses.

    `slots` is fixed, as for compiled steps: what is left of it scores position 0 with weight 0, and what does
    not fit is unmasked. (Krell et al. 2021, section 3.2.3.)
    """
    starts = accumulate(sequences.lengths, initial=0)
    positions, labels, weights = [], [], []
    counted = sum(bool((labels != IGNORED).any()) for labels in sequences.labels)
    for start, wanted in zip(starts, sequences.labels, strict=False):
        masked = np.flatnonzero(wanted != IGNORED)
        positions += (start + masked).tolist()
        labels += wanted[masked].tolist()
        weights += [1 / max(1, len(masked) * counted)] * len(masked)
    unused = max(0, slots - len(positions))
    return (
        torch.tensor((positions + [0] * unused)[:slots]),
        torch.tensor((labels + [0] * unused)[:slots]),
        torch.tensor((weights + [0.0] * unused)[:slots]),
    )
