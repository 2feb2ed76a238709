"""The length histogram, on which a packing depends, and the plan, which is the packing.

`counts[i]` is the number of sequences of length i, special tokens included. Algorithms see a few hundred
numbers, however large the corpus is.
"""

import operator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy import ndarray

from brimful.base.console import pluralise
from brimful.base.errors import BrimfulError

MAX_CAPACITY = 1 << 24
MAX_SLOTS = 2.0**62  # sums of tokens stay in int64


def cumulate(values: ndarray) -> ndarray:
    """Return the sums of the first 0, 1 ... n values, int64 (n + 1,): where groups of these sizes begin."""
    return np.concatenate([[0], np.cumsum(values)])


def _are_counts(values: ndarray) -> bool:
    """Whether an array is one-dimensional and holds whole numbers of at least 0."""
    is_whole = values.dtype.kind in "iu" or not values.size
    return values.ndim == 1 and is_whole and values.min(initial=0) >= 0


def count_lengths(lengths: ndarray) -> ndarray:
    """Count how many of `lengths` equal each index: int64 (max + 1,).

    Raises:
        BrimfulError: a length is not a whole number of at least 0.
    """
    lengths = np.asarray(lengths)
    if not _are_counts(lengths):
        raise BrimfulError("lengths must be a one-dimensional array of whole numbers of at least 0")
    return np.bincount(lengths.astype(np.int64))


def check_limits(capacity: int, max_sequences: int | None) -> tuple[int, int | None]:
    """Return the limits as Python integers, which never overflow.

    Raises:
        BrimfulError: a limit is below 1, or the capacity is above 16,777,216.
    """
    capacity = operator.index(capacity)
    if max_sequences is not None:
        max_sequences = operator.index(max_sequences)
    if not 1 <= capacity <= MAX_CAPACITY:
        raise BrimfulError(f"capacity is {capacity}: it must be at least 1 and at most {MAX_CAPACITY:,}")
    if max_sequences is not None and max_sequences < 1:
        raise BrimfulError(f"max_sequences is {max_sequences}: it must be at least 1")
    return capacity, max_sequences


def depth_limit(capacity: int, max_sequences: int | None) -> int:
    """Return the most sequences in a row; without `max_sequences` the capacity is the limit."""
    return min(max_sequences or capacity, capacity)


def check_counts(counts: ndarray, capacity: int) -> ndarray:
    """Check the counts, and return them as int64 (capacity + 1,).

    Raises:
        BrimfulError: a sequence is empty or longer than `capacity`, the counts are not whole numbers of at
            least 0, or all rows together would have 2^62 slots.
    """
    counts = np.asarray(counts)
    if not _are_counts(counts):
        raise BrimfulError("a length histogram is a list of counts, each a whole number of at least 0")
    if counts.sum(dtype=np.float64) * capacity >= MAX_SLOTS:
        raise BrimfulError(
            f"{counts.sum(dtype=np.float64):,.0f} sequences are too many for rows of {capacity:,}"
        )
    counts = counts.astype(np.int64)
    if len(counts) and counts[0]:
        raise BrimfulError(f"{pluralise(int(counts[0]), 'sequence')} of length 0: leave empty sequences out")
    if too_long := int(counts[capacity + 1 :].sum()):
        raise BrimfulError(
            f"{pluralise(too_long, 'sequence')} longer than the capacity of {capacity:,} tokens (the longest:"
            f" {np.flatnonzero(counts)[-1]:,}): cut them, or raise the capacity"
        )
    counts = counts[: capacity + 1]
    return np.pad(counts, (0, capacity + 1 - len(counts)))


@dataclass(frozen=True, eq=False)
class Plan:
    """Rows by pattern: pattern i is `lengths[offsets[i]:offsets[i + 1]]`, and `repeats[i]` rows follow it.

    Attributes:
        capacity: token slots of a row.
        lengths: int32, the sequences' lengths, pattern after pattern; each sums to at most `capacity`.
        offsets: int64 (patterns + 1,).
        repeats: int64 (patterns,), at least 1.
        lower_bound: a proven minimum of rows for these sequences.
    """

    capacity: int
    lengths: ndarray
    offsets: ndarray
    repeats: ndarray
    lower_bound: int

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
        return int(self.counts() @ np.arange(self.capacity + 1))

    @property
    def efficiency(self) -> float:
        """Real tokens divided by token slots."""
        return self.tokens / (self.rows * self.capacity) if self.rows else 1.0

    @property
    def packing_factor(self) -> float:
        """Sequences in a row on average: the speed-up over one sequence per row (Krell et al. 2021, section
        3.1)."""
        return self.sequences / self.rows if self.rows else 1.0

    @property
    def rows_above_bound(self) -> int:
        """The most rows that a better packing could save."""
        return self.rows - self.lower_bound

    def counts(self) -> ndarray:
        """Count the sequences of each length that the plan places: int64 (capacity + 1,)."""
        counts = np.zeros(self.capacity + 1, dtype=np.int64)
        # `add.at`, not `bincount` with weights, whose float64 sums would round more than 2^53 sequences.
        np.add.at(counts, self.lengths, np.repeat(self.repeats, np.diff(self.offsets)))
        return counts


def lower_bound(counts: ndarray, capacity: int, max_sequences: int | None = None) -> int:
    """Compute a minimum of rows that every packing needs, from sums over the histogram.

    It is the largest of three bounds: all tokens over the capacity, all sequences over `max_sequences`, and
    L2 of Martello and Toth (1990, section 8.3.2). The bound of the linear program is tighter and takes more
    time: `cutting_stock` proves it.

    Args:
        counts: number of sequences of each length, as `check_counts` returns it.
    """
    # [i] of both: the sequences of less than i tokens, and their tokens; int64 (capacity + 2,)
    sequences = cumulate(counts)
    tokens = cumulate(counts * np.arange(capacity + 1))
    half = capacity // 2
    # L2 holds for any a up to half the capacity. A sequence longer than half a row needs a row of its own. If
    # it has at most capacity - a tokens, its row has space for sequences of a tokens to half a row. Those
    # tokens of such sequences that exceed all this space need more rows.
    a = np.arange(half + 1)
    partners = sequences[capacity - a + 1] - sequences[half + 1]
    space = partners * capacity - (tokens[capacity - a + 1] - tokens[half + 1])
    overflow = np.maximum(tokens[half + 1] - tokens[a] - space, 0)
    more_rows = -(-overflow // capacity)  # rounded up
    l2 = int(sequences[-1] - sequences[half + 1] + more_rows.max())
    bounds = [-(-int(tokens[-1]) // capacity), l2]
    if max_sequences:
        bounds.append(-(-int(sequences[-1]) // max_sequences))
    return max(bounds)
