"""Cutting stock: the rows of the linear program, rounded, within a row or two of the proven minimum."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np
from scipy.sparse import csc_array

from brimful.packing.histogram import Plan, checked_counts
from brimful.packing.knapsack import count_layers, fill_rows
from brimful.packing.pack_first import best_fit
from brimful.packing.relaxation import Relaxation, relax
from brimful.packing.slots import Patterns, fill_slots, unplaced

_MOST_LENGTHS = 1024  # of which one linear program takes about 0.4 s
_MOST_CELLS = 8_000_000  # of the knapsack's table, 12 bytes each
_SHARES = (1.0, 0.9, 0.8, 0.7, 0.65, 0.6, 0.55, 0.5)  # of a row from which it is rounded up
_CLEAR = (0.6, 0.8, 0.9)  # dives: the share from which rows are fixed when the rest is solved anew
_WORK, _DIVE_WORK = 3_000_000_000, 1_000_000_000  # about nanoseconds
_FILL_WORK = 100_000_000  # steps of filling rows one by one, about a nanosecond each


def cutting_stock(counts: np.ndarray, capacity: int, max_sequences: int | None = None) -> Plan:
    """The fewest rows known: column generation with rounding; never more than best-fit's.

    The plan's lower bound is that of the linear program, proven in whole numbers. Where best-fit reaches the
    bound by sums, as it mostly does at large capacities, its plan is the answer.

    Work is limited by counting it, not by a clock, and nothing is left to chance: the same histogram gives
    the same plan. Where that stops the program early, the plan is still good, the bound weaker. Above 1,024
    distinct lengths, the program sees 1,024, to which the others are rounded up, and the bound is that by
    sums. Where `max_sequences` times `capacity` is above 8 million, and a row has space for more of the
    shortest, the plan is best-fit's.

    Args:
        counts: int (longest + 1,), number of sequences of each length.
        capacity: token slots of a row.
        max_sequences: the most sequences in a row (packing depth); None = no limit.

    Raises:
        BrimfulError: see `checked_counts`.
    """
    counts = checked_counts(counts, capacity, max_sequences)
    best = best_fit(counts, capacity, max_sequences)
    lengths = np.flatnonzero(counts)
    if best.rows == best.lower_bound:
        return best
    depth = min(max_sequences or capacity, capacity)
    if count_layers(lengths, capacity, depth) * (capacity + 1) > _MOST_CELLS:
        return best
    if len(lengths) > _MOST_LENGTHS:
        coarse = cutting_stock(_coarse(counts), capacity, max_sequences)
        if coarse.rows >= best.rows:
            return best
        return fill_slots(_plan_patterns(coarse), counts, capacity, best.lower_bound)
    search = _Search(capacity, max_sequences, best.rows, best.lower_bound)
    search.run(counts)
    if not search.patterns:
        return replace(best, lower_bound=search.bound)
    return fill_slots(search.patterns, counts, capacity, search.bound)


@dataclass
class _Search:
    """Dives (Wäscher and Gau, 1996): round the program's rows, fix what is clear, and solve the rest anew."""

    capacity: int
    max_sequences: int | None
    fewest: int
    bound: int
    patterns: Patterns = field(default_factory=list)
    work: int = 0

    def run(self, counts: np.ndarray) -> None:
        """Find `patterns` of the `fewest` rows and prove the `bound`."""
        relaxation = self._relax(counts, _WORK)
        if relaxation is None:
            return
        self.bound = max(self.bound, relaxation.lower_bound)
        self.work = 0
        for clear in _CLEAR:
            self._dive(counts, relaxation, clear)

    def _dive(self, counts: np.ndarray, relaxation: Relaxation | None, clear: float) -> None:
        fixed: Patterns = []
        fixed_rows = 0
        while relaxation is not None and fixed_rows + relaxation.lower_bound < self.fewest:
            lengths = np.flatnonzero(counts)
            for share in _SHARES:
                rows = _rounded(relaxation.rows, share)
                rest = _unplaced(relaxation.patterns, rows, lengths, counts)
                for plan in _heuristics(rest, self.capacity, self.max_sequences):
                    total = fixed_rows + int(rows.sum()) + plan.rows
                    if total < self.fewest:
                        rounded = _patterns(relaxation.patterns, rows, lengths)
                        self.fewest, self.patterns = total, fixed + rounded + _plan_patterns(plan)
            rows = _rounded(relaxation.rows, clear)
            if not rows.any():
                rows[relaxation.rows.argmax()] = 1
            fixed = fixed + _patterns(relaxation.patterns, rows, lengths)
            fixed_rows += int(rows.sum())
            counts = _unplaced(relaxation.patterns, rows, lengths, counts)
            if self.fewest == self.bound or not counts.any() or self.work >= _DIVE_WORK:
                return
            relaxation = self._relax(counts, _DIVE_WORK - self.work)

    def _relax(self, counts: np.ndarray, work: int) -> Relaxation | None:
        lengths = np.flatnonzero(counts)
        columns = _columns(best_fit(counts, self.capacity, self.max_sequences), lengths)
        depth = min(self.max_sequences or self.capacity, self.capacity)
        relaxation = relax(lengths, counts[lengths], self.capacity, depth, columns, work)
        self.work += relaxation.work if relaxation else 0
        return relaxation


def _coarse(counts: np.ndarray) -> np.ndarray:
    """Counts of `_MOST_LENGTHS` lengths: those between take the next longer one's place."""
    lengths = np.flatnonzero(counts)
    ends = np.linspace(0, len(lengths), _MOST_LENGTHS + 1).astype(np.int64)
    coarse = np.zeros_like(counts)
    coarse[lengths[ends[1:] - 1]] = np.add.reduceat(counts[lengths], ends[:-1])
    return coarse


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
        depth = min(max_sequences or capacity, capacity)
        indices, offsets = fill_rows(counts[lengths], lengths, capacity, depth)
        repeats = np.ones(len(offsets) - 1, dtype=np.int64)
        yield Plan(capacity, lengths[indices].astype(np.int32), offsets, repeats, plan.lower_bound)


def _columns(plan: Plan, lengths: np.ndarray) -> csc_array:
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
    return _patterns(_columns(plan, lengths), plan.repeats, lengths)
