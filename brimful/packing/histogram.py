"""The length histogram, and what it says of any packing: bounds and efficiencies.

`counts[i]` is the number of sequences of length i; lengths include special tokens. A packing depends on
nothing else, so algorithms see a few hundred numbers, however large the corpus.
"""

from dataclasses import dataclass

import numpy as np


def count_lengths(lengths: np.ndarray) -> np.ndarray:
    """int64 (max + 1,): how many of `lengths` (positive integers) equal each index."""
    return np.bincount(np.asarray(lengths, dtype=np.int64))


def lower_bound(counts: np.ndarray, capacity: int) -> int:
    """Rows that no packing can do without: all tokens over the capacity, and one row for each sequence
    longer than half of it (no two of those share a row)."""
    tokens = int(np.dot(counts, np.arange(len(counts))))
    return max(-(-tokens // capacity), int(counts[capacity // 2 + 1 :].sum()))


@dataclass(frozen=True)
class Plan:
    """Rows by pattern: `repeats[i]` rows hold sequences of the lengths `patterns[i]`.

    Attributes:
        capacity: token slots of a row.
        patterns: each a tuple of lengths, longest first, that sums to at most `capacity`.
        repeats: how many rows follow each pattern.
    """

    capacity: int
    patterns: tuple[tuple[int, ...], ...]
    repeats: tuple[int, ...]

    @property
    def rows(self) -> int:
        """Number of rows."""
        return sum(self.repeats)

    @property
    def sequences(self) -> int:
        """Number of sequences."""
        return sum(len(pattern) * n for pattern, n in zip(self.patterns, self.repeats, strict=True))

    @property
    def tokens(self) -> int:
        """Number of real tokens."""
        return sum(sum(pattern) * n for pattern, n in zip(self.patterns, self.repeats, strict=True))

    @property
    def depth(self) -> int:
        """The most sequences that share a row."""
        return max((len(pattern) for pattern in self.patterns), default=0)

    @property
    def efficiency(self) -> float:
        """Share of token slots that hold a real token."""
        return self.tokens / (self.rows * self.capacity) if self.rows else 1.0


def padded_efficiency(counts: np.ndarray, max_length: int | None = None) -> float:
    """Share of real tokens when every sequence is padded to `max_length` (without it: to the longest)."""
    used = np.flatnonzero(counts)
    if not len(used):
        return 1.0
    tokens = float(np.dot(counts, np.arange(len(counts))))
    return tokens / (float(counts.sum()) * (max_length or int(used[-1])))
