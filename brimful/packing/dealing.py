"""Deals rows into updates, and an update's rows to ranks or micro-batches, so that each costs about the same.

`pretrain` uses the second half alone (`divide` in data/rows.py). Packed rows hold the same number of tokens,
but attention costs the sum of squared lengths: a row with one sequence of 512 tokens costs eight times a row
with eight sequences of 64. The update waits for the rank whose rows cost most.
"""

import numpy as np

from brimful.base.draws import shuffled_index
from brimful.base.errors import BrimfulError
from brimful.base.randomness import derive_key, permutation


def row_costs(row_offsets: np.ndarray, order: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """int64 (rows,): what attention costs in each row, the sum of its sequences' squared lengths.

    Args:
        row_offsets, order: rows as `assign` gives them.
        lengths: int (n,), tokens of each sequence.
    """
    squares = np.zeros(len(order) + 1, dtype=np.int64)
    np.cumsum(np.square(lengths[order], dtype=np.int64), out=squares[1:])
    return np.diff(squares[row_offsets])


def deal(costs: np.ndarray, ranks: int, rows_per_rank: int, key: np.uint64) -> tuple[np.ndarray, np.ndarray]:
    """Deal rows into updates, and an update's rows to ranks, so that ranks cost about the same.

    Rows in order of cost are cut into groups of `ranks` neighbours, and the groups into `rows_per_rank`
    strata of equal size. An update takes a random group of each stratum. Of each group, the most expensive
    first, every rank gets a row: the most expensive row goes to the rank whose rows cost least so far.

    With one row per rank, all rows of an update cost about the same, and updates differ. With 16, an update's
    cost varies less than with rows drawn at random.

    Args:
        costs: int (rows,), what each row costs, as `row_costs` gives it, or whatever else is to be balanced.
        ranks: among how many an update's rows are dealt: ranks, or groups of micro-batches.
        rows_per_rank: how many rows of an update each gets.
        key: an unsigned integer that decides everything that costs leave open.

    Returns:
        dealt int64 (updates, ranks, rows_per_rank) and rest int64 (rows % (ranks * rows_per_rank),): the rows
        of each rank in each update, the most expensive group first, and random rows that fill no update.
        Together, every row exactly once.

    Raises:
        BrimfulError: `ranks` or `rows_per_rank` is below 1.
    """
    for name, value in (("ranks", ranks), ("rows_per_rank", rows_per_rank)):
        if value < 1:
            raise BrimfulError(f"{name} is {value}: it must be at least 1")
    costs, key = np.asarray(costs).astype(np.int64), np.uint64(key)
    updates = len(costs) // (ranks * rows_per_rank)
    taken = updates * ranks * rows_per_rank
    # For millions of rows, a fourth of a permutation's time.
    mixed = shuffled_index(key, np.arange(len(costs)), len(costs))
    ascending = mixed[:taken][np.argsort(costs[mixed[:taken]], kind="stable")]
    strata = ascending.reshape(rows_per_rank, updates, ranks)[::-1, :, ::-1]  # the most expensive first
    dealt = np.empty((updates, ranks, rows_per_rank), dtype=np.int64)
    loads = np.zeros((updates, ranks), dtype=np.int64)
    for turn, groups in enumerate(strata):
        order = permutation(updates, derive_key(int(key), turn)) if updates != 1 else [0]
        cheapest_first = np.argsort(loads, axis=1, kind="stable")
        np.put_along_axis(dealt[:, :, turn], cheapest_first, groups[order], axis=1)
        loads += costs[dealt[:, :, turn]]
    return dealt, mixed[taken:]
