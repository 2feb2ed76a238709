"""Shortest-pack-first histogram packing of Krell et al. (2021, arXiv 2107.02027, section 3.1): each sequence,
from the longest to the shortest, goes into the open row with the most space."""

import numpy as np

from brimful.base.compiled import compiled
from brimful.packing.histogram import Plan
from brimful.packing.pack_first import ROWS, add_group, make_space, pack_with, take_rows


@compiled
def _shortest_first(counts, capacity, depth, groups, top, busy):
    """Fill the groups by SPFHP. Return them and their number."""
    used = 0
    for length in range(capacity, 0, -1):
        unplaced = counts[length]
        space = capacity
        while unplaced > 0 and space >= length:
            if busy[space >> 6] == 0:
                space = (space >> 6 << 6) - 1
            elif top[space] < 0:
                space -= 1
            else:
                groups = make_space(groups, used)
                parent = top[space]
                rows = min(groups[parent, ROWS], unplaced)
                take_rows(groups, top, busy, space, rows)
                used = add_group(groups, used, top, busy, space - length, depth, rows, parent, length, 1)
                unplaced -= rows
        if unplaced > 0:
            groups = make_space(groups, used)
            used = add_group(groups, used, top, busy, capacity - length, depth, unplaced, -1, length, 1)
    return groups, used


def spfhp(counts: np.ndarray, capacity: int, max_sequences: int | None = None) -> Plan:
    """Pack by shortest-pack-first histogram packing.

    As published, each sequence that fits no open row opens a row of its own, even if several would fit one:
    lengths that hardly vary are packed badly.

    See `lpfhp` for arguments and errors.
    """
    return pack_with(_shortest_first, counts, capacity, max_sequences)
