"""Which rows an update takes, and which rank gets which: equal tokens and equal attention cost on every rank.

Packed rows hold as many tokens each, but attention costs the sum of squared lengths: a row of one sequence
of 512 tokens costs eight times one of eight sequences of 64. The update waits for the dearest rank.
"""

import numpy as np

from brimful.draws import shuffled_index
from brimful.errors import BrimfulError
from brimful.randomness import derive_key, permutation


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

    Rows in order of cost are cut into hands of `ranks` neighbours, and the hands into `rows_per_rank` ranges
    of as many. An update takes a random hand of each range: a stratified sample. Of each hand, the dearest
    first, every rank gets a row: the dearest goes to the rank that has the cheapest rows so far.

    So with one row per rank, all rows of an update cost about the same, and updates differ; with 16, an
    update's cost varies less than that of rows drawn at random.

    Args:
        costs: int (rows,), what each row costs, as `row_costs` gives it.
        ranks: among how many an update's rows are dealt: ranks, or micro-batches.
        rows_per_rank: how many rows of an update each gets.
        key: an unsigned integer that decides all that costs don't.

    Returns:
        dealt int64 (updates, ranks, rows_per_rank) and rest int64 (rows % (ranks * rows_per_rank),): the rows
        of each rank in each update, the dearest hand first, and random rows that fill no update. Together,
        every row exactly once.

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
    ranges = ascending.reshape(rows_per_rank, updates, ranks)[::-1, :, ::-1]  # dearest first
    dealt = np.empty((updates, ranks, rows_per_rank), dtype=np.int64)
    loads = np.zeros((updates, ranks), dtype=np.int64)
    for turn, hands in enumerate(ranges):
        order = permutation(updates, derive_key(int(key), turn))
        cheapest_first = np.argsort(loads, axis=1, kind="stable")
        np.put_along_axis(dealt[:, :, turn], cheapest_first, hands[order], axis=1)
        loads += costs[dealt[:, :, turn]]
    return dealt, mixed[taken:]


def imbalance(costs: np.ndarray, dealt: np.ndarray) -> tuple[float, float]:
    """How much dearer the dearest rank is than the mean rank (1 = no dearer): of all updates, mean and worst.

    Args:
        costs: int (rows,), costs or tokens of each row.
        dealt: int64 (updates, ranks, rows per rank), at least one update.
    """
    loads = costs[dealt].sum(axis=2)
    ratios = loads.max(axis=1) / loads.mean(axis=1)
    return float(ratios.mean()), float(ratios.max())
