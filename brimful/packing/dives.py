"""Whole rows from those of the linear program, mostly within a row or two of its bound."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from scipy.sparse import csc_array

from brimful.packing.histogram import Plan, depth_limit
from brimful.packing.knapsack import fill_rows
from brimful.packing.pack_first import best_fit
from brimful.packing.relaxation import Relaxation, relax
from brimful.packing.slots import Patterns, unplaced

_SHARES = (1.0, 0.9, 0.8, 0.7, 0.65, 0.6, 0.55, 0.5)  # of a row from which it is rounded up
_CLEAR = (0.6, 0.8, 0.9)  # dives: the share from which rows are fixed when the rest is solved anew
_DIVE_WORK = 1_000_000_000  # about nanoseconds
_FILL_WORK = 100_000_000  # steps of filling rows one by one, about a nanosecond each


@dataclass
class Search:
    """A search for fewer rows than are known.

    Attributes:
        capacity: token slots of a row.
        max_sequences: the most sequences in a row; None = no limit.
        fewest: rows known to do.
        bound: rows that no packing can do without.
        patterns: those of `fewest` rows, as soon as the search has found some.
    """

    capacity: int
    max_sequences: int | None
    fewest: int
    bound: int
    patterns: Patterns = field(default_factory=list)

    def dive(self, counts: np.ndarray, relaxation: Relaxation) -> None:
        """Dives (Wäscher and Gau, 1996): round the program's rows, fix what is clear, solve the rest anew."""
        work = 0
        for clear in _CLEAR:
            rest, left, fixed, fixed_rows = relaxation, counts, Patterns(), 0
            while fixed_rows + rest.lower_bound < self.fewest:
                self.round(left, rest, fixed)
                rows = _rounded(rest.rows, clear)
                if not rows.any():
                    rows[rest.rows.argmax()] = 1
                lengths = np.flatnonzero(left)
                fixed = fixed + _patterns(rest.patterns, rows, lengths)
                fixed_rows += int(rows.sum())
                left = _unplaced(rest.patterns, rows, lengths, left)
                if self.fewest == self.bound or not left.any() or work >= _DIVE_WORK:
                    break
                solved = self.relax(left, _DIVE_WORK - work)
                if solved is None:
                    break
                rest = solved
                work += rest.work

    def round(self, counts: np.ndarray, relaxation: Relaxation, fixed: Patterns | None = None) -> None:
        """Round the program's rows, to be added to those already `fixed`, and pack the rest by heuristics."""
        fixed = fixed or []
        fixed_rows = sum(n for _, n in fixed)
        lengths = np.flatnonzero(counts)
        for share in _SHARES:
            rows = _rounded(relaxation.rows, share)
            rest = _unplaced(relaxation.patterns, rows, lengths, counts)
            for plan in _heuristics(rest, self.capacity, self.max_sequences):
                total = fixed_rows + int(rows.sum()) + plan.rows
                if total < self.fewest:
                    rounded = _patterns(relaxation.patterns, rows, lengths)
                    self.fewest, self.patterns = total, fixed + rounded + _plan_patterns(plan)

    def relax(self, counts: np.ndarray, work: int) -> Relaxation | None:
        """The program of these sequences; see `relax`."""
        lengths = np.flatnonzero(counts)
        columns = columns_of(best_fit(counts, self.capacity, self.max_sequences), lengths)
        depth = depth_limit(self.capacity, self.max_sequences)
        return relax(lengths, counts[lengths], self.capacity, depth, columns, work)


def _rounded(rows: np.ndarray, share: float) -> np.ndarray:
    return np.floor(rows + (1 - share + 1e-6)).astype(np.int64)


def _unplaced(columns: csc_array, rows: np.ndarray, lengths: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """int64 (capacity + 1,): sequences without a slot in so many rows of these columns."""
    rest = np.zeros_like(counts)
    rest[lengths] = unplaced(columns.astype(np.int64) @ rows, counts[lengths])
    return rest


def _heuristics(counts: np.ndarray, capacity: int, max_sequences: int | None) -> Iterator[Plan]:
    """Plans of the few sequences that rounding leaves."""
    plan = best_fit(counts, capacity, max_sequences)
    yield plan
    lengths = np.flatnonzero(counts)
    if plan.rows > plan.lower_bound and plan.rows * len(lengths) * capacity <= _FILL_WORK:
        depth = depth_limit(capacity, max_sequences)
        indices, offsets = fill_rows(counts[lengths], lengths, capacity, depth)
        repeats = np.ones(len(offsets) - 1, dtype=np.int64)
        yield Plan(capacity, lengths[indices].astype(np.int32), offsets, repeats, plan.lower_bound)


def columns_of(plan: Plan, lengths: np.ndarray) -> csc_array:
    """The plan's patterns as columns of the program."""
    indices = np.searchsorted(lengths, plan.lengths)
    shape = (len(lengths), len(plan.repeats))
    columns = csc_array((np.ones(len(indices)), indices, plan.offsets), shape=shape)
    columns.sum_duplicates()
    return columns


def _patterns(columns: csc_array, rows: np.ndarray, lengths: np.ndarray) -> Patterns:
    used = np.flatnonzero(rows)
    columns = columns[:, used]
    held, times = lengths[columns.indices].tolist(), columns.data.astype(np.int64).tolist()
    return [
        ([*zip(held[a:b], times[a:b], strict=True)], n)
        for (a, b), n in zip(pairwise(columns.indptr.tolist()), rows[used].tolist(), strict=True)
    ]


def _plan_patterns(plan: Plan) -> Patterns:
    lengths = np.unique(plan.lengths)
    return _patterns(columns_of(plan, lengths), plan.repeats, lengths)
