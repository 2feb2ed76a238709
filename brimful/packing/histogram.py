"""The length histogram, on which a packing depends, and the plan, which is the packing.

`counts[i]` is the number of sequences of length i, special tokens included. Algorithms see a few hundred
numbers, however large the corpus is.
"""

import operator
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import NoReturn

import numpy as np

from brimful.base.errors import BrimfulError

PUBLISHED = {"wikipedia-512": Path(__file__).parent / "histograms" / "wikipedia-512.json"}
"""Histograms that come with this package, by name; each file says where its counts are from."""
LARGEST_CAPACITY = 1 << 24
_MOST_SLOTS = 2.0**62  # sums of tokens stay in int64


def count_lengths(lengths: np.ndarray) -> np.ndarray:
    """int64 (max + 1,): how many of `lengths` equal each index.

    Raises:
        BrimfulError: a length is not a whole number of at least 0.
    """
    lengths = _whole(lengths)
    if len(lengths) and lengths.min() < 0:
        _refuse_empty(int((lengths < 0).sum()), int(lengths.min()))
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


def _whole(lengths: np.ndarray) -> np.ndarray:
    lengths = np.asarray(lengths)
    if lengths.ndim != 1 or (len(lengths) and lengths.dtype.kind not in "iu"):
        raise BrimfulError("lengths must be a one-dimensional array of whole numbers")
    return lengths


def checked_lengths(lengths: np.ndarray, capacity: int) -> np.ndarray:
    """The lengths as int64 (n,), checked to fit a row.

    Raises:
        BrimfulError: a length is not a whole number, is below 1, or is above `capacity`.
    """
    lengths = _whole(lengths)
    if len(lengths):
        shortest, longest = int(lengths.min()), int(lengths.max())
        if shortest < 1:
            _refuse_empty(int((lengths < 1).sum()), shortest)
        if longest > capacity:
            _refuse_long(int((lengths > capacity).sum()), longest, capacity)
    return lengths.astype(np.int64)


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
        _refuse_empty(int(counts[0]), 0)
    if too_long := int(counts[capacity + 1 :].sum()):
        _refuse_long(too_long, int(np.flatnonzero(counts)[-1]), capacity)
    fitting = np.zeros(capacity + 1, dtype=np.int64)
    fitting[: len(counts)] = counts[: capacity + 1]
    return fitting


def _refuse_empty(count: int, shortest: int) -> NoReturn:
    what = "length 0" if shortest == 0 else f"a length below 1 (the shortest: {shortest})"
    raise BrimfulError(f"{_sequences(count, 'has', 'have')} {what}: leave empty sequences out")


def _refuse_long(count: int, longest: int, capacity: int) -> NoReturn:
    raise BrimfulError(
        f"{_sequences(count, 'is', 'are')} longer than the capacity of {capacity:,} tokens (the longest:"
        f" {longest:,}): cut them, or raise the capacity"
    )


def _sequences(count: int, one: str, more: str) -> str:
    return f"1 sequence {one}" if count == 1 else f"{count:,} sequences {more}"


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
        each = np.concatenate([[0], np.cumsum(self.lengths, dtype=np.int64)])[self.offsets]
        return int((np.diff(each) * self.repeats).sum())

    @property
    def depth(self) -> int:
        """The most sequences that share a row."""
        return int(np.diff(self.offsets).max(initial=0))

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


def padded_efficiency(counts: np.ndarray, max_length: int | None = None) -> float:
    """Real tokens divided by slots when each sequence is padded to `max_length`, or to the longest."""
    used = np.flatnonzero(counts)
    if not len(used):
        return 1.0
    tokens = float(np.dot(counts, np.arange(len(counts))))
    return tokens / (float(counts.sum()) * (max_length or int(used[-1])))
