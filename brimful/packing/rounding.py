"""Cutting stock: the rows of the linear program, rounded, at the proven minimum or close to it."""

from dataclasses import replace

import numpy as np

from brimful.packing.dives import Search
from brimful.packing.histogram import Plan, check_limits, checked_counts, depth_limit
from brimful.packing.knapsack import count_layers, count_steps
from brimful.packing.pack_first import best_fit
from brimful.packing.relaxation import LEAST_PRICINGS
from brimful.packing.slots import fill_slots
from brimful.packing.units import improve_in_units

_MOST_LENGTHS = 1024  # of which one linear program takes about 0.4 s
_MOST_CELLS = 8_000_000  # of the knapsack's table, 12 bytes each
_WORK, _EXACT_WORK = 5_000_000_000, 3_000_000_000  # about nanoseconds
_GAP = 2000  # with more than one row in so many above the bound, units are tried


def cutting_stock(counts: np.ndarray, capacity: int, max_sequences: int | None = None) -> Plan:
    """The fewest rows known: column generation with rounding; never more than best-fit's.

    The plan's lower bound is that of the linear program, proven in whole numbers. Where best-fit reaches the
    bound by sums, as it mostly does at large capacities without a depth limit, its plan is the answer.

    Work is limited by counting it, not by a clock, and nothing is left to chance: the same histogram gives
    the same plan. Where the program is too dear or stops early, which takes large capacities and hundreds of
    lengths, programs in coarser units give the plan and the bound: see `improve_in_units`.

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
        len(lengths) <= _MOST_LENGTHS
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
