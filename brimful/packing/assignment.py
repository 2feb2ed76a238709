"""From a plan to sequence indices: which sequence takes which place in which row.

Sequences of one length take their places in a keyed random order. So a row holds unrelated sequences,
different ones in each epoch. The plan sees only lengths and stays the same.
"""

import numpy as np
from numpy import ndarray

from brimful.base.compiled import compiled
from brimful.base.draws import count_shuffle_bits, make_shuffle_words, shuffle_word
from brimful.base.randomness import hash_words
from brimful.packing.histogram import Plan, cumulate


@compiled
def group_places(values, starts, grouped):
    """Write the places of each value, in order, to `grouped` from `starts[value]` on.

    Returns whether the values occur as often as `starts`, which counts them, says.
    """
    following = starts.copy()
    for place in range(len(values)):
        value = values[place]
        if not 0 <= value < len(starts) - 1 or following[value] == starts[value + 1]:
            return False
        grouped[following[value]] = place
        following[value] += 1
    return True


@compiled
def _shuffle(grouped, starts, words, shuffled):
    """Shuffle the sequences of each length; `words[length]`: `make_shuffle_words` of its key."""
    for length in range(len(starts) - 1):
        start = starts[length]
        size = starts[length + 1] - start
        bits = count_shuffle_bits(size)
        for k in range(size):
            place = shuffle_word(np.uint64(k), np.uint64(size), bits, words[length])
            shuffled[start + np.int64(place)] = grouped[start + k]


@compiled
def _fill(lengths, offsets, repeats, starts, shuffled, order):
    """Give each place of the rows, one after the other, the next sequence of its length."""
    following = starts.copy()
    place = 0
    for pattern in range(len(repeats)):
        for _ in range(repeats[pattern]):
            for i in range(offsets[pattern], offsets[pattern + 1]):
                order[place] = shuffled[following[lengths[i]]]
                following[lengths[i]] += 1
                place += 1


def assign(plan: Plan, lengths: ndarray, key: np.uint64) -> tuple[ndarray, ndarray]:
    """Give every sequence its place.

    Args:
        plan: a plan made from the histogram of exactly these `lengths`.
        lengths: int (n,), tokens of each sequence.
        key: an unsigned integer that decides the order within equal lengths.

    Returns:
        row_offsets int64 (rows + 1,) and order int64 (n,): row r holds the sequences
        `order[row_offsets[r]:row_offsets[r + 1]]`. Rows, and the lengths in a row, come in the plan's order.
        Every sequence appears exactly once.

    Raises:
        ValueError: the plan is for other lengths.
    """
    lengths = np.asarray(lengths)
    counts = plan.counts()
    starts = cumulate(counts)  # (capacity + 2,)
    # 4 bytes an index instead of 8: these two arrays are most of the memory of a large assignment.
    index_type = np.uint32 if len(lengths) < 2**32 else np.int64
    grouped = np.empty(len(lengths), dtype=index_type)
    if len(lengths) != starts[-1] or not group_places(lengths, starts, grouped):
        raise ValueError("the plan was made for other lengths")
    shuffled = np.empty(len(lengths), dtype=index_type)
    # Each length has a key of its own, so its order does not depend on the other lengths.
    keys = hash_words(np.uint64(key), np.arange(len(counts)))
    _shuffle(grouped, starts, make_shuffle_words(keys), shuffled)
    del grouped  # before `order` is allocated
    order = np.empty(len(lengths), dtype=np.int64)
    _fill(plan.lengths, plan.offsets, plan.repeats, starts, shuffled, order)
    sizes = np.repeat(np.diff(plan.offsets, prepend=0), np.concatenate([[1], plan.repeats]))
    return np.cumsum(sizes, out=sizes), order
