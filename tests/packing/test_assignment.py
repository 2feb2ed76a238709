"""Assignment of sequences to a plan's rows."""

import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from brimful.base.draws import shuffle_indices
from brimful.base.randomness import hash_words
from brimful.packing.assignment import assign
from brimful.packing.histogram import Plan, count_lengths
from brimful.packing.pack_first import best_fit
from brimful.packing.published import read_histogram
from brimful.packing.shortest_first import spfhp
from builders.packings import problems, sequences_of


def naive_assign(plan: Plan, lengths: np.ndarray, key: np.uint64) -> tuple[list[int], list[int]]:
    """A place at a time: the k-th sequence of a length waits at place `shuffled_index(k)` of a queue."""
    queues = {}
    for length in np.unique(lengths).tolist():
        sequences = np.flatnonzero(lengths == length)
        length_key = hash_words(key, np.array(length))
        places = shuffle_indices(length_key, np.arange(len(sequences)), len(sequences))
        queues[length] = iter(sequences[np.argsort(places)].tolist())
    row_offsets, order = [0], []
    for pattern, repeats in zip(plan.patterns, plan.repeats.tolist(), strict=True):
        for _ in range(repeats):
            order += [next(queues[length]) for length in pattern]
            row_offsets.append(len(order))
    return row_offsets, order


@given(
    problem=problems(),
    pack=st.sampled_from([best_fit, spfhp]),
    dtype=st.sampled_from([np.uint8, np.int32, np.int64]),
    word=st.integers(0, 2**64 - 1),
)
def test_the_same_as_place_by_place(problem: tuple, pack, dtype: type, word: int) -> None:
    lengths = np.array(sequences_of(problem[0]), dtype=dtype)
    np.random.default_rng(word).shuffle(lengths)
    plan = pack(*problem)
    row_offsets, order = assign(plan, lengths, np.uint64(word))
    assert row_offsets.dtype == order.dtype == np.int64
    assert sorted(order.tolist()) == list(range(len(lengths)))
    assert (row_offsets.tolist(), order.tolist()) == naive_assign(plan, lengths, np.uint64(word))


@pytest.mark.parametrize(
    "lengths", [[3, 5], [3], [3, 4, 4], [4, 4], [], [-3, 4], [3, 9], [0, 3, 4], [3, 2**40], [3, 2**16 + 4]]
)
def test_a_plan_for_other_lengths_is_refused(lengths: list[int]) -> None:
    plan = best_fit(count_lengths(np.array([3, 4])), 8)
    with pytest.raises(ValueError, match="lengths"):
        assign(plan, np.array(lengths, dtype=np.int64), np.uint64(0))


@pytest.mark.slow
def test_the_wikipedia_needs_little_memory(seed: int) -> None:
    counts = read_histogram("wikipedia-512")
    lengths = np.array(sequences_of(counts), dtype=np.int32)
    np.random.default_rng(seed).shuffle(lengths)
    assign(best_fit(count_lengths(lengths[:100]), 512), lengths[:100], np.uint64(seed))  # compiles
    tracemalloc.start()
    row_offsets, order = assign(best_fit(counts, 512), lengths, np.uint64(seed))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak - row_offsets.nbytes - order.nbytes < 300e6
    assert (np.bincount(order, minlength=len(lengths)) == 1).all()
