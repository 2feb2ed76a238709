"""PackedBatch: the tensors a step needs. Sequences lie one after the other; there is no batch dimension.

Shapes use the letters of the whole project: T token slots, S sequence slots, M prediction slots. For
compilers all three are fixed for a phase of a run; else S is what a batch needs, and M in training the next
multiple of STEP. The rest of T is filled with sequences of pad tokens, which are in no loss and no metric.
The rest of S is empty sequences at the end, with offset T. The rest of M has position 0 and label -100.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

STEP = 64
"""Where M may vary in training, it is a multiple of this. oneDNN, which has the products in bfloat16 on a
CPU, compiles for 1 to 13 ms for each new shape, many times what a product of a small model takes."""


@dataclass(frozen=True)
class PackedBatch:
    """One micro-batch. See the module docstring for T, S and M.

    Attributes:
        tokens: int32 (T,).
        positions: int32 (T,), restarting at 0 in each sequence.
        segments: uint8 (T,), the token type (0 or 1).
        offsets: int32 (S + 1,), where sequences start; `offsets[-1] == T`.
        lengths: tokens in each real sequence, then in each filler sequence, on the host; sums to T. Empty
            sequences are not listed.
        real_sequences: how many of `lengths` are real; the rest is filler.
        max_length: the longest that a sequence may be.
        mlm_positions: int64 (M,), unused slots 0.
        mlm_labels: int64 (M,), unused slots -100.
        targets: per sequence int64/float32 (S,) or (S, C), or bits; per token int64 (T,); none: -100, NaN, 0.
        sequence_index: int64 (real_sequences,) on the host: the index in the data of each sequence.
        predictions, dropped_predictions: the number of predictions, and of those that did not fit M.
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
    sequence_index: np.ndarray | None = None
    predictions: int = 0
    dropped_predictions: int = 0

    @property
    def real_tokens(self) -> int:
        """Tokens of real sequences (special tokens included, filler not)."""
        return sum(self.lengths[: self.real_sequences])

    @property
    def first_positions(self) -> Tensor:
        """int64 (S,): the slot of each sequence's first token; of an empty sequence, the last slot."""
        return self.offsets[:-1].long().clamp(max=max(self.tokens.numel() - 1, 0))

    @property
    def sequence_of_token(self) -> Tensor:
        """int64 (T,): the index of the sequence that each token belongs to."""
        sizes = self.offsets[1:] - self.offsets[:-1]
        index = torch.arange(sizes.numel(), device=sizes.device)
        return torch.repeat_interleave(index, sizes, output_size=self.tokens.numel())

    def with_fewer_predictions(self) -> "PackedBatch":
        """The same batch with as few unused prediction slots as `STEP` allows; they come last."""
        if self.mlm_positions is None or self.mlm_labels is None:
            return self
        M = max(1, -(-self.predictions // STEP)) * STEP
        return replace(self, mlm_positions=self.mlm_positions[:M], mlm_labels=self.mlm_labels[:M])

    def map(self, change: Callable[[Tensor], Tensor]) -> "PackedBatch":
        """The same batch with `change` applied to each tensor."""
        return replace(
            self,
            tokens=change(self.tokens),
            positions=change(self.positions),
            segments=change(self.segments),
            offsets=change(self.offsets),
            mlm_positions=None if self.mlm_positions is None else change(self.mlm_positions),
            mlm_labels=None if self.mlm_labels is None else change(self.mlm_labels),
            targets={name: change(tensor) for name, tensor in self.targets.items()},
        )

    def to(self, device: torch.device | str) -> "PackedBatch":
        """The same batch with its tensors on `device`."""
        return self.map(lambda tensor: tensor.to(device))


def filler_lengths(room: int, max_length: int) -> list[int]:
    """Lengths of the filler sequences for `room` unused slots, each at most `max_length`."""
    lengths = [max_length] * (room // max_length)
    if room % max_length:
        lengths.append(room % max_length)
    return lengths


def blank(
    lengths: Sequence[int],
    *,
    max_length: int,
    pad: int,
    slots: int | None = None,
    sequence_slots: int | None = None,
    sequence_index: np.ndarray | None = None,
) -> PackedBatch:
    """A batch with room for sequences of these lengths, one after the other: all tokens are `pad`.

    Args:
        lengths: of the sequences, special tokens included, each 1 to `max_length`.
        max_length: the longest that a sequence may be (filler sequences too).
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
    all_lengths = [*lengths, *filler_lengths(T - used, max_length)]
    S = len(all_lengths) if sequence_slots is None else sequence_slots
    if len(all_lengths) > S:
        raise ValueError(f"{len(all_lengths)} sequences do not fit {S} sequence slots")
    offsets = np.full(S + 1, T, dtype=np.int32)
    offsets[0] = 0
    np.cumsum(all_lengths, out=offsets[1 : len(all_lengths) + 1])
    starts = np.repeat(offsets[: len(all_lengths)], all_lengths)
    return PackedBatch(
        tokens=torch.from_numpy(np.full(T, pad, dtype=np.int32)),
        positions=torch.from_numpy(np.arange(T, dtype=np.int32) - starts),
        segments=torch.zeros(T, dtype=torch.uint8),
        offsets=torch.from_numpy(offsets),
        lengths=tuple(all_lengths),
        real_sequences=len(lengths),
        max_length=max_length,
        sequence_index=sequence_index,
    )


def pack(
    sequences: Sequence[np.ndarray],
    *,
    max_length: int,
    pad: int,
    slots: int | None = None,
    sequence_slots: int | None = None,
    segments: Sequence[np.ndarray] | None = None,
    sequence_index: np.ndarray | None = None,
) -> PackedBatch:
    """Lay sequences one after the other into a batch of T = `slots` tokens and S = `sequence_slots`.

    Args:
        sequences: token ids of each sequence, special tokens included.
        segments: token types of each sequence, by default zeros.
        max_length, pad, slots, sequence_slots, sequence_index: as in `blank`.

    Raises:
        ValueError: as `blank` does.
    """
    batch = blank(
        [len(sequence) for sequence in sequences],
        max_length=max_length,
        pad=pad,
        slots=slots,
        sequence_slots=sequence_slots,
        sequence_index=sequence_index,
    )
    used = batch.real_tokens
    if sequences:
        np.concatenate(sequences, out=batch.tokens.numpy()[:used], casting="unsafe")
        if segments is not None:
            np.concatenate(segments, out=batch.segments.numpy()[:used], casting="unsafe")
    return batch
