"""Non-negative least squares histogram packing of Krell et al. (2021, arXiv 2107.02027).

A row is one of the patterns of at most three lengths that fill it to the last token. How often each is used
is a least-squares fit to the histogram, rounded. Sequences that the fit leaves over get rows of their own,
alone or in pairs. Slots without a sequence are padding.
"""

from collections import Counter

import numpy as np
from scipy.optimize import nnls

from brimful.base.errors import BrimfulError
from brimful.packing.histogram import Plan, check_limits, checked_counts, lower_bound

_MOST_SEQUENCES = 3  # 4 in a row of 512: 959,631 patterns
_LARGEST_CAPACITY = 512  # twice as much has a matrix of 700 MB

# As published: short sequences left over or padded cost little, so that the others fit better.
_SHORT, _SHORT_WEIGHT = 8, 0.09


def _patterns(capacity: int, most: int) -> np.ndarray:
    """int64 (3, patterns): lengths that sum to `capacity`, longest first, at most `most` above 0."""
    shortest = np.arange(capacity // 3 + 1 if most > 2 else 1)[:, None]
    middle = np.arange(capacity // 2 + 1 if most > 1 else 1)
    shortest, middle = np.nonzero((shortest <= middle) & (shortest + 2 * middle <= capacity))
    return np.stack([capacity - middle - shortest, middle, shortest])


def _fit(held: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """How often each pattern is used: a sequence left over costs as much as a slot without a sequence.

    Args:
        held: float64 (capacity + 1, patterns), how many sequences of each length a pattern holds.
    """
    weights = np.ones(len(counts))
    weights[: _SHORT + 1] = _SHORT_WEIGHT
    return nnls(weights[:, None] * held, weights * counts)[0]


def _leave_out(rows: Counter[tuple[int, ...]], surplus: list[int]) -> None:
    """Take `surplus[length]` sequences of each length out of the rows: as whole rows where possible."""
    for pattern in rows:
        times = min(rows[pattern], *(surplus[length] // pattern.count(length) for length in pattern))
        rows[pattern] -= times
        for length in pattern:
            surplus[length] -= times
    for length in np.flatnonzero(surplus).tolist():
        while surplus[length]:
            pattern = next(pattern for pattern in rows if length in pattern and rows[pattern])
            place = pattern.index(length)
            times = min(rows[pattern], surplus[length])
            rows[pattern] -= times
            rows[pattern[:place] + pattern[place + 1 :]] += times
            surplus[length] -= times


def _add(rows: Counter[tuple[int, ...]], left: list[int], capacity: int, most: int) -> None:
    """Add rows for `left[length]` sequences of each length: two that fill a row together, else one."""
    for length in range(capacity, 0, -1):
        partner = capacity - length
        if most > 1 and 0 < partner <= length:
            pairs = left[length] // 2 if partner == length else min(left[length], left[partner])
            rows[length, partner] += pairs
            left[length] -= pairs
            left[partner] -= pairs
        rows[(length,)] += left[length]


def nnlshp(counts: np.ndarray, capacity: int, max_sequences: int | None = 3) -> Plan:
    """Non-negative least squares histogram packing.

    Good where there are sequences of most lengths: a sequence without partners that fill its row up to the
    last token stays alone, or shares it with padding.

    Args:
        counts: int (longest + 1,), number of sequences of each length.
        capacity: token slots of a row, at most 512.
        max_sequences: the most sequences in a row (packing depth), at most 3.

    Raises:
        BrimfulError: there are too many patterns; or see `checked_counts`.
    """
    capacity, max_sequences = check_limits(capacity, max_sequences)
    counts = checked_counts(counts, capacity, max_sequences)
    if max_sequences is None or max_sequences > _MOST_SEQUENCES or capacity > _LARGEST_CAPACITY:
        raise BrimfulError(
            f"NNLSHP lists every way to fill a row: too many for {max_sequences or 'any number of'} sequences"
            f" in {capacity:,} tokens (it takes at most {_MOST_SEQUENCES} in {_LARGEST_CAPACITY}): use"
            " cutting-stock"
        )
    patterns = _patterns(capacity, max_sequences)
    held = np.zeros((capacity + 1, patterns.shape[1]))
    for lengths in patterns:
        np.add.at(held, (lengths, np.arange(patterns.shape[1])), 1)
    held[0] = 0  # of padding
    repeats = np.rint(_fit(held, counts)).astype(np.int64)
    used = repeats > 0
    rows: Counter[tuple[int, ...]] = Counter(
        {
            tuple(filter(None, pattern)): times
            for pattern, times in zip(patterns[:, used].T.tolist(), repeats[used].tolist(), strict=True)
        }
    )
    placed = held.astype(np.int64) @ repeats
    _leave_out(rows, np.maximum(placed - counts, 0).tolist())
    _add(rows, np.maximum(counts - placed, 0).tolist(), capacity, max_sequences)
    chosen = sorted(pattern for pattern in rows if rows[pattern])[::-1]
    return Plan(
        capacity,
        np.array([length for pattern in chosen for length in pattern], dtype=np.int32),
        np.cumsum([0, *map(len, chosen)], dtype=np.int64),
        np.array([rows[pattern] for pattern in chosen], dtype=np.int64),
        lower_bound(counts, capacity, max_sequences),
    )
