"""Cutting stock in units of several tokens, where the program in tokens is too dear.

Lengths rounded up to whole units give a plan: its patterns are slots for the real sequences. Lengths rounded
down give a bound: every pattern of real lengths remains one, if sequences shorter than a unit, which then
take no space, still count towards the depth. Units become finer from one program to the next, and each starts
from the patterns and the duals of the one before.
"""

from dataclasses import dataclass, replace

import numpy as np
from scipy.sparse import csc_array, hstack

from brimful.packing.dives import Search, columns_of
from brimful.packing.histogram import Plan
from brimful.packing.knapsack import count_steps
from brimful.packing.pack_first import best_fit
from brimful.packing.relaxation import LEAST_PRICINGS, Relaxation, relax
from brimful.packing.slots import fill_slots

_COARSEST = 256  # about so many units are a row at first, then twice as many, and so on
_MOST_LENGTHS = 2500  # of which a program takes about half a second
_CLOSE = 2000  # the minimum seems to be the bound by sums, if within one row in so many


@dataclass(frozen=True)
class _Program:
    """A program in units of `unit` tokens; `counts` is int64 (units of a row + 1,)."""

    unit: int
    counts: np.ndarray
    relaxation: Relaxation


@dataclass(frozen=True)
class _Start:
    """Patterns, float64 (units of a row + 1, patterns), and duals, float64 (units of a row + 1,)."""

    patterns: csc_array
    duals: np.ndarray


def improve_in_units(best: Plan, counts: np.ndarray, max_sequences: int | None, work: int) -> Plan:
    """`best` or a plan of fewer rows, with the better bound.

    Args:
        counts: int64 (capacity + 1,), number of sequences of each length.
        max_sequences: the most sequences in a row; None = no limit.
        work: about nanoseconds that the programs may take.
    """
    capacity, bound = best.capacity, best.lower_bound
    depth = max_sequences or capacity
    up: _Program | None = None
    down: _Program | None = None
    loose = True  # the bound by sums, as far as is known
    for halvings in range((capacity // _COARSEST).bit_length(), -1, -1):
        unit = 1 << halvings
        start = _halved(up, capacity // unit) if up else None
        share = work // 2 if halvings and loose else work
        finer = _solve(unit, _rounded_up(counts, unit), depth, start, share)
        if finer is None:
            break
        up, work = finer, work - finer.relaxation.work
        if not halvings:
            bound = max(bound, up.relaxation.lower_bound)
        elif loose:
            start = _halved(down, capacity // unit) if down else _lowered(up)
            down = _solve(unit, _rounded_down(counts, unit, depth), depth, start, work)
            if down is None:
                break
            bound, work = max(bound, down.relaxation.lower_bound), work - down.relaxation.work
            # The minimum is about midway between what lengths rounded up and those rounded down need.
            midway = (up.relaxation.rows.sum() + down.relaxation.lower_bound) / 2
            loose = midway > best.lower_bound * (1 + 1 / _CLOSE)
    best = replace(best, lower_bound=bound)
    return _rounded(up, best, counts, max_sequences) if up else best


def _rounded_up(counts: np.ndarray, unit: int) -> np.ndarray:
    """Counts in units; what is longer than a whole number of units in a row takes all of them."""
    units = (len(counts) - 1) // unit
    lengths = np.minimum(-(-np.arange(len(counts)) // unit), units)
    return _summed(lengths, counts)


def _rounded_down(counts: np.ndarray, unit: int, depth: int) -> np.ndarray:
    """Counts in units; length 0 stays only where the depth is a limit for it."""
    rounded = _summed(np.arange(len(counts)) // unit, counts)
    if depth >= len(rounded) - 1:
        rounded[0] = 0
    return rounded


def _summed(places: np.ndarray, counts: np.ndarray) -> np.ndarray:
    summed = np.zeros(int(places[-1]) + 1, dtype=np.int64)
    np.add.at(summed, places, counts)
    return summed


def _solve(unit: int, counts: np.ndarray, depth: int, start: _Start | None, work: int) -> _Program | None:
    """The program of these counts; None where it is too large for `work`, or the solver fails."""
    lengths, capacity = np.flatnonzero(counts), len(counts) - 1
    depth = min(depth, capacity)
    if not 0 < len(lengths) <= _MOST_LENGTHS:
        return None
    if LEAST_PRICINGS * count_steps(lengths, capacity, depth) > work:
        return None
    longer = counts.copy()
    longer[0] = 0
    columns = [columns_of(best_fit(longer, capacity, depth), lengths)]
    if counts[0]:
        columns.append(csc_array(([float(depth)], ([0], [0])), shape=(len(lengths), 1)))
    if start:
        columns.append(_shortened(start.patterns, lengths))
    columns = hstack(columns, format="csc")
    duals = start.duals[lengths] if start else None
    relaxation = relax(lengths, counts[lengths], capacity, depth, columns, work, duals)
    return _Program(unit, counts, relaxation) if relaxation else None


def _shortened(patterns: csc_array, lengths: np.ndarray) -> csc_array:
    """The patterns as columns of a program of these lengths: a slot becomes the next shorter length's."""
    slots = patterns.tocoo()
    places = np.searchsorted(lengths, slots.row, side="right") - 1
    kept = places >= 0
    entries = (slots.data[kept], (places[kept], slots.col[kept]))
    return csc_array(entries, shape=(len(lengths), patterns.shape[1]))


def _halved(program: _Program, units: int) -> _Start:
    """A start in units of half the size, `units` a row."""
    # Lengths that fit a row of the finer units, halved and rounded down, fit one of these: the duals hold.
    return _Start(_moved(program, 2, 0, units), _all_duals(program)[np.arange(units + 1) // 2])


def _lowered(program: _Program) -> _Start:
    """A start for the same lengths rounded down, from them rounded up."""
    return _Start(_moved(program, 1, -1, len(program.counts) - 1), _all_duals(program))


def _moved(program: _Program, times: int, plus: int, units: int) -> csc_array:
    """The patterns in use, of the lengths times `times` and `plus`."""
    used = program.relaxation.patterns[:, program.relaxation.rows > 0].tocoo()
    lengths = np.flatnonzero(program.counts) * times + plus
    return csc_array((used.data, (lengths[used.row], used.col)), shape=(units + 1, used.shape[1]))


def _all_duals(program: _Program) -> np.ndarray:
    """Those of every length: what is not among the program's is worth as much as the next shorter one."""
    duals = np.zeros(len(program.counts))
    duals[program.counts > 0] = program.relaxation.duals
    return np.maximum.accumulate(duals)


def _rounded(program: _Program, best: Plan, counts: np.ndarray, max_sequences: int | None) -> Plan:
    """`best`, or the plan that lengths rounded up give if it has fewer rows."""
    units = len(program.counts) - 1
    search = Search(units, max_sequences, best.rows, program.relaxation.lower_bound)
    search.round(program.counts, program.relaxation)
    if not search.patterns:
        return best
    # All units of a row are a slot of all its tokens.
    tokens = np.append(np.arange(units) * program.unit, best.capacity).tolist()
    patterns = [([(tokens[length], n) for length, n in runs], rows) for runs, rows in search.patterns]
    return fill_slots(patterns, counts, best.capacity, best.lower_bound)
