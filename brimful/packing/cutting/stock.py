"""Cutting stock: the fewest rows known, with a proven bound.

The linear program gives a bound, and rows of each pattern that are not whole numbers. Rounded, they come
within a row or two of the bound in most cases. A slot of a pattern holds a sequence of at most its own
length, or none.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np
from scipy.sparse import csc_array

from brimful.packing.cutting.knapsack import count_layers, count_steps, fill_rows
from brimful.packing.cutting.program import LEAST_PRICINGS, Relaxation, relax
from brimful.packing.histogram import Plan, check_limits, checked_counts, depth_limit
from brimful.packing.pack_first import best_fit

_MOST_LENGTHS = 1024  # a linear program of this many takes about 0.4 s
_MOST_CELLS = 8_000_000  # of the knapsack's table, 12 bytes each
_WORK = 3_000_000_000  # about nanoseconds
_FROM = (1.0, 0.9, 0.8, 0.7, 0.65, 0.6, 0.55, 0.5)  # fractions of a row from which it is rounded up
# Of a dive: the fraction from which rows are fixed before the rest is solved anew.
_DIVE_FRACTIONS = (0.6, 0.8, 0.9)
_DIVE_WORK = 1_000_000_000  # about nanoseconds
_FILL_WORK = 100_000_000  # steps of filling rows one by one, about a nanosecond each


Runs = list[tuple[int, int]]
"""A pattern, or what fills the slots of a length, in order: (length, how many of it)."""

Patterns = list[tuple[Runs, int]]
"""Patterns with the number of rows of each."""


def cutting_stock(counts: np.ndarray, capacity: int, max_sequences: int | None = None) -> Plan:
    """The fewest rows known, by column generation with rounding; never more than best-fit's.

    The plan's lower bound is the bound of the linear program, proven in whole numbers. Where best-fit reaches
    the bound by sums, as it usually does at large capacities without a depth limit, its plan is returned; and
    where the program would take too long, as with thousands of lengths.

    Work is limited by counting it, not by a clock: the same histogram gives the same plan.

    Args:
        counts: int (longest + 1,), number of sequences of each length.
        capacity: token slots of a row.
        max_sequences: the most sequences in a row (packing depth); None = no limit.

    Raises:
        BrimfulError: see `checked_counts`.
    """
    capacity, max_sequences = check_limits(capacity, max_sequences)
    counts = checked_counts(counts, capacity, max_sequences)
    best = best_fit(counts, capacity, max_sequences)
    lengths, depth = np.flatnonzero(counts), depth_limit(capacity, max_sequences)
    if (
        best.rows == best.lower_bound
        or len(lengths) > _MOST_LENGTHS
        or count_layers(lengths, capacity, depth) * (capacity + 1) > _MOST_CELLS
        or count_steps(lengths, capacity, depth) * LEAST_PRICINGS > _WORK
    ):
        return best
    search = _Search(capacity, max_sequences, best.rows, best.lower_bound)
    relaxation = search.relax(counts, _WORK)
    if relaxation is None:
        return best
    search.bound = max(search.bound, relaxation.lower_bound)
    search.dive(counts, relaxation)
    if not search.patterns:
        return replace(best, lower_bound=search.bound)
    return fill_slots(search.patterns, counts, capacity, search.bound)


@dataclass
class _Search:
    """A search for fewer rows than are known.

    Attributes:
        capacity: token slots of a row.
        max_sequences: the most sequences in a row; None = no limit.
        fewest: rows of the best packing known.
        bound: a proven minimum of rows.
        patterns: the patterns of these rows, once the search has found some.
    """

    capacity: int
    max_sequences: int | None
    fewest: int
    bound: int
    patterns: Patterns = field(default_factory=list)

    def dive(self, counts: np.ndarray, relaxation: Relaxation) -> None:
        """Dives (Wäscher and Gau, 1996): round the program's rows, fix clear ones, solve the rest."""
        work = 0
        for clear in _DIVE_FRACTIONS:
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

    def round(self, counts: np.ndarray, relaxation: Relaxation, fixed: Patterns) -> None:
        """Round the program's rows, to be added to those already `fixed`, and pack the rest by heuristics."""
        fixed_rows = sum(n for _, n in fixed)
        lengths = np.flatnonzero(counts)
        for share in _FROM:
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
        columns = _columns_of(best_fit(counts, self.capacity, self.max_sequences), lengths)
        depth = depth_limit(self.capacity, self.max_sequences)
        return relax(lengths, counts[lengths], self.capacity, depth, columns, work)


