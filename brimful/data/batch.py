"""PackedBatch: the tensors a step needs. Sequences lie one after the other; there is no batch dimension.

Shapes use the letters of the whole project: T token slots, S sequence slots, M prediction slots. For
compilers, all three are fixed for a phase of a run. Otherwise S is as large as the batch needs, and in
training M is rounded up to a multiple of STEP. Unused token slots are filled with sequences of pad tokens,
which are in no loss and no metric. Unused sequence slots are empty sequences at the end, with offset T.
Unused prediction slots have position 0 and label -100.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from numpy import ndarray
from torch import Tensor

from brimful.base.types import Values

STEP = 64
"""M is a multiple of this in training, unless it is fixed. oneDNN, which computes products in bfloat16 on a
CPU, compiles for 1 to 13 ms for each new shape: many times as long as a small model's product takes."""


@dataclass(frozen=True)
class PackedBatch:
    """One micro-batch. See the module docstring for T, S and M.

    Attributes:
        tokens: int32 (T,).
        positions: int32 (T,), restarting at 0 in each sequence.
        segments: uint8 (T,), the token type (0 or 1).
        offsets: int32 (S + 1,), where sequences start; `offsets[-1] == T`.
        lengths: tokens of each real sequence, then of each filler sequence, on the host; sums to T. Empty
            sequences are not in it.
        real_sequences: number of real sequences, which come first in `lengths`; the others are filler.
        max_length: the most tokens of a sequence.
        mlm_positions: int64 (M,), unused slots 0.
        mlm_labels: int64 (M,), unused slots -100.
        targets: for sequences int64/float32 (S,) or (S, C), or packed bits; for tokens int64 (T,). -100, NaN
            or 0 stands for a missing target.
        sequence_index: int64 (real_sequences,) on the host: the index in the data of each sequence.
        predictions, dropped_predictions: numbers of predictions that fit M, and of predictions that did not.
    """

    tokens: Tensor
    positions: Tensor
    segments: Tensor
    offsets: Tensor
    lengths: tuple[int, ...]
    real_sequences: int
    max_length: int
    mlm_positions: Tensor | None = None
    mlm_labels: Tensor | None = None
    targets: dict[str, Tensor] = field(default_factory=dict)
    sequence_index: ndarray | None = None
    predictions: int = 0
    dropped_predictions: int = 0

    @property
    def real_tokens(self) -> int:
        """Tokens of real sequences (special tokens included, filler not)."""
        return sum(self.lengths[: self.real_sequences])

    @property
    def first_positions(self) -> Tensor:
        """int64 (S,): the slot of each sequence's first token; an empty sequence has the last slot."""
        # Empty sequences begin at T, which is not a slot: an index of T would be out of range.
        return self.offsets[:-1].long().clamp(max=max(self.tokens.numel() - 1, 0))

    @property
    def sequence_of_token(self) -> Tensor:
        """int64 (T,): the index of the sequence that each token belongs to."""
        sizes = self.offsets.diff()  # (S,)
        index = torch.arange(sizes.numel(), device=sizes.device)
        # Since the size is given, the host does not wait for the GPU to sum the lengths.
        return torch.repeat_interleave(index, sizes, output_size=self.tokens.numel())

    def with_fewer_predictions(self) -> "PackedBatch":
        """Drop unused prediction slots, which come last, as far as `STEP` allows."""
        if self.mlm_positions is None or self.mlm_labels is None:
            return self
        M = max(1, -(-self.predictions // STEP)) * STEP
        return replace(self, mlm_positions=self.mlm_positions[:M], mlm_labels=self.mlm_labels[:M])

    def map(self, change: Callable[[Tensor], Tensor]) -> "PackedBatch":
        """Return the batch with `change` applied to each tensor."""
        targets = {name: change(tensor) for name, tensor in self.targets.items()}
        changed: Values = {"targets": targets}
        for name, value in vars(self).items():
            if isinstance(value, Tensor):
                changed[name] = change(value)
        return replace(self, **changed)

    def to(self, device: torch.device | str) -> "PackedBatch":
        """Return the batch with its tensors on `device`."""
        return self.map(lambda tensor: tensor.to(device))


def make_blank(
    lengths: Sequence[int],
    *,
    max_length: int,
    pad: int,
    slots: int | None = None,
    sequence_slots: int | None = None,
    sequence_index: ndarray | None = None,
) -> PackedBatch:
    """Make a batch with space for sequences of these lengths, one after the other: all tokens are `pad`.

    Args:
        lengths: the tokens of each sequence, special ones included, 1 to `max_length`.
        max_length: the most tokens of a sequence, also of a filler sequence.
        slots: T; by default the tokens of the sequences.
        sequence_slots: S; by default the number of sequences and filler sequences.
        sequence_index: int64, the index in the data of each sequence.

    Raises:
        ValueError: a sequence is empty or too long, or the sequences do not fit (a bug in the caller).
    """
    used = sum(lengths)
    T = used if slots is None else slots
    if used > T or any(not 1 <= length <= max_length for length in lengths):
        raise ValueError(f"{len(lengths)} sequences of {used} tokens do not fit {T} slots of {max_length}")
    whole, rest = divmod(T - used, max_length)
    all_lengths = [*lengths, *[max_length] * whole]  # filler sequences included
    if rest:
        all_lengths.append(rest)
    S = len(all_lengths) if sequence_slots is None else sequence_slots
    if len(all_lengths) > S:
        raise ValueError(f"{len(all_lengths)} sequences do not fit {S} sequence slots")
    # Empty sequences at the end begin and end at T: attention's kernels see that they have no tokens.
    offsets = np.full(S + 1, T, dtype=np.int32)
    offsets[0] = 0
    np.cumsum(all_lengths, out=offsets[1 : len(all_lengths) + 1])
    starts = np.repeat(offsets[: len(all_lengths)], all_lengths)  # (T,): where each token's sequence begins
    return PackedBatch(
        tokens=torch.from_numpy(np.full(T, pad, dtype=np.int32)),
        # Each sequence counts from 0, as in a row of its own (Krell et al. 2021, section 3.2.1).
        positions=torch.from_numpy(np.arange(T, dtype=np.int32) - starts),
        segments=torch.zeros(T, dtype=torch.uint8),
        offsets=torch.from_numpy(offsets),
        lengths=tuple(all_lengths),
        real_sequences=len(lengths),
        max_length=max_length,
        sequence_index=sequence_index,
    )


def pack(
    sequences: Sequence[ndarray], *, segments: Sequence[ndarray] | None = None, **layout: Any
) -> PackedBatch:
    """Lay sequences one after the other into a batch.

    Args:
        sequences: token ids of each sequence, special tokens included.
        segments: token types of each sequence, by default zeros.
        layout: the other arguments of `make_blank`.

    Raises:
        ValueError: as `make_blank` does.
    """
    batch = make_blank([len(sequence) for sequence in sequences], **layout)
    used = batch.real_tokens
    if sequences:
        # The tensors share their memory with these arrays, so nothing is copied a second time.
        np.concatenate(sequences, out=batch.tokens.numpy()[:used], casting="unsafe")
        if segments is not None:
            np.concatenate(segments, out=batch.segments.numpy()[:used], casting="unsafe")
    return batch
