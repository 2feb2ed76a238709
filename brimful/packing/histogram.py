"""The length histogram, on which a packing depends, and the plan, which is the packing.

`counts[i]` is the number of sequences of length i, special tokens included. Algorithms see a few hundred
numbers, however large the corpus is.
"""

import operator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np

from brimful.base.console import pluralise
from brimful.base.errors import BrimfulError
from brimful.base.storage import read_json

PUBLISHED = {"wikipedia-512": Path(__file__).parent / "histograms" / "wikipedia-512.json"}
"""Histograms that come with this package, by name; each file says where its counts are from."""
LARGEST_CAPACITY = 1 << 24
_MOST_SLOTS = 2.0**62  # sums of tokens stay in int64


def read_histogram(name: str | Path) -> np.ndarray:
    """int64 (longest + 1,): the counts of a published histogram or of a JSON file.

    Args:
        name: `wikipedia-512`, or the path of a file {"counts": [...]}: counts[i] sequences of length i + 1.

    Raises:
        BrimfulError: the file cannot be read, or holds something else.
    """
    path = PUBLISHED.get(str(name), Path(name))
    value = read_json(path)
    counts = value.get("counts") if isinstance(value, dict) else None
    if not (isinstance(counts, list) and counts and all(type(n) is int and 0 <= n < 2**53 for n in counts)):
        raise BrimfulError(
            f'{path} must be a JSON object with "counts": a list of whole numbers, counts[i] being how many'
            " sequences have i + 1 tokens"
        )
    return np.array([0, *counts], dtype=np.int64)


def count_lengths(lengths: np.ndarray) -> np.ndarray:
    """int64 (max + 1,): how many of `lengths` equal each index.

    Raises:
        BrimfulError: a length is not a whole number of at least 0.
    """
    lengths = np.asarray(lengths)
    whole = lengths.dtype.kind in "iu" or not lengths.size
    if lengths.ndim != 1 or not whole or lengths.min(initial=0) < 0:
        raise BrimfulError("lengths must be a one-dimensional array of whole numbers of at least 0")
    return np.bincount(lengths.astype(np.int64))


def check_limits(capacity: int, max_sequences: int | None) -> tuple[int, int | None]:
    """The checked limits as Python integers, which never overflow.

    Raises:
        BrimfulError: a limit is below 1, or the capacity is above 16,777,216.
    """
    capacity = operator.index(capacity)
    max_sequences = None if max_sequences is None else operator.index(max_sequences)
    if not 1 <= capacity <= LARGEST_CAPACITY:
        raise BrimfulError(f"capacity is {capacity}: it must be at least 1 and at most {LARGEST_CAPACITY:,}")
    if max_sequences is not None and max_sequences < 1:
        raise BrimfulError(f"max_sequences is {max_sequences}: it must be at least 1")
    return capacity, max_sequences


def depth_limit(capacity: int, max_sequences: int | None) -> int:
    """The most sequences in a row, as a number: without `max_sequences` the capacity is the limit."""
    return min(max_sequences or capacity, capacity)


def checked_counts(counts: np.ndarray, capacity: int, max_sequences: int | None) -> np.ndarray:
    """The counts as int64 (capacity + 1,), checked.

    Raises:
        BrimfulError: a sequence is empty or longer than `capacity`, the counts are not whole numbers of at
            least 0, all rows together would have 2^62 slots, or see `check_limits`.
    """
    capacity, _ = check_limits(capacity, max_sequences)
    counts = np.asarray(counts)
    whole = counts.dtype.kind in "iu" or not counts.size
    if counts.ndim != 1 or not whole or (counts < 0).any():
        raise BrimfulError("a length histogram is a list of counts, each a whole number of at least 0")
    if counts.sum(dtype=np.float64) * capacity >= _MOST_SLOTS:
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
        lower_bound: a proven minimum of rows for these sequences.
    """

    capacity: int
    lengths: np.ndarray
    offsets: np.ndarray
    repeats: np.ndarray
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
        each = np.concatenate([[0], np.cumsum(self.lengths, dtype=np.int64)])[self.offsets]
        return int((np.diff(each) * self.repeats).sum())

    @property
    def efficiency(self) -> float:
        """Real tokens divided by token slots."""
        return self.tokens / (self.rows * self.capacity) if self.rows else 1.0

    @property
    def packing_factor(self) -> float:
        """Sequences in a row on average: the speed-up over one sequence per row (Krell et al., 2021)."""
        return self.sequences / self.rows if self.rows else 1.0

    @property
    def rows_above_bound(self) -> int:
        """How many rows fewer a better packing could have, at most."""
        return self.rows - self.lower_bound

    def counts(self) -> np.ndarray:
        """int64 (capacity + 1,): how many sequences of each length the plan places."""
        each = np.repeat(self.repeats, np.diff(self.offsets))
        counts = np.zeros(self.capacity + 1, dtype=np.int64)
        np.add.at(counts, self.lengths, each)
        return counts


def lower_bound(counts: np.ndarray, capacity: int, max_sequences: int | None = None) -> int:
    """A minimum of rows that every packing needs, from sums over the histogram.

    It is the largest of three bounds: all tokens over the capacity, all sequences over `max_sequences`, and
    L2 of Martello and Toth (1990, section 8.3.2). The bound of the linear program is tighter and takes more
    time: `cutting_stock` proves it.

    L2 holds for any a up to half the capacity. Sequences longer than half a row need a row each. Sequences
    of a to half a row's tokens fit into the space beside those of at most capacity - a; the tokens that do
    not fit there need more rows.

    Args:
        counts: int (longest + 1,), number of sequences of each length.

    Raises:
        BrimfulError: see `checked_counts`.
    """
    capacity, max_sequences = check_limits(capacity, max_sequences)
    counts = checked_counts(counts, capacity, max_sequences)
    sequences = np.concatenate([[0], np.cumsum(counts)])  # [i]: of less than i tokens
    tokens = np.concatenate([[0], np.cumsum(counts * np.arange(capacity + 1))])
    half = capacity // 2
    a = np.arange(half + 1)
    beside = sequences[capacity - a + 1] - sequences[half + 1]
    space = beside * capacity - (tokens[capacity - a + 1] - tokens[half + 1])
    overflow = np.maximum(tokens[half + 1] - tokens[a] - space, 0)
    more = -(-overflow // capacity)
    l2 = int(sequences[-1] - sequences[half + 1] + more.max())
    by_depth = -(-int(sequences[-1]) // max_sequences) if max_sequences else 0
    return max(-(-int(tokens[-1]) // capacity), l2, by_depth)
