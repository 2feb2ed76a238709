"""The two pack-first packings of Krell et al. (2021, arXiv 2107.02027): shortest and longest pack first.

Both take sequences from the longest to the shortest, each into an open row: SPFHP into the row with the
most space, LPFHP into the fullest row that still takes it, which is best-fit decreasing (Johnson, 1973).
All sequences of a length are placed together, and rows of one pattern are one group, so the work grows
with the number of distinct lengths and of patterns, not with the number of sequences.
"""

from collections.abc import Callable

import numpy as np

from brimful.base.compiled import compiled
from brimful.packing.histogram import Plan, check_limits, checked_counts, depth_limit, lower_bound

# Columns of a group of rows with one pattern. Patterns are chains: a group's last lengths, and its parent.
_ROWS, _SIZE, _PARENT, _LENGTH, _TIMES, _BELOW = range(6)


@compiled
def _open(groups, used, top, busy, space, depth, rows, parent, length, times):
    """Add a group, `parent` and `times` more of `length`, open if it takes more; how many there are then."""
    group = groups[used]
    group[_ROWS] = rows
    group[_SIZE] = times + (groups[parent, _SIZE] if parent >= 0 else 0)
    group[_PARENT] = parent
    group[_LENGTH] = length
    group[_TIMES] = times
    if space > 0 and group[_SIZE] < depth:
        if top[space] < 0:
            busy[space >> 6] += 1
        group[_BELOW] = top[space]
        top[space] = used
    return used + 1


@compiled
def _take(groups, top, busy, space, rows):
    """Take `rows` rows off the top group of `space`."""
    group = groups[top[space]]
    group[_ROWS] -= rows
    if group[_ROWS] == 0:
        top[space] = group[_BELOW]
        if top[space] < 0:
            busy[space >> 6] -= 1


@compiled
def _shortest_first(counts, capacity, depth, groups, top, busy):
    """Fill `groups`; returns how many there are, or -1 if there is no place for all."""
    used = 0
    for length in range(capacity, 0, -1):
        left = counts[length]
        space = capacity
        while left > 0 and space >= length:
            if busy[space >> 6] == 0:
                space = (space >> 6 << 6) - 1
            elif top[space] < 0:
                space -= 1
            else:
                if used == len(groups):
                    return -1
                parent = top[space]
                rows = min(groups[parent, _ROWS], left)
                _take(groups, top, busy, space, rows)
                used = _open(groups, used, top, busy, space - length, depth, rows, parent, length, 1)
                left -= rows
        if left > 0:
            if used == len(groups):
                return -1
            used = _open(groups, used, top, busy, capacity - length, depth, left, -1, length, 1)
    return used


@compiled
def _longest_first(counts, capacity, depth, groups, top, busy):
    """Fill `groups`; returns how many there are, or -1 if there is no place for all."""
    used = 0
    for length in range(capacity, 0, -1):
        left = counts[length]
        space = length
        while left > 0:
            if used + 1 >= len(groups):
                return -1
            while space < capacity and top[space] < 0:
                space = space + 1 if busy[space >> 6] else (space >> 6) + 1 << 6
            if space >= capacity:  # nothing fits: new rows
                each = min(capacity // length, depth)
                if left >= each:
                    space = capacity - each * length
                    used = _open(groups, used, top, busy, space, depth, left // each, -1, length, each)
                if left % each:
                    space = capacity - left % each * length
                    used = _open(groups, used, top, busy, space, depth, 1, -1, length, left % each)
                break
            parent = top[space]
            each = min(space // length, depth - groups[parent, _SIZE])
            rows = min(groups[parent, _ROWS], left // each)
            if rows == 0:
                rows, each = 1, left
            _take(groups, top, busy, space, rows)
            used = _open(groups, used, top, busy, space - each * length, depth, rows, parent, length, each)
            left -= rows * each
    return used


@compiled
def _patterns(groups, used, lengths, offsets, repeats):
    """Write out the groups that have rows; the arrays are as long as is needed."""
    pattern = 0
    for index in range(used):
        if groups[index, _ROWS]:
            end = offsets[pattern] + groups[index, _SIZE]
            repeats[pattern] = groups[index, _ROWS]
            pattern += 1
            offsets[pattern] = end
            while index >= 0:
                lengths[end - groups[index, _TIMES] : end] = groups[index, _LENGTH]
                end -= groups[index, _TIMES]
                index = groups[index, _PARENT]


def _pack(fill: Callable, counts: np.ndarray, capacity: int, max_sequences: int | None) -> Plan:
    capacity, max_sequences = check_limits(capacity, max_sequences)
    counts = checked_counts(counts, capacity, max_sequences)
    depth = depth_limit(capacity, max_sequences)
    room, used = 4 * int((counts > 0).sum()) + 16, -1
    while used < 0:
        groups = np.empty((room, 6), dtype=np.int64)
        top = np.full(capacity + 1, -1, dtype=np.int64)
        busy = np.zeros((capacity >> 6) + 1, dtype=np.int64)
        used = fill(counts, capacity, depth, groups, top, busy)
        room *= 2
    sizes = groups[:used, _SIZE][groups[:used, _ROWS] > 0]
    lengths = np.empty(sizes.sum(), dtype=np.int32)
    offsets, repeats = np.zeros(len(sizes) + 1, dtype=np.int64), np.empty(len(sizes), dtype=np.int64)
    _patterns(groups, used, lengths, offsets, repeats)
    return Plan(capacity, lengths, offsets, repeats, lower_bound(counts, capacity, max_sequences))


def spfhp(counts: np.ndarray, capacity: int, max_sequences: int | None = None) -> Plan:
    """Shortest-pack-first histogram packing.

    As published, sequences that fit no open row open a row each, where a packing of one sequence after the
    other would fill them one by one: lengths that don't vary pack badly.

    Args:
        counts: int (longest + 1,), number of sequences of each length.
        capacity: token slots of a row.
        max_sequences: the most sequences in a row (packing depth); None = no limit.

    Raises:
        BrimfulError: see `checked_counts`.
    """
    return _pack(_shortest_first, counts, capacity, max_sequences)


def lpfhp(counts: np.ndarray, capacity: int, max_sequences: int | None = None) -> Plan:
    """Longest-pack-first histogram packing, the same rows as best-fit decreasing; arguments as for `spfhp`.

    Where several open rows are as full, the latest is taken.
    """
    return _pack(_longest_first, counts, capacity, max_sequences)


best_fit = lpfhp
"""Best-fit decreasing: what the field calls LPFHP elsewhere. The choice where half a millisecond matters."""
