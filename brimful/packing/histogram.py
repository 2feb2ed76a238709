"""The length histogram, which is all that a packing depends on, and the plan that a packing is.

`counts[i]` is the number of sequences of length i; lengths include special tokens. So algorithms see a few
hundred numbers, however large the corpus.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from brimful.errors import BrimfulError


def count_lengths(lengths: np.ndarray) -> np.ndarray:
    """int64 (max + 1,): how many of `lengths` (integers, at least 0) equal each index."""
    return np.bincount(np.asarray(lengths, dtype=np.int64))


def checked_counts(counts: np.ndarray, capacity: int, max_sequences: int | None) -> np.ndarray:
    """The counts as int64 (capacity + 1,), if sequences of these lengths can share rows.

    Raises:
        BrimfulError: a sequence is empty or longer than `capacity`, a count is negative, or a limit
            is below 1.
    """
    counts = np.asarray(counts, dtype=np.int64)
    if capacity < 1:
        raise BrimfulError(f"capacity is {capacity}: it must be at least 1")
    if max_sequences is not None and max_sequences < 1:
        raise BrimfulError(f"max_sequences is {max_sequences}: it must be at least 1")
    if counts.ndim != 1 or (counts < 0).any():
        raise BrimfulError("a length histogram is a list of counts, each at least 0")
    if len(counts) and counts[0]:
        raise BrimfulError(f"{counts[0]:,} sequences have length 0: leave empty sequences out")
    if too_long := int(counts[capacity + 1 :].sum()):
        raise BrimfulError(
            f"{too_long:,} sequences are longer than the capacity of {capacity:,} tokens (the longest:"
            f" {np.flatnonzero(counts)[-1]:,}): cut them, or raise the capacity"
        )
    fitting = np.zeros(capacity + 1, dtype=np.int64)
    fitting[: len(counts)] = counts[: capacity + 1]
    return fitting


@dataclass(frozen=True, eq=False)
class Plan:
    """Rows by pattern: pattern i is `lengths[offsets[i]:offsets[i + 1]]`, and `repeats[i]` rows follow it.

    Attributes:
        capacity: token slots of a row.
        lengths: int32, the sequences' lengths, pattern after pattern; each sums to at most `capacity`.
        offsets: int64 (patterns + 1,).
        repeats: int64 (patterns,), at least 1.
        lower_bound: rows that no packing of these sequences can do without, as far as it was proven.
    """

    capacity: int
    lengths: np.ndarray
    offsets: np.ndarray
    repeats: np.ndarray
    lower_bound: int

    @classmethod
    def of(
        cls, capacity: int, patterns: Iterable[Sequence[int]], repeats: Iterable[int], lower_bound: int
    ) -> "Plan":
        """A plan of patterns given one by one."""
        patterns = list(patterns)
        return cls(
            capacity,
            np.array([length for pattern in patterns for length in pattern], dtype=np.int32),
            np.cumsum([0, *map(len, patterns)], dtype=np.int64),
            np.array(list(repeats), dtype=np.int64),
            lower_bound,
        )

    @property
    def patterns(self) -> list[tuple[int, ...]]:
        """The patterns, one by one."""
        lengths, offsets = self.lengths.tolist(), self.offsets.tolist()
        return [tuple(lengths[a:b]) for a, b in pairwise(offsets)]

    @property
    def rows(self) -> int:
        """Number of rows."""
        return int(self.repeats.sum())

    @property
    def sequences(self) -> int:
        """Number of sequences."""
        return int((np.diff(self.offsets) * self.repeats).sum())

    @property
    def tokens(self) -> int:
        """Number of real tokens."""
        return int((self.lengths * np.repeat(self.repeats, np.diff(self.offsets))).sum())

    @property
    def depth(self) -> int:
        """The most sequences that share a row."""
        return int(np.diff(self.offsets).max(initial=0))

    @property
    def efficiency(self) -> float:
        """Share of token slots that hold a real token."""
        return self.tokens / (self.rows * self.capacity) if self.rows else 1.0

    @property
    def packing_factor(self) -> float:
        """Sequences in a row on average: the speed-up over one sequence per row (Krell et al., 2021)."""
        return self.sequences / self.rows if self.rows else 1.0

    @property
    def rows_above_bound(self) -> int:
        """The most rows by which any packing could be better than this one."""
        return self.rows - self.lower_bound

    def counts(self) -> np.ndarray:
        """int64 (capacity + 1,): how many sequences of each length the plan places."""
        each = np.repeat(self.repeats, np.diff(self.offsets))
        counts = np.zeros(self.capacity + 1, dtype=np.int64)
        np.add.at(counts, self.lengths, each)
        return counts


def padded_efficiency(counts: np.ndarray, max_length: int | None = None) -> float:
    """Share of real tokens when every sequence is padded to `max_length` (without it: to the longest)."""
    used = np.flatnonzero(counts)
    if not len(used):
        return 1.0
    tokens = float(np.dot(counts, np.arange(len(counts))))
    return tokens / (float(counts.sum()) * (max_length or int(used[-1])))
