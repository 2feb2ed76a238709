"""The linear program of cutting stock, by column generation (Gilmore and Gomory, 1961 and 1963).

The program minimises the rows of all patterns such that every sequence has a slot. A slot may hold a sequence
shorter than its own length: the program has a column without cost from each length to the next shorter
one. These are dual cuts (Valério de Carvalho, 2005); without them the duals oscillate and the work grows
many times over.
"""

import math
from dataclasses import dataclass, replace
from itertools import count

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import csc_array, diags_array, hstack

from brimful.base.randomness import derive_key, uniform
from brimful.packing.cutting.knapsack import best_patterns, count_steps

_ONE = 1 << 40  # a row's worth in the integer duals
_KEEP = 3  # columns kept from one program to the next, for each length
_SHALLOW = 4  # sequences of a pattern priced at shaken duals: short columns keep the program cheap
_SMOOTHING = 0.8  # weight of the best duals in those that are priced
_SEEDS, _SHAKEN = 8, 2  # rounds of those before the first program and the later ones
# Work of the solver for a program and for each of its nonzeros, in steps of the knapsack: about a nanosecond.
_PROGRAM_WORK, _NONZERO_WORK = 3_000_000, 15_000
LEAST_PRICINGS = 10  # a program with less work than this many is of no use
_LARGEST = 1e7  # sequences of a length in the program: the solver's tolerances are absolute


@dataclass(frozen=True)
class Relaxation:
    """A solution of the linear program.

    Attributes:
        patterns: float64 (lengths, patterns), how often a pattern holds each length.
        rows: float64 (patterns,), how many rows of each; not whole numbers.
        lower_bound: a proven minimum of rows.
        work: the time it took, in estimated nanoseconds.
    """

    patterns: csc_array
    rows: np.ndarray
    lower_bound: int
    work: int


def relax(
    lengths: np.ndarray,
    counts: np.ndarray,
    capacity: int,
    depth: int,
    patterns: csc_array,
    work: int,
) -> Relaxation | None:
    """Solve the program as far as `work` allows; stop when the rounded-up bound is proven.

    The bound does not depend on the solver's rounding errors: duals are rounded to integers, the most
    valuable pattern is found exactly, and the value of all sequences divided by its value is the bound
    (Farley, 1990).

    New columns are the most valuable patterns at duals between the program's own duals and the duals of the
    best bound (Wentges, 1997). Slightly perturbed duals give more columns: where many patterns fill a row
    completely, every length then has a choice of partners.

    Args:
        lengths: int64 (m,), distinct, rising, at most `capacity`.
        counts: int64 (m,), sequences of each, at least 1.
        capacity: token slots of a row.
        depth: the most sequences in a row.
        patterns: (m, n), columns to start from, which hold all sequences in some number of rows.
        work: no further program is set up when that much is done.

    Returns:
        None if the solver fails on the first program.
    """
    numbers = np.arange(len(lengths))
    pool = _Pool(patterns, uniform(derive_key("names of columns"), numbers))
    shallow = min(depth, _SHALLOW)

    def shaken(duals: np.ndarray, *where: int) -> np.ndarray:
        return duals * (1 + 0.01 * uniform(derive_key("shaken", *where), numbers))

    center = _dual_feasible(lengths, counts, capacity, depth)
    for i in range(_SEEDS):
        pool.add(_price(shaken(center, 0, i), lengths, counts, capacity, shallow).patterns)
    best = _price(center, lengths, counts, capacity, depth)
    pool.add(best.patterns)

    bound, fewest, relaxation = best.lower_bound, math.inf, None
    shallow_steps = count_steps(lengths, capacity, shallow)
    deep_steps = count_steps(lengths, capacity, depth)
    done = _SEEDS * shallow_steps + deep_steps
    for iteration in count(1):
        solution = _solve(pool.patterns, counts)
        if solution is None:
            break
        rows, duals = solution
        done += _PROGRAM_WORK + _NONZERO_WORK * pool.patterns.nnz
        relaxation = Relaxation(pool.patterns, rows, bound, done)
        if bound >= math.ceil(rows.sum() * (1 - 1e-12) - 1e-6) or done >= work:
            break
        if rows.sum() < fewest * (1 - 1e-9):  # never twice at one optimum, or the same columns come and go
            fewest = rows.sum()
            pool.purge(rows, duals)
        mean, grown = (center + duals) / 2, False
        for i in range(_SHAKEN):
            priced = _price(shaken(mean, iteration, i), lengths, counts, capacity, shallow)
            grown |= pool.add(priced.improving(duals))
        done += _SHAKEN * shallow_steps
        for weight in (_SMOOTHING, 0.0):  # without smoothing, nothing new is a proof that nothing improves
            priced = _price(weight * center + (1 - weight) * duals, lengths, counts, capacity, depth)
            done += deep_steps
            bound = max(bound, priced.lower_bound)
            if priced.bound > best.bound:
                best, center = priced, priced.duals
            grown |= pool.add(priced.improving(duals))
            if grown:
                break
        if not grown:
            break
    return replace(relaxation, lower_bound=bound, work=done) if relaxation else None


