"""Longest-pack-first histogram packing of Krell et al. (2021, arXiv 2107.02027, section 3.1).

LPFHP takes sequences from the longest to the shortest, each into the fullest open row that still takes it,
which is best-fit decreasing (Johnson, 1973). All sequences of a length are placed together, and rows of one
pattern are one group, so the work grows with the number of distinct lengths and of patterns, not with the
number of sequences. shortest_first.py uses the same groups.
"""

from collections.abc import Callable

import numpy as np
from numpy import ndarray

from brimful.base.compiled import compiled
from brimful.packing.histogram import Plan, check_counts, check_limits, depth_limit, lower_bound

# Columns of `groups`: each of its rows is a group of rows with one pattern. A pattern is a chain: first the
# pattern of the group `PARENT` (-1: none), then `TIMES` more sequences of `LENGTH`. Groups with equal
# space form a stack: `top[space]` is its newest group or -1, `BELOW` the group under this one. `busy`
# counts the stacks for each 64 values of space (`space >> 6` numbers them), so that a search can skip them.
ROWS, SIZE, PARENT, LENGTH, TIMES, BELOW = range(6)


@compiled
def make_space(groups, used):
    """Return the groups with space for two more, in an array twice as long if this one is full."""
    if used + 2 <= len(groups):
        return groups
    longer = np.empty((2 * len(groups), 6), dtype=np.int64)
    longer[:used] = groups[:used]
    return longer


@compiled
def add_group(groups, used, top, busy, space, depth, rows, parent, length, times):
    """Add a group: the pattern of `parent` and `times` more sequences of `length`. Return the new count."""
    group = groups[used]
    group[ROWS] = rows
    group[SIZE] = times + (groups[parent, SIZE] if parent >= 0 else 0)
    group[PARENT] = parent
    group[LENGTH] = length
    group[TIMES] = times
    if space > 0 and group[SIZE] < depth:  # a full group is closed: no stack has it
        if top[space] < 0:
            busy[space >> 6] += 1
        group[BELOW] = top[space]
        top[space] = used
    return used + 1


@compiled
def take_rows(groups, top, busy, space, rows):
    """Take `rows` rows off the newest group with this space."""
    group = groups[top[space]]
    group[ROWS] -= rows
    if group[ROWS] == 0:
        top[space] = group[BELOW]
        if top[space] < 0:
            busy[space >> 6] -= 1


@compiled
def _longest_first(counts, capacity, depth, groups, top, busy):
    """Fill the groups by LPFHP. Return them and their number."""
    used = 0
    for length in range(capacity, 0, -1):
        unplaced = counts[length]
        space = length
        while unplaced > 0:
            groups = make_space(groups, used)
            while space < capacity and top[space] < 0:
                space = space + 1 if busy[space >> 6] else (space >> 6) + 1 << 6
            if space >= capacity:  # no open row has space for this length: new rows, as full as possible
                each = min(capacity // length, depth)
                if unplaced >= each:
                    space = capacity - each * length
                    used = add_group(
                        groups, used, top, busy, space, depth, unplaced // each, -1, length, each
                    )
                if unplaced % each:
                    space = capacity - unplaced % each * length
                    used = add_group(groups, used, top, busy, space, depth, 1, -1, length, unplaced % each)
                break
            parent = top[space]
            each = min(space // length, depth - groups[parent, SIZE])
            rows = min(groups[parent, ROWS], unplaced // each)
            if rows == 0:  # fewer sequences than one row takes
                rows, each = 1, unplaced
            take_rows(groups, top, busy, space, rows)
            used = add_group(
                groups, used, top, busy, space - each * length, depth, rows, parent, length, each
            )
            unplaced -= rows * each
    return groups, used


@compiled
def _write_patterns(groups, lengths, offsets, repeats):
    """Write the patterns of the groups that have rows; the arrays are exactly as long as they need."""
    pattern = 0
    for index in range(len(groups)):
        if groups[index, ROWS]:
            end = offsets[pattern] + groups[index, SIZE]
            repeats[pattern] = groups[index, ROWS]
            pattern += 1
            offsets[pattern] = end
            # A chain leads from a pattern's last, shortest lengths to its first ones, so it is written
            # backwards.
            while index >= 0:
                lengths[end - groups[index, TIMES] : end] = groups[index, LENGTH]
                end -= groups[index, TIMES]
                index = groups[index, PARENT]


def pack_with(fill: Callable, counts: ndarray, capacity: int, max_sequences: int | None) -> Plan:
    capacity, max_sequences = check_limits(capacity, max_sequences)
    counts = check_counts(counts, capacity)
    groups = np.empty((4 * np.count_nonzero(counts) + 16, 6), dtype=np.int64)
    top = np.full(capacity + 1, -1, dtype=np.int64)
    busy = np.zeros((capacity >> 6) + 1, dtype=np.int64)
    groups, used = fill(counts, capacity, depth_limit(capacity, max_sequences), groups, top, busy)
    groups = groups[:used]
    sizes = groups[groups[:, ROWS] > 0, SIZE]
    lengths = np.empty(sizes.sum(), dtype=np.int32)
    offsets = np.zeros(len(sizes) + 1, dtype=np.int64)
    repeats = np.empty(len(sizes), dtype=np.int64)
    _write_patterns(groups, lengths, offsets, repeats)
    return Plan(capacity, lengths, offsets, repeats, lower_bound(counts, capacity, max_sequences))


def lpfhp(counts: ndarray, capacity: int, max_sequences: int | None = None) -> Plan:
    """Pack by longest-pack-first histogram packing, into the same rows as best-fit decreasing.

    The newest of several equally full rows is taken.

    Args:
        counts: int (longest + 1,), number of sequences of each length.
        capacity: token slots of a row.
        max_sequences: the most sequences in a row (packing depth); None = no limit.

    Raises:
        BrimfulError: see `check_limits` and `check_counts`.
    """
    return pack_with(_longest_first, counts, capacity, max_sequences)


best_fit = lpfhp
"""LPFHP under its usual name, best-fit decreasing. It is used where half a millisecond matters."""