def _rounded(rows: np.ndarray, share: float) -> np.ndarray:
    return np.floor(rows + (1 - share + 1e-6)).astype(np.int64)


def _unplaced(columns: csc_array, rows: np.ndarray, lengths: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """int64 (capacity + 1,): sequences without a slot in these rows of these columns."""
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


def _columns_of(plan: Plan, lengths: np.ndarray) -> csc_array:
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
    return _patterns(_columns_of(plan, lengths), plan.repeats, lengths)


def unplaced(slots: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """The fewest and shortest sequences that are left without a slot.

    Args:
        slots: int64 (m,), slots of each of m rising lengths.
        counts: int64 (m,), sequences of these lengths.

    Returns:
        int64 (m,), at most `counts`.
    """
    # From the longest on, sequences take any slot that is free; those that find none never will.
    free = np.cumsum((slots - counts)[::-1])
    short = np.maximum(-np.minimum.accumulate(free), 0)
    return np.diff(short, prepend=0)[::-1]


def fill_slots(patterns: Patterns, counts: np.ndarray, capacity: int, bound: int) -> Plan:
    """The plan that puts the longest sequence into the longest slot, and so on; empty slots go.

    Args:
        patterns: their slots hold all sequences.
        counts: int64 (capacity + 1,), number of sequences of each length.
        bound: the plan's lower bound.
    """
    slots: dict[int, int] = {}
    for runs, rows in patterns:
        for length, times in runs:
            slots[length] = slots.get(length, 0) + times * rows
    contents = _contents(slots, counts)

    filled: list[Runs] = []
    repeats: list[int] = []
    for runs, rows in patterns:
        while rows:
            # Equal rows as far as the first run of each slot goes; at least one row, from several runs.
            alike = min([rows, *(contents[length][-1][1] // times for length, times in runs)])
            alike = max(alike, 1)
            parts = [part for length, times in runs for part in _take(contents[length], times, alike)]
            if parts:
                filled.append(sorted(parts, reverse=True))
                repeats.append(alike)
            rows -= alike
    placed = [length for runs in filled for length, _ in runs]
    held = [n for runs in filled for _, n in runs]
    sizes = [sum(n for _, n in runs) for runs in filled]
    return Plan(
        capacity,
        np.repeat(np.array(placed, dtype=np.int32), np.array(held, dtype=np.int64)),
        np.cumsum([0, *sizes], dtype=np.int64),
        np.array(repeats, dtype=np.int64),
        bound,
    )


def _contents(slots: dict[int, int], counts: np.ndarray) -> dict[int, Runs]:
    """The content of the slots of each length: runs, the last one first; length 0 is an empty slot."""
    lengths = np.flatnonzero(counts)
    sequences = [*zip(lengths.tolist(), counts[lengths].tolist(), strict=True)]
    contents: dict[int, Runs] = {}
    for slot in sorted(slots, reverse=True):
        room, runs = slots[slot], []
        while room:
            length, left = sequences.pop() if sequences else (0, room)
            runs.append((length, min(left, room)))
            if left > room:
                sequences.append((length, left - room))
            room -= min(left, room)
        contents[slot] = runs[::-1]
    return contents


def _take(content: Runs, times: int, rows: int) -> Runs:
    """Take `times` sequences for each row; returns what a row gets. Several runs only if `rows` is 1."""
    taken, want = [], times * rows
    while want:
        length, left = content.pop()
        took = min(left, want)
        if left > took:
            content.append((length, left - took))
        if length:
            taken.append((length, took // rows))
        want -= took
    return taken
