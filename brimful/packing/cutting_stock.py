"""Cutting stock: the fewest rows known, with a proven bound.

A linear program minimises the rows of all patterns such that every sequence has a slot. Its patterns are made
as they are needed (column generation: Gilmore and Gomory, 1961 and 1963). A slot may hold a sequence shorter
than its own length: the program has a column without cost from each length to the next shorter one. These
dual cuts (Valério de Carvalho, 2005) keep the duals from oscillating. Rounded, the program's rows come within
a row or two of the bound in most cases.
"""

import math
import operator
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy import ndarray
from scipy.optimize import linprog
from scipy.sparse import csc_array, diags_array, hstack

from brimful.base.compiled import compiled
from brimful.base.randomness import derive_key, draw_uniform
from brimful.packing.histogram import Plan, check_counts, check_limits, cumulate, depth_limit
from brimful.packing.pack_first import best_fit

MAX_LENGTHS = 1024
"""The most different lengths in a program. A program with so many takes about 0.4 s."""
MAX_CELLS = 8_000_000
"""The most cells of the knapsack's table, of 12 bytes each."""
WORK_NANOSECONDS = 3_000_000_000
"""The time for a plan's programs. It is estimated, not measured, so a histogram always has the same plan."""
PROGRAM_NANOSECONDS, NONZERO_NANOSECONDS = 3_000_000, 15_000
"""Estimates for a program, and for each number in it. A step of the knapsack takes about one nanosecond."""
MIN_PRICINGS = 10
"""A program is not worth its time if fewer knapsacks than this fit into `WORK_NANOSECONDS`."""
MAX_SEQUENCES = 1e7
"""The most sequences of a length in the program, whose solver has absolute tolerances; more are scaled
down."""
ROW_VALUE = 1 << 40
"""The value of a whole row in the integers that prove bounds."""
SMOOTHING = 0.8
"""The weight of the best duals so far in those that patterns are made for (Wentges, 1997)."""
FIRST_ROUNDS, LATER_ROUNDS = 8, 2
"""Rounds of patterns for shaken duals, before the first program and after each."""
COLUMNS_PER_LENGTH = 3
"""The most patterns for each length that a program takes over from the one before."""
ROUND_UP_FROM = (1.0, 0.9, 0.8, 0.7, 0.65, 0.6, 0.55, 0.5)
"""Fractions of a row from which it is rounded up: all are tried."""
FIX_FROM = 0.8
"""The fraction of a row from which a dive fixes it."""
NO_ITEM = -1


def cutting_stock(counts: ndarray, capacity: int, max_sequences: int | None = None) -> Plan:
    """Find the fewest rows known, by column generation with rounding; never more than best-fit's.

    The plan's lower bound is the bound of the linear program, proven in whole numbers. Best-fit's plan is
    returned where it reaches the bound by sums, as usual at large capacities without a depth limit, and where
    the program would take too long, as with thousands of lengths. See `spfhp` for arguments and errors.
    """
    capacity, max_sequences = check_limits(capacity, max_sequences)
    counts = check_counts(counts, capacity)
    best = best_fit(counts, capacity, max_sequences)
    if best.rows == best.lower_bound or not _Program(counts, capacity, max_sequences).is_small():
        return best
    fewest_rows, bound, work, best_rounded = best.rows, 0, 0, None
    unplaced = counts
    fixed = Rows(csc_array((capacity + 1, 0)), np.zeros(0, dtype=np.int64))
    # A dive (Wäscher and Gau, 1996): round the program's rows, fix those that are nearly whole, and solve the
    # program of the sequences that have no slot in these.
    while fewest_rows > bound and unplaced.any() and work < WORK_NANOSECONDS:
        program = _Program(unplaced, capacity, max_sequences)
        solution = program.solve(WORK_NANOSECONDS - work)
        if solution is None:
            break
        work += program.work
        if not bound:  # only the first program has all sequences
            bound = max(best.lower_bound, program.lower_bound)
        if fixed.total + program.lower_bound >= fewest_rows:
            break
        for fraction in ROUND_UP_FROM:
            rounded = fixed.plus(solution.columns, _round_rows(solution.rows, fraction))
            others = best_fit(rounded.unplaced(counts), capacity, max_sequences)
            if rounded.total + others.rows < fewest_rows:
                best_rounded = rounded.plus(_columns_of(others), others.repeats)
                fewest_rows = best_rounded.total
        rows = _round_rows(solution.rows, FIX_FROM)
        largest = solution.rows.argmax()
        rows[largest] = max(1, rows[largest])  # each turn of the dive fixes something
        fixed = fixed.plus(solution.columns, rows)
        unplaced = fixed.unplaced(counts)
    bound = max(bound, best.lower_bound)
    if best_rounded is None:
        return replace(best, lower_bound=bound)
    return fill_slots(best_rounded, counts, bound)


