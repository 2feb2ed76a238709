"""Cutting stock: the fewest rows known, with a proven bound.

The program in tokens is solved where it is small enough. Elsewhere lengths are rounded to units of several
tokens. Rounded up, they give a plan: its patterns are slots for the real sequences. Rounded down, they give a
bound: every pattern of real lengths remains one, if sequences shorter than a unit, which then take no space,
still count towards the depth. Units become finer from one program to the next, and each program starts from
the patterns and the duals of the one before.
"""

from dataclasses import dataclass, replace

import numpy as np
from scipy.sparse import csc_array, hstack

from brimful.packing.cutting.knapsack import count_layers, count_steps
from brimful.packing.cutting.program import LEAST_PRICINGS, Relaxation, relax
from brimful.packing.cutting.whole_rows import Search, columns_of, fill_slots
from brimful.packing.histogram import Plan, check_limits, checked_counts, depth_limit
from brimful.packing.pack_first import best_fit

_MOST_LENGTHS_IN_TOKENS = 1024  # a linear program of this many takes about 0.4 s
_MOST_CELLS = 8_000_000  # of the knapsack's table, 12 bytes each
_WORK, _EXACT_WORK = 5_000_000_000, 3_000_000_000  # about nanoseconds
_GAP = 2000  # units are tried with more than one row in 2,000 above the bound
_COARSEST = 256  # about this many units are a row at first, then twice as many, and so on
_MOST_LENGTHS = 2500  # a program of this many takes about half a second
_CLOSE = 2000  # the minimum is taken for the bound by sums within one row in 2,000


def cutting_stock(counts: np.ndarray, capacity: int, max_sequences: int | None = None) -> Plan:
    """The fewest rows known, by column generation with rounding; never more than best-fit's.

    The plan's lower bound is the bound of the linear program, proven in whole numbers. If best-fit
    reaches the bound by sums, as it usually does at large capacities without a depth limit, its plan is
    returned.

    Work is limited by counting it, not by a clock: the same histogram gives the same plan. Where the
        program takes too long or stops early, which takes large capacities and
    hundreds of lengths, programs in coarser units give the plan and the bound: see `improve_in_units`.

    Args:
        counts: int (longest + 1,), number of sequences of each length.
        capacity: token slots of a row.
        max_sequences: the most sequences in a row (packing depth); None = no limit.

    Raises:
        BrimfulError: see `checked_counts`.
    """
    capacity, max_sequences = check_limits(capacity, max_sequences)
    counts = checked_counts(counts, capacity, max_sequences)
    plan, work = best_fit(counts, capacity, max_sequences), _WORK
    lengths = np.flatnonzero(counts)
    depth = depth_limit(capacity, max_sequences)
    if plan.rows == plan.lower_bound:
        return plan
    if (
        len(lengths) <= _MOST_LENGTHS_IN_TOKENS
        and count_layers(lengths, capacity, depth) * (capacity + 1) <= _MOST_CELLS
        and count_steps(lengths, capacity, depth) * LEAST_PRICINGS <= _EXACT_WORK
    ):
        plan, done = _search(plan, counts, max_sequences)
        work -= done
    if plan.rows_above_bound <= max(2, plan.rows // _GAP):
        return plan
    return improve_in_units(plan, counts, max_sequences, work)


def _search(best: Plan, counts: np.ndarray, max_sequences: int | None) -> tuple[Plan, int]:
    """`best`, or a better plan, with the bound of the program in tokens; and the program's work."""
    search = Search(best.capacity, max_sequences, best.rows, best.lower_bound)
    relaxation = search.relax(counts, _EXACT_WORK)
    if relaxation is None:
        return best, 0
    search.bound = max(search.bound, relaxation.lower_bound)
    search.dive(counts, relaxation)
    if not search.patterns:
        return replace(best, lower_bound=search.bound), relaxation.work
    return fill_slots(search.patterns, counts, best.capacity, search.bound), relaxation.work


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
        work: estimated nanoseconds that the programs may take.
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
    """Counts in units. A sequence longer than all whole units of a row takes all of them."""
    units = (len(counts) - 1) // unit
    lengths = np.minimum(-(-np.arange(len(counts)) // unit), units)
    return _summed(lengths, counts)


def _rounded_down(counts: np.ndarray, unit: int, depth: int) -> np.ndarray:
    """Counts in units. Length 0 stays only if the depth limits it."""
    rounded = _summed(np.arange(len(counts)) // unit, counts)
    if depth >= len(rounded) - 1:
        rounded[0] = 0
    return rounded


def _summed(places: np.ndarray, counts: np.ndarray) -> np.ndarray:
    summed = np.zeros(int(places[-1]) + 1, dtype=np.int64)
    np.add.at(summed, places, counts)
    return summed


def _solve(unit: int, counts: np.ndarray, depth: int, start: _Start | None, work: int) -> _Program | None:
    """The program of these counts; None if it is too large for `work` or the solver fails."""
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
    """The duals of every length: a length outside the program is worth as much as the next shorter one."""
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
