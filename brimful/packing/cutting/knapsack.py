"""Two knapsack problems, solved exactly: the pattern worth most, and the fullest row."""

import numpy as np

from brimful.base.compiled import compiled

_NONE = -1


def count_layers(lengths: np.ndarray, capacity: int, depth: int) -> int:
    """Layers of the table of `best_patterns`, each with a cell for each number of tokens; one layer where
    `depth` is no limit."""
    return 1 if (depth + 1) * int(lengths[0]) > capacity else depth


def count_steps(lengths: np.ndarray, capacity: int, depth: int) -> int:
    """Steps of the recursion of `best_patterns`, of about a nanosecond each."""
    return int((capacity + 1 - lengths).sum()) * count_layers(lengths, capacity, depth)


@compiled
def best_patterns(values, lengths, capacity, depth):
    """For each length, the most valuable pattern that holds it; a length may occur any number of times.

    Every step is integer arithmetic, so that a proof can rest on the result.

    Args:
        values: int64 (m,), the value of a sequence of each length, at least 0; `depth` of them fit 63 bits.
        lengths: int64 (m,), distinct, rising, at most `capacity`.
        capacity: token slots of a row.
        depth: the most sequences in a row.

    Returns:
        The most that any pattern is worth, and the patterns: indices into `lengths` and how often each comes,
        int64 (n,), and offsets int64 (m + 1,): pattern i holds lengths[i].
    """
    m = len(lengths)
    unlimited = (depth + 1) * lengths[0] > capacity
    layers = 1 if unlimited else depth
    # worth[k, c]: the most that up to k sequences of up to c tokens are worth; any number where unlimited.
    worth = np.zeros((layers, capacity + 1), dtype=np.int64)
    last = np.full((layers, capacity + 1), _NONE, dtype=np.int32)
    for k in range(0 if unlimited else 1, layers):
        fewer = worth[k] if unlimited else worth[k - 1]
        here, chosen = worth[k], last[k]
        for i in range(m):
            value, length = values[i], lengths[i]
            if value > 0:
                for c in range(length, capacity + 1):
                    if fewer[c - length] + value > here[c]:
                        here[c] = fewer[c - length] + value
                        chosen[c] = i
    most = 0
    times = np.zeros(m, dtype=np.int64)
    indices = np.empty(m * min(m, depth), dtype=np.int64)
    repeats = np.empty(m * min(m, depth), dtype=np.int64)
    offsets = np.zeros(m + 1, dtype=np.int64)
    for i in range(m):
        c, k, end = capacity - lengths[i], layers - 1, offsets[i]
        most = max(most, values[i] + worth[k, c])
        item = i
        while item != _NONE:
            if times[item] == 0:
                indices[end] = item
                end += 1
            times[item] += 1
            item = last[k, c]
            if item != _NONE:
                c -= lengths[item]
                k -= 0 if unlimited else 1
        indices[offsets[i] : end] = np.sort(indices[offsets[i] : end])
        for n in range(offsets[i], end):
            repeats[n] = times[indices[n]]
            times[indices[n]] = 0
        offsets[i + 1] = end
    return most, indices[: offsets[m]].copy(), repeats[: offsets[m]].copy(), offsets


@compiled
def fill_rows(counts, lengths, capacity, depth):
    """Minimum bin slack (Gupta and Ho, 1999): one row after the other, as full as possible.

    A row takes the longest sequence left and the fewest sequences that fill it best beside it. So the short
    sequences, which are the easiest to place, stay for the end.

    Args:
        counts: int64 (m,), sequences of each length.
        lengths: int64 (m,), distinct, rising, at most `capacity`.

    Returns:
        The rows: int64 (sequences,) indices into `lengths`, and offsets int64 (rows + 1,).
    """
    left = counts.copy()
    rows = np.empty(left.sum(), dtype=np.int64)
    offsets = np.zeros(len(rows) + 1, dtype=np.int64)
    few = np.empty(capacity + 1, dtype=np.int64)  # the fewest sequences of exactly c tokens
    last = np.empty(capacity + 1, dtype=np.int64)
    taken = np.empty(capacity + 1, dtype=np.int64)  # of the length in hand
    row, longest = 0, len(lengths) - 1
    while True:
        while longest >= 0 and left[longest] == 0:
            longest -= 1
        if longest < 0:
            return rows, offsets[: row + 1].copy()
        end = offsets[row]
        rows[end] = longest
        end += 1
        left[longest] -= 1
        space = capacity - lengths[longest]
        few[: space + 1] = depth
        few[0] = 0
        for i in range(longest, -1, -1):
            length = lengths[i]
            if left[i] > 0 and length <= space:
                taken[: space + 1] = 0
                for c in range(length, space + 1):
                    if few[c - length] + 1 < few[c] and taken[c - length] < left[i]:
                        few[c] = few[c - length] + 1
                        taken[c] = taken[c - length] + 1
                        last[c] = i
                if few[space] <= 1:
                    break
        while few[space] >= depth:
            space -= 1
        # A shorter length may have changed the path to a smaller c since: never take more than there are.
        while space > 0 and left[last[space]] > 0:
            rows[end] = last[space]
            end += 1
            left[last[space]] -= 1
            space -= lengths[last[space]]
        row += 1
        offsets[row] = end