def _round_rows(rows: ndarray, fraction: float) -> ndarray:
    """Round fractional rows up from this fraction on, else down: int64."""
    return np.floor(rows + (1 - fraction + 1e-6)).astype(np.int64)


def _columns_of(plan: Plan) -> csc_array:
    """(capacity + 1, patterns): how often each pattern of a plan holds each length."""
    shape = (plan.capacity + 1, len(plan.repeats))
    # `sum_duplicates` works in place, also on the offsets, which belong to the plan: hence the copy.
    columns = csc_array((np.ones(len(plan.lengths)), plan.lengths, plan.offsets.copy()), shape=shape)
    columns.sum_duplicates()
    return columns


class Rows(NamedTuple):
    """Rows by pattern.

    Attributes:
        columns: (capacity + 1, patterns), how many slots of each length a pattern has.
        rows: (patterns,), how many rows follow it: int64, or float64 in a solution of the linear program.
    """

    columns: csc_array
    rows: ndarray

    @property
    def total(self) -> int:
        """The number of rows."""
        return int(self.rows.sum())

    def plus(self, columns: csc_array, rows: ndarray) -> "Rows":
        """Return these and further rows."""
        used = np.flatnonzero(rows)
        columns = hstack([self.columns, columns[:, used]], format="csc")
        return Rows(columns, np.concatenate([self.rows, rows[used]]))

    def unplaced(self, counts: ndarray) -> ndarray:
        """int64 (capacity + 1,): the sequences of `counts` that find no slot."""
        return count_unplaced(self.columns.astype(np.int64) @ self.rows, counts)


