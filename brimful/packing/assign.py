"""From a plan on the histogram to sequence indices: which sequence takes which place in which row.

Within a length, sequences take the places in a keyed random order, so a row's neighbours are strangers
and differ each epoch, while the plan, which sees lengths alone, stays as good as it was.
"""

import numpy as np

from brimful.packing.histogram import Plan
from brimful.randomness import hash_words


def assign(plan: Plan, lengths: np.ndarray, key: np.uint64) -> tuple[np.ndarray, np.ndarray]:
    """Give every sequence its place.

    Args:
        plan: a plan made from the histogram of exactly these `lengths`.
        lengths: int (n,), tokens of each sequence.
        key: decides the order within equal lengths.

    Returns:
        row_offsets int64 (rows + 1,) and order int64 (n,): row r holds the sequences
        `order[row_offsets[r]:row_offsets[r + 1]]`. Every sequence appears exactly once.

    Raises:
        ValueError: the plan is for other lengths.
    """
    lengths = np.asarray(lengths)
    places = [
        np.tile(np.array(p, dtype=np.int64), n)
        for p, n in zip(plan.patterns, plan.repeats.tolist(), strict=True)
    ]
    place_lengths = np.concatenate(places) if places else np.empty(0, dtype=np.int64)
    sizes = np.repeat([len(pattern) for pattern in plan.patterns], plan.repeats).astype(np.int64)
    row_offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)

    places_by_length = np.argsort(place_lengths, kind="stable")
    shuffled = np.argsort(hash_words(key, np.arange(len(lengths))), kind="stable")
    sequences_by_length = shuffled[np.argsort(lengths[shuffled], kind="stable")]
    if not np.array_equal(lengths[sequences_by_length], place_lengths[places_by_length]):
        raise ValueError("the plan was made for other lengths")
    order = np.empty(len(lengths), dtype=np.int64)
    order[places_by_length] = sequences_by_length
    return row_offsets, order
