"""Non-negative least squares histogram packing of Krell et al. (2021, arXiv 2107.02027).

A row is one of the patterns of at most three lengths that fill it to the last token. How often each is used
is a least-squares fit to the histogram, rounded; what the fit leaves over is paired or alone in rows of its
own, and where it has slots that no sequence is there for, they are padding.
"""

from collections import Counter

import numpy as np

from brimful.errors import BrimfulError
from brimful.packing.bounds import lower_bound
from brimful.packing.histogram import Plan, check_limits, checked_counts
from brimful.packing.nnls import nnls

_MOST_SEQUENCES = 3  # 4 in a row of 512: 959,631 patterns
_LARGEST_CAPACITY = 1024  # the fit's memory grows with its square
_LARGEST_COVERED = 512  # twice as much would take a minute

# As published: short sequences left over or padded cost little, so that the others fit better.
_SHORT, _SHORT_WEIGHT = 8, 0.09
# As published: beside weights up to the capacity, it leaves no sequence over before rounding.
_COVER_WEIGHT = 1e6


def _patterns(capacity: int, most: int) -> np.ndarray:
    """int64 (3, patterns): lengths that sum to `capacity`, longest first, at most `most` above 0."""
    shortest = np.arange(capacity // 3 + 1 if most > 2 else 1)[:, None]
    middle = np.arange(capacity // 2 + 1 if most > 1 else 1)
    shortest, middle = np.nonzero((shortest <= middle) & (shortest + 2 * middle <= capacity))
    return np.stack([capacity - middle - shortest, middle, shortest])


def _fit(patterns: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """How often each pattern is used: a sequence left over is as bad as a slot that none is there for."""
    weights = np.ones(len(counts))
    weights[: _SHORT + 1] = _SHORT_WEIGHT
    return nnls(patterns, np.where(patterns, weights[patterns], 0), weights * counts)


def _covering_fit(patterns: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """How often each pattern is used, with a slot for every sequence and the least squares of padding tokens.

    A column more for each length takes up its slots that no sequence is there for, so that the heavy lower
    half of the system counts only sequences without a slot.
    """
    n = len(counts)
    entries = 2 * len(patterns)
    weights = np.arange(n)
    indices = np.hstack([np.vstack([patterns, patterns + n]), np.tile(n + np.arange(n), (entries, 1))])
    spare = np.zeros((entries, n))
    spare[0] = -_COVER_WEIGHT
    values = np.hstack([np.vstack([weights[patterns], _COVER_WEIGHT * (patterns > 0)]), spare])
    repeats = nnls(indices, values, np.concatenate([weights * counts, _COVER_WEIGHT * counts]))
    return repeats[: patterns.shape[1]]


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


def nnlshp(counts: np.ndarray, capacity: int, max_sequences: int | None = 3, *, cover: bool = False) -> Plan:
    """Non-negative least squares histogram packing.

    Good where there are sequences of most lengths: a sequence without partners that fill its row up to the
    last token stays alone, or shares it with padding.

    Args:
        counts: int (longest + 1,), number of sequences of each length.
        capacity: token slots of a row, at most 1,024 (with `cover` 512).
        max_sequences: the most sequences in a row (packing depth), at most 3.
        cover: the extended variant (ENNLSHP): a slot for every sequence before rounding, at the least squares
            of padding tokens. On the Wikipedia's lengths, at depth 3, four times the time for 0.02 points of
            efficiency.

    Raises:
        BrimfulError: there are too many patterns; or see `checked_counts`.
    """
    capacity, max_sequences = check_limits(capacity, max_sequences)
    counts = checked_counts(counts, capacity, max_sequences)
    largest = _LARGEST_COVERED if cover else _LARGEST_CAPACITY
    if max_sequences is None or max_sequences > _MOST_SEQUENCES or capacity > largest:
        raise BrimfulError(
            f"NNLSHP lists every way to fill a row: too many for {max_sequences or 'any number of'} sequences"
            f" in {capacity:,} tokens (it takes at most {_MOST_SEQUENCES} in {largest:,}): use"
            " cutting-stock"
        )
    patterns = _patterns(capacity, max_sequences)
    repeats = np.rint((_covering_fit if cover else _fit)(patterns, counts)).astype(np.int64)
    used = repeats > 0
    rows: Counter[tuple[int, ...]] = Counter(
        {
            tuple(filter(None, pattern)): times
            for pattern, times in zip(patterns[:, used].T.tolist(), repeats[used].tolist(), strict=True)
        }
    )
    placed = np.zeros_like(counts)
    for lengths in patterns:
        np.add.at(placed, lengths, repeats)
    placed[0] = 0
    _leave_out(rows, np.maximum(placed - counts, 0).tolist())
    _add(rows, np.maximum(counts - placed, 0).tolist(), capacity, max_sequences)
    chosen = sorted(pattern for pattern in rows if rows[pattern])[::-1]
    bound = lower_bound(counts, capacity, max_sequences)
    return Plan.of(capacity, chosen, [rows[pattern] for pattern in chosen], bound)
