"""Non-negative least squares histogram packing of Krell et al. (2021, arXiv 2107.02027, section 3.1).

A row is one of the patterns of at most three lengths that fill it to the last token. How often each is used
is a least-squares fit to the histogram, rounded. Sequences without a place in the fit get rows of their own,
one or two in each. Slots without a sequence are padding.
"""

from collections import Counter

import numpy as np
from numpy import ndarray
from scipy.optimize import nnls

from brimful.base.errors import BrimfulError
from brimful.packing.histogram import Plan, check_counts, check_limits, lower_bound

MAX_SEQUENCES = 3  # 4 in a row of 512: 959,631 patterns
MAX_CAPACITY = 512  # 1,024 would need a matrix of 700 MB

# The paper weights residuals: short sequences without a place cost little, so that the others fit better.
LIGHT_TOKENS, LIGHT_WEIGHT = 8, 0.09


def _list_patterns(capacity: int, most: int) -> ndarray:
    """int64 (3, patterns): lengths that sum to `capacity`, longest first, at most `most` above 0."""
    shortest = np.arange(capacity // 3 + 1 if most > 2 else 1)[:, None]
    middle = np.arange(capacity // 2 + 1 if most > 1 else 1)
    # longest >= middle: capacity - middle - shortest >= middle
    shortest, middle = np.nonzero((shortest <= middle) & (shortest + 2 * middle <= capacity))
    return np.stack([capacity - middle - shortest, middle, shortest])


def _take_out(rows: Counter[tuple[int, ...]], surplus: ndarray) -> None:
    """Take `surplus[length]` sequences of each length out of the rows: as whole rows where possible."""
    remaining: list[int] = surplus.tolist()
    for pattern in rows:
        times = rows[pattern]
        for length in pattern:
            times = min(times, remaining[length] // pattern.count(length))
        rows[pattern] -= times
        for length in pattern:
            remaining[length] -= times
    for length in np.flatnonzero(remaining).tolist():
        while remaining[length]:
            pattern = next(pattern for pattern in rows if length in pattern and rows[pattern])
            place = pattern.index(length)
            times = min(rows[pattern], remaining[length])
            rows[pattern] -= times
            rows[pattern[:place] + pattern[place + 1 :]] += times
            remaining[length] -= times


def _add_rows(rows: Counter[tuple[int, ...]], unplaced: ndarray, capacity: int, most: int) -> None:
    """Add rows for `unplaced[length]` sequences of each length: two that fill a row together, else one."""
    remaining: list[int] = unplaced.tolist()
    for length in range(capacity, 0, -1):
        partner = capacity - length
        if most > 1 and 0 < partner <= length:
            pairs = min(remaining[length], remaining[partner])
            if partner == length:
                pairs = remaining[length] // 2
            rows[length, partner] += pairs
            remaining[length] -= pairs
            remaining[partner] -= pairs
        rows[(length,)] += remaining[length]


def nnlshp(counts: ndarray, capacity: int, max_sequences: int | None = 3) -> Plan:
    """Pack by non-negative least squares histogram packing.

    It is good where there are sequences of most lengths: if no partners fill the row of a sequence up to the
    last token, the sequence gets a row of its own, and the rest is padding.

    Args:
        counts, capacity, max_sequences: as for `spfhp`; the capacity is at most 512 and the depth at most 3.

    Raises:
        BrimfulError: there are too many patterns; or see `check_limits` and `check_counts`.
    """
    capacity, max_sequences = check_limits(capacity, max_sequences)
    counts = check_counts(counts, capacity)
    if max_sequences is None or max_sequences > MAX_SEQUENCES or capacity > MAX_CAPACITY:
        raise BrimfulError(
            f"NNLSHP lists every way to fill a row: too many for {max_sequences or 'any number of'} sequences"
            f" in {capacity:,} tokens (it takes at most {MAX_SEQUENCES} in {MAX_CAPACITY}): use cutting-stock"
        )
    patterns = _list_patterns(capacity, max_sequences)
    # places[i, p]: how many sequences of i tokens pattern p holds, float64 (capacity + 1, patterns)
    places = np.zeros((capacity + 1, patterns.shape[1]))
    for lengths in patterns:
        np.add.at(places, (lengths, np.arange(patterns.shape[1])), 1)
    places[0] = 0  # a length of 0 means: this pattern has fewer sequences
    # A sequence without a place costs as much as a place without a sequence.
    weights = np.ones(len(counts))
    weights[: LIGHT_TOKENS + 1] = LIGHT_WEIGHT
    uses, _ = nnls(weights[:, None] * places, weights * counts)
    repeats = np.rint(uses).astype(np.int64)

    rows: Counter[tuple[int, ...]] = Counter()
    for index in np.flatnonzero(repeats):
        pattern = patterns[:, index]
        rows[tuple(pattern[pattern > 0].tolist())] = int(repeats[index])
    # Rounding left some sequences without a place, and some places without a sequence.
    placed = places.astype(np.int64) @ repeats
    _take_out(rows, np.maximum(placed - counts, 0))
    _add_rows(rows, np.maximum(counts - placed, 0), capacity, max_sequences)

    used = sorted((pattern for pattern in rows if rows[pattern]), reverse=True)
    return Plan(
        capacity,
        np.array([length for pattern in used for length in pattern], dtype=np.int32),
        np.cumsum([0, *map(len, used)], dtype=np.int64),
        np.array([rows[pattern] for pattern in used], dtype=np.int64),
        lower_bound(counts, capacity, max_sequences),
    )
