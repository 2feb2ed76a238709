"""Best-fit decreasing on the histogram (Johnson, 1973): each sequence, longest first, goes into the
fullest row that still takes it.

All sequences of one length are placed together: if the tightest open rows have `space` left, each takes
`space // length` of them before any other row would be tighter. So the work grows with the number of
distinct lengths and row patterns, not with the number of sequences.
"""

from collections import defaultdict

import numpy as np

from brimful.packing.histogram import Plan

Group = tuple[tuple[int, ...], int]
"""A pattern of lengths and how many open rows follow it."""


def best_fit(counts: np.ndarray, capacity: int, max_sequences: int | None = None) -> Plan:
    """Pack the sequences that `counts` describes into rows of `capacity` tokens.

    Args:
        counts: int (max_length + 1,), number of sequences of each length.
        capacity: token slots of a row.
        max_sequences: the most sequences in a row (packing depth); None = no limit.

    Raises:
        ValueError: a sequence is longer than `capacity`, or empty.
    """
    counts = np.asarray(counts, dtype=np.int64)
    lengths = np.flatnonzero(counts)
    if len(lengths) and (lengths[0] == 0 or lengths[-1] > capacity):
        raise ValueError(f"lengths must be 1 to {capacity}, not {lengths[0]} to {lengths[-1]}")
    open_rows: dict[int, list[Group]] = defaultdict(list)
    closed: list[Group] = []
    depth = max_sequences or capacity

    def put(pattern: tuple[int, ...], rows: int, space: int) -> None:
        if rows and space and len(pattern) < depth:
            open_rows[space].append((pattern, rows))
        elif rows:
            closed.append((pattern, rows))

    for length in map(int, lengths[::-1]):
        left = int(counts[length])
        for space in range(length, capacity):
            while left and open_rows[space]:
                pattern, rows = open_rows[space].pop()
                each = min(space // length, depth - len(pattern))
                filled = min(rows, left // each)
                put((*pattern, *[length] * each), filled, space - each * length)
                left -= filled * each
                rows -= filled
                if rows and left:
                    put((*pattern, *[length] * left), 1, space - left * length)
                    rows, left = rows - 1, 0
                if rows:
                    open_rows[space].append((pattern, rows))
                    break
        each = min(capacity // length, depth)
        put((length,) * each, left // each, capacity - each * length)
        if left % each:
            put((length,) * (left % each), 1, capacity - left % each * length)

    for groups in open_rows.values():
        closed.extend(groups)
    closed.sort(reverse=True)
    return Plan(capacity, tuple(pattern for pattern, _ in closed), tuple(rows for _, rows in closed))
