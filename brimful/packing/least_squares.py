"""Non-negative least squares histogram packing of Krell et al. (2021, arXiv 2107.02027).

A row is one of the patterns of at most three lengths that fill it to the last token. How often each is used
is a least-squares fit to the histogram, rounded. Sequences that the fit leaves over get rows of their own,
alone or in pairs. Slots without a sequence are padding.

The solver is the active-set method of Lawson and Hanson (1974, chapter 23). A column with a positive gradient
becomes passive (free to be positive), the passive columns are solved for without the sign, and those that
would turn negative leave. The gradient gathers the few entries of each column, and the passive columns' thin
QR factorisation is updated and not made anew (Daniel, Gragg, Kaufman and Stewart, 1976).
"""

from collections import Counter

import numpy as np

from brimful.base.compiled import compiled
from brimful.base.errors import BrimfulError
from brimful.packing.bounds import lower_bound
from brimful.packing.histogram import Plan, check_limits, checked_counts

_MOST_SEQUENCES = 3  # 4 in a row of 512: 959,631 patterns
_LARGEST_CAPACITY = 1024  # the fit's memory grows with its square
_LARGEST_COVERED = 512  # twice as much would take a minute

# As published: short sequences left over or padded cost little, so that the others fit better.
_SHORT, _SHORT_WEIGHT = 8, 0.09
# As published: beside weights up to the capacity, it leaves no sequence over before rounding.
_COVER_WEIGHT = 1e6
# Relative to the target and a column: a gradient that may be rounding, a column that depends on others.
_FLAT = 1e-15
_DEPENDENT = 1e-10


def _patterns(capacity: int, most: int) -> np.ndarray:
    """int64 (3, patterns): lengths that sum to `capacity`, longest first, at most `most` above 0."""
    shortest = np.arange(capacity // 3 + 1 if most > 2 else 1)[:, None]
    middle = np.arange(capacity // 2 + 1 if most > 1 else 1)
    shortest, middle = np.nonzero((shortest <= middle) & (shortest + 2 * middle <= capacity))
    return np.stack([capacity - middle - shortest, middle, shortest])


def _fit(patterns: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """How often each pattern is used: a sequence left over costs as much as a slot without a sequence."""
    weights = np.ones(len(counts))
    weights[: _SHORT + 1] = _SHORT_WEIGHT
    return nnls(patterns, np.where(patterns, weights[patterns], 0), weights * counts)


def _covering_fit(patterns: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """How often each pattern is used, with a slot for every sequence and the least squares of padding tokens.

    An additional column for each length takes up its slots without a sequence, so the heavy lower half of the
    system counts only sequences without a slot.
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
        cover: the extended variant (ENNLSHP): a slot for every sequence before rounding, with the least
            squares of padding tokens. On Wikipedia's lengths at depth 3 it takes four times the time and
            gains 0.02 points of efficiency.

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


@compiled
def _back_substitute(r, rank, right):
    """Solve r[:rank, :rank] x = right in place."""
    for i in range(rank - 1, -1, -1):
        total = right[i]
        for j in range(i + 1, rank):
            total -= r[i, j] * right[j]
        right[i] = total / r[i, i]


@compiled
def _remove_column(qt, r, rank, column):
    """Take a column out of Q R; Givens rotations make r triangular again."""
    for j in range(column + 1, rank):
        for i in range(j + 1):
            r[i, j - 1] = r[i, j]
    for i in range(column, rank - 1):
        norm = np.hypot(r[i, i], r[i + 1, i])
        cosine, sine = r[i, i] / norm, r[i + 1, i] / norm
        for j in range(i, rank - 1):
            above, below = r[i, j], r[i + 1, j]
            r[i, j], r[i + 1, j] = cosine * above + sine * below, cosine * below - sine * above
        for j in range(qt.shape[1]):
            above, below = qt[i, j], qt[i + 1, j]
            qt[i, j], qt[i + 1, j] = cosine * above + sine * below, cosine * below - sine * above


class _Passive:
    """Passive columns in the order in which they came, and their thin factorisation qt.T @ r."""

    def __init__(self, target: np.ndarray) -> None:
        self.columns: list[int] = []
        self._target = target
        self._qt = np.zeros((len(target), len(target)))
        self._r = np.zeros((len(target), len(target)))

    def add(self, column: int, dense: np.ndarray) -> bool:
        """Add a column, unless it depends on those that are there."""
        rank = len(self.columns)
        if rank == len(self._target):
            return False
        qt = self._qt[:rank]
        along = qt @ dense
        rest = dense - along @ qt
        again = qt @ rest  # a second pass makes the rest orthogonal to rounding
        rest -= again @ qt
        norm = np.linalg.norm(rest)
        if norm <= _DEPENDENT * np.linalg.norm(dense):
            return False
        self._r[:rank, rank] = along + again
        self._r[rank, rank] = norm
        self._r[rank, :rank] = 0
        self._qt[rank] = rest / norm
        self.columns.append(column)
        return True

    def remove(self, place: int) -> None:
        _remove_column(self._qt, self._r, len(self.columns), place)
        del self.columns[place]

    def solve(self) -> np.ndarray:
        """Least squares without the sign: a value for each of `columns`."""
        rank = len(self.columns)
        values = self._qt[:rank] @ self._target
        _back_substitute(self._r, rank, values)
        return values


def nnls(indices: np.ndarray, values: np.ndarray, target: np.ndarray) -> np.ndarray:
    """The x >= 0 that minimises |A x - target|, where A[indices[e, j], j] = values[e, j].

    At most 10 steps per row are taken; should they not be enough, x is the best point on the way.

    Args:
        indices: int (entries, columns), the row of each entry; entries of one row are added up.
        values: float64 (entries, columns), 0 for an entry that is not there.
        target: float64 (rows,).

    Returns:
        float64 (columns,), positive for linearly independent columns, else 0.
    """
    rows, columns = len(target), indices.shape[1]
    tolerance = _FLAT * np.linalg.norm(target) * np.linalg.norm(values, axis=0).max()
    passive, x, residual = _Passive(target), np.empty(0), target
    refused: list[int] = []
    for _ in range(10 * rows):
        gradient = sum(value * residual[index] for index, value in zip(indices, values, strict=True))
        gradient[passive.columns + refused] = 0
        column = int(gradient.argmax())
        if gradient[column] <= tolerance:
            break
        if not passive.add(column, np.bincount(indices[:, column], values[:, column], rows)):
            refused.append(column)
            continue
        x = np.append(x, 0.0)
        solution = passive.solve()
        if solution[-1] <= 0:  # its gradient was rounding
            passive.remove(len(x) - 1)
            x = x[:-1]
            refused.append(column)
            continue
        refused = []
        while (solution <= 0).any():
            falling = np.flatnonzero(solution <= 0)
            reach = x[falling] / np.maximum(x[falling] - solution[falling], np.finfo(float).tiny)
            x = np.maximum(x + reach.min() * (solution - x), 0)
            leaving = falling[(reach == reach.min()) | (x[falling] == 0)]
            for place in leaving[::-1].tolist():
                passive.remove(place)
            x = np.delete(x, leaving)
            solution = passive.solve()
        x = solution
        chosen = indices[:, passive.columns]
        residual = target - np.bincount(chosen.ravel(), (values[:, passive.columns] * x).ravel(), rows)
    result = np.zeros(columns)
    result[passive.columns] = x
    return result