class _Program:
    """The linear program of a histogram.

    Attributes:
        lengths: int64 (m,), the lengths that occur, rising.
        counts: int64 (m,), number of sequences of each length.
        columns: (m, patterns), how often each pattern holds each length, for all patterns so far.
        lower_bound: the largest minimum of rows that is proven so far.
        work: estimated time of the work so far, in nanoseconds.
    """

    def __init__(self, counts: ndarray, capacity: int, max_sequences: int | None) -> None:
        self.capacity = capacity
        self.depth = depth_limit(capacity, max_sequences)
        self.lengths = np.flatnonzero(counts)
        self.counts = counts[self.lengths]
        self.columns = _columns_of(best_fit(counts, capacity, max_sequences))[self.lengths]
        self.lower_bound = 0
        self.work = 0
        # The knapsack needs a layer for each number of sequences, unless a row is full before it is deep.
        self._layers = 1 if (self.depth + 1) * int(self.lengths[0]) > capacity else self.depth
        self._steps = int((capacity + 1 - self.lengths).sum()) * self._layers

    def is_small(self) -> bool:
        """Whether it can be solved within the limits of work and memory."""
        fits = self._layers * (self.capacity + 1) <= MAX_CELLS and len(self.lengths) <= MAX_LENGTHS
        return fits and self._steps * MIN_PRICINGS <= WORK_NANOSECONDS

    def solve(self, work: int) -> Rows | None:
        """Solve the program as far as `work` allows; stop when the rounded-up bound is proven.

        The bound does not depend on the solver's rounding errors: duals are rounded to integers, the most
        valuable pattern is found exactly, and the value of all sequences divided by its value is the bound
        (Farley, 1990).

        Patterns are also made for slightly shaken duals: where many patterns fill a row completely, every
        length then has a choice of partners.

        Returns:
            the rows of each pattern, which need not be whole; None if the solver fails on the first program.
        """
        self.lower_bound, patterns, center = self._price(self._first_duals())
        fewest, solution = math.inf, None
        self._add(patterns)
        for number in range(FIRST_ROUNDS):
            self._add(self._price_shaken(center, number))
        while (minimum := self._minimise()) is not None:
            rows, duals = minimum
            solution = self.columns, rows
            # The solver's minimum, rounded up, less what its tolerances may have added.
            if self.lower_bound >= math.ceil(rows.sum() * (1 - 1e-12) - 1e-6) or self.work >= work:
                break
            if rows.sum() < fewest * (1 - 1e-9):  # never twice at one optimum, or columns come and go
                fewest = rows.sum()
                by_worth = np.lexsort((-(self.columns.T @ duals), rows <= 0))  # used columns first
                self.columns = self.columns[:, np.sort(by_worth[: COLUMNS_PER_LENGTH * len(duals)])]
            before = self.columns.shape[1]
            for number in range(LATER_ROUNDS):
                self._add(self._price_shaken((center + duals) / 2, self.work, number), duals)
            # Smoothed duals prove better bounds. Without smoothing, nothing new is a proof that nothing
            # improves.
            for weight in (SMOOTHING, 0.0):
                proven, patterns, feasible = self._price(weight * center + (1 - weight) * duals)
                if proven > self.lower_bound:
                    self.lower_bound, center = proven, feasible
                self._add(patterns, duals)
                if self.columns.shape[1] > before:
                    break
            if self.columns.shape[1] == before:
                break
        if solution is None:
            return None
        columns, rows = solution
        # (m, patterns) -> (capacity + 1, patterns)
        placed = columns.data, self.lengths[columns.indices], columns.indptr
        return Rows(csc_array(placed, shape=(self.capacity + 1, len(rows))), rows)

    def _add(self, patterns: csc_array, duals: ndarray | None = None) -> None:
        """Let the program use these patterns; only those that lower its rows, if it has such duals."""
        if duals is not None:
            patterns = patterns[:, patterns.T @ duals > 1 + 1e-9]
        self.columns = hstack([self.columns, patterns], format="csc")

    def _price(self, duals: ndarray) -> tuple[int, csc_array, ndarray]:
        """Find the pattern worth most for each length.

        Returns:
            the bound by these duals, the patterns, and the duals scaled such that no pattern is worth more
            than 1.
        """
        values = (np.clip(duals, 0, 1) * ROW_VALUE).astype(np.int64)
        most, indices, times, offsets = best_patterns(values, self.lengths, self.capacity, self.depth)
        self.work += self._steps
        most = max(int(most), 1)
        # In Python's integers: value times count exceeds 64 bits.
        total = sum(map(operator.mul, values.tolist(), self.counts.tolist()))
        bound = -(-total // most)  # rounded up
        patterns = csc_array((times.astype(np.float64), indices, offsets), shape=(len(duals),) * 2)
        return bound, patterns, values / most

    def _price_shaken(self, duals: ndarray, *draw: int) -> csc_array:
        """Find the patterns that are worth most by slightly raised duals."""
        noise = draw_uniform(derive_key("shaken", *draw), np.arange(len(duals)))
        return self._price(duals * (1 + 0.01 * noise))[1]

    def _first_duals(self) -> ndarray:
        """Choose duals without a program: 1 / depth for each length, or the best of Martello and Toth's
        bound.

        The latter are 0 below a, 1 above capacity - a, and the share of the capacity between (Fekete and
        Schepers, 2001), for the best a of at most half the capacity.
        """
        lengths, counts, capacity = self.lengths, self.counts, self.capacity
        starts = np.unique(np.concatenate([[1], lengths[2 * lengths <= capacity]]))  # each a of interest
        sequences = cumulate(counts)
        tokens = cumulate(counts * lengths)
        low = np.searchsorted(lengths, starts)
        high = np.searchsorted(lengths, capacity - starts, side="right")
        bounds = sequences[-1] - sequences[high] + (tokens[high] - tokens[low]) / capacity
        if sequences[-1] / self.depth > bounds.max():
            return np.full(len(lengths), 1 / self.depth)
        a = starts[bounds.argmax()]
        duals = lengths / capacity
        duals[lengths < a] = 0.0
        duals[lengths > capacity - a] = 1.0
        return duals

    def _minimise(self) -> tuple[ndarray, ndarray] | None:
        """Rows of each pattern and the duals of each length; None if the solver fails."""
        m, n = self.columns.shape
        self.work += PROGRAM_NANOSECONDS + NONZERO_NANOSECONDS * self.columns.nnz
        # (m, m - 1): a slot of length i + 1 less, a slot of length i more
        shorter = diags_array([np.ones(m - 1), -np.ones(m - 1)], offsets=[0, -1], shape=(m, m - 1))
        scale = max(1.0, self.counts.max() / MAX_SEQUENCES)
        result = linprog(
            np.concatenate([np.ones(n), np.zeros(m - 1)]),
            A_ub=-hstack([self.columns, shorter], format="csc"),
            b_ub=-self.counts / scale,
            method="highs-ipm",
        )
        if result.status != 0 or result.x is None:
            return None
        return np.maximum(result.x[:n], 0) * scale, np.maximum(-result.ineqlin.marginals, 0)


@compiled
def best_patterns(values, lengths, capacity, depth):
    """Find for each length the most valuable pattern that holds it; a length may occur any number of times.

    A knapsack, solved exactly: every step is integer arithmetic, so that a proof can rest on the result.

    Args:
        values: int64 (m,), the value of a sequence of each length, at least 0; `depth` of them fit 63 bits.
        lengths: int64 (m,), distinct, rising, at most `capacity`.
        capacity: token slots of a row.
        depth: the most sequences in a row.

    Returns:
        The most that any pattern is worth, and the patterns: indices into `lengths` and how often each comes,
        int64 (n,), and offsets int64 (m + 1,): pattern i holds lengths[i].
    """
    m = len(lengths)
    unlimited = (depth + 1) * lengths[0] > capacity
    layers = 1 if unlimited else depth
    # worth[k, c]: the most that up to k sequences of up to c tokens are worth; any number where unlimited.
    worth = np.zeros((layers, capacity + 1), dtype=np.int64)
    last = np.full((layers, capacity + 1), NO_ITEM, dtype=np.int32)
    for k in range(0 if unlimited else 1, layers):
        fewer = worth[k] if unlimited else worth[k - 1]
        here, chosen = worth[k], last[k]
        for i in range(m):
            value, length = values[i], lengths[i]
            if value > 0:
                for c in range(length, capacity + 1):
                    if fewer[c - length] + value > here[c]:
                        here[c] = fewer[c - length] + value
                        chosen[c] = i
    # Pattern i is item i, and then the chain of last items that fill the space beside it.
    most = 0
    times = np.zeros(m, dtype=np.int64)
    indices, repeats = np.empty((2, m * min(m, depth)), dtype=np.int64)
    offsets = np.zeros(m + 1, dtype=np.int64)
    for i in range(m):
        c, k, end = capacity - lengths[i], layers - 1, offsets[i]
        most = max(most, values[i] + worth[k, c])
        item = i
        while item != NO_ITEM:
            if times[item] == 0:
                indices[end] = item
                end += 1
            times[item] += 1
            item = last[k, c]
            if item != NO_ITEM:
                c -= lengths[item]
                k -= 0 if unlimited else 1
        indices[offsets[i] : end] = np.sort(indices[offsets[i] : end])
        for n in range(offsets[i], end):
            repeats[n] = times[indices[n]]
            times[indices[n]] = 0  # for the next pattern
        offsets[i + 1] = end
    return most, indices[: offsets[m]].copy(), repeats[: offsets[m]].copy(), offsets


def count_unplaced(slots: ndarray, counts: ndarray) -> ndarray:
    """Count the fewest and shortest sequences that remain without a slot.

    Args:
        slots: int64 (m,), slots of each of m rising lengths.
        counts: int64 (m,), sequences of these lengths.

    Returns:
        int64 (m,), at most `counts`.
    """
    # From the longest on, sequences take any slot that is free; those that find none never will.
    free = np.cumsum((slots - counts)[::-1])
    missing = np.maximum(-np.minimum.accumulate(free), 0)
    return np.diff(missing, prepend=0)[::-1]


def fill_slots(rows: Rows, counts: ndarray, bound: int) -> Plan:
    """Put the longest sequence into the longest slot, the next one into the next slot; empty slots go.

    Args:
        rows: int64; their slots hold all sequences.
        counts: int64 (capacity + 1,), number of sequences of each length.
        bound: the plan's lower bound.
    """
    columns, uses = rows
    times = columns.data.astype(np.int64)
    slots = np.repeat(columns.indices, times)  # the slots of all patterns, (slots,)
    patterns = np.repeat(np.repeat(np.arange(len(uses)), np.diff(columns.indptr)), times)  # of each slot
    # Sequences and slots have numbers, from the longest on: slot n holds sequence n. A slot of a pattern
    # stands for as many slots as the pattern has rows; `first_slots` is the number of the first.
    falling = np.argsort(-slots, kind="stable")
    first_slots = np.empty(len(slots), dtype=np.int64)
    first_slots[falling] = np.cumsum(uses[patterns[falling]]) - uses[patterns[falling]]
    lengths = np.flatnonzero(counts)[::-1]
    ends = np.cumsum(counts[lengths])

    placed = []
    repeats = []
    begins = np.searchsorted(patterns, np.arange(len(uses) + 1))
    for pattern, pattern_rows in enumerate(uses.tolist()):
        first = first_slots[begins[pattern] : begins[pattern + 1]]
        # The rows of a pattern are alike up to where one of its slots goes on to the next length.
        borders = np.unique(np.clip(ends[:, None] - first, 0, pattern_rows))
        borders = np.unique([0, *borders, pattern_rows]).tolist()
        for begin, end in pairwise(borders):
            length_index = np.searchsorted(ends, first + begin, side="right")
            length_index = np.sort(length_index[length_index < len(lengths)])  # without empty slots
            if len(length_index):
                placed.append(lengths[length_index])
                repeats.append(end - begin)
    lengths = np.concatenate(placed).astype(np.int32)
    offsets = np.cumsum([0, *map(len, placed)], dtype=np.int64)
    return Plan(len(counts) - 1, lengths, offsets, np.array(repeats, dtype=np.int64), bound)
