"""Non-negative least squares on a sparse matrix with far more columns than rows.

The active-set method of Lawson and Hanson (1974, chapter 23): a column with a positive gradient becomes
passive (free to be positive), the passive columns are solved for without the sign, and those that would turn
negative leave. Here the gradient gathers the few entries of each column, and the passive columns' thin QR
factorisation is updated and not made anew (Daniel, Gragg, Kaufman and Stewart, 1976).
"""

import numpy as np

from brimful.compiled import compiled

# Relative to the target and a column: a gradient that may be rounding, a column that depends on others.
_FLAT = 1e-15
_DEPENDENT = 1e-10


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
