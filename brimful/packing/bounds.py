"""A minimum of rows that every packing needs, from sums over the histogram.

The bound of the linear program is tighter and takes more time: `cutting_stock` proves it.
"""

import numpy as np

from brimful.packing.histogram import check_limits, checked_counts


def lower_bound(counts: np.ndarray, capacity: int, max_sequences: int | None = None) -> int:
    """The largest of three bounds: all tokens over the capacity, all sequences over `max_sequences`, and L2
    of Martello and Toth (1990, section 8.3.2).

    L2 holds for any a up to half the capacity. Sequences longer than half a row need a row each. Sequences
    of a to half a row's tokens fit into the space beside those of at most capacity - a; the tokens that do
    not fit there need more rows.

    Args:
        counts: int (longest + 1,), number of sequences of each length.

    Raises:
        BrimfulError: see `checked_counts`.
    """
    capacity, max_sequences = check_limits(capacity, max_sequences)
    counts = checked_counts(counts, capacity, max_sequences)
    sequences = np.concatenate([[0], np.cumsum(counts)])  # [i]: of less than i tokens
    tokens = np.concatenate([[0], np.cumsum(counts * np.arange(capacity + 1))])
    half = capacity // 2
    a = np.arange(half + 1)
    beside = sequences[capacity - a + 1] - sequences[half + 1]
    space = beside * capacity - (tokens[capacity - a + 1] - tokens[half + 1])
    overflow = np.maximum(tokens[half + 1] - tokens[a] - space, 0)
    more = -(-overflow // capacity)
    l2 = int(sequences[-1] - sequences[half + 1] + more.max())
    by_depth = -(-int(sequences[-1]) // max_sequences) if max_sequences else 0
    return max(-(-int(tokens[-1]) // capacity), l2, by_depth)