class _Pool:
    """Columns without duplicates; a column is identified by its sum of random weights."""

    def __init__(self, patterns: csc_array, weights: np.ndarray) -> None:
        self.weights = weights
        self.patterns = patterns

    def add(self, patterns: csc_array) -> bool:
        """Whether one of them is new."""
        names, first = np.unique(patterns.T @ self.weights, return_index=True)
        new = first[~np.isin(names, self.patterns.T @ self.weights)]
        if len(new):
            self.patterns = hstack([self.patterns, patterns[:, np.sort(new)]], format="csc")
        return len(new) > 0

    def purge(self, rows: np.ndarray, duals: np.ndarray) -> None:
        """Keep the columns in use and the columns closest to being used."""
        worth = self.patterns.T @ duals
        kept = np.lexsort((-worth, rows <= 0))[: _KEEP * len(duals)]
        self.patterns = self.patterns[:, np.sort(kept)]


@dataclass(frozen=True)
class _Priced:
    """For each length the pattern worth most, and the bound from the duals for which they were found."""

    patterns: csc_array
    duals: np.ndarray  # such that no pattern is worth more than 1
    bound: float
    lower_bound: int

    def improving(self, duals: np.ndarray) -> csc_array:
        """The patterns that would lower the rows of a program with these duals."""
        return self.patterns[:, self.patterns.T @ duals > 1 + 1e-9]


def _price(duals: np.ndarray, lengths: np.ndarray, counts: np.ndarray, capacity: int, depth: int) -> _Priced:
    values = (np.clip(duals, 0, 1) * _ONE).astype(np.int64)
    most, indices, repeats, offsets = best_patterns(values, lengths, capacity, depth)
    most = max(int(most), 1)
    total = sum(value * n for value, n in zip(values.tolist(), counts.tolist(), strict=True))
    patterns = csc_array((repeats.astype(np.float64), indices, offsets), shape=(len(lengths),) * 2)
    return _Priced(patterns, values / most, total / most, -(-total // most))


def _dual_feasible(lengths: np.ndarray, counts: np.ndarray, capacity: int, depth: int) -> np.ndarray:
    """Duals without a program: the better of 1 / depth for each length and the best of Martello and
    Toth's bound.

    The latter are 0 below a, 1 above capacity - a, and the share of the capacity between (Fekete and
    Schepers, 2001), for the best a of at most half the capacity.
    """
    starts = np.unique(np.concatenate([[1], lengths[2 * lengths <= capacity]]))
    sequences, tokens = (np.concatenate([[0], np.cumsum(n)]) for n in (counts, counts * lengths))
    low, high = np.searchsorted(lengths, starts), np.searchsorted(lengths, capacity - starts, side="right")
    bounds = sequences[-1] - sequences[high] + (tokens[high] - tokens[low]) / capacity
    a = starts[bounds.argmax()]
    if sequences[-1] / depth > bounds.max():
        return np.full(len(lengths), 1 / depth)
    return np.where(lengths < a, 0.0, np.where(lengths > capacity - a, 1.0, lengths / capacity))


def _solve(patterns: csc_array, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    """Rows of each pattern and the duals of each length; None if the solver fails."""
    m, n = patterns.shape
    shorter = diags_array([np.ones(m - 1), -np.ones(m - 1)], offsets=[0, -1], shape=(m, m - 1))
    scale = max(1.0, counts.max() / _LARGEST)
    result = linprog(
        np.concatenate([np.ones(n), np.zeros(m - 1)]),
        A_ub=-hstack([patterns, shorter], format="csc"),
        b_ub=-counts / scale,
        method="highs-ipm",
    )
    if result.status != 0 or result.x is None:
        return None
    return np.maximum(result.x[:n], 0) * scale, np.maximum(-result.ineqlin.marginals, 0)
