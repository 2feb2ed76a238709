"""Plans on the histogram, against a naive packer and known figures of the Wikipedia; assignment to rows."""

import json
import os
from bisect import bisect_left, insort
from collections import Counter
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from brimful.errors import BrimfulError
from brimful.packing.assign import assign
from brimful.packing.bounds import lower_bound
from brimful.packing.histogram import Plan, count_lengths, padded_efficiency
from brimful.packing.pack_first import best_fit
from brimful.randomness import derive_key

WIKIPEDIA = os.environ.get("BRIMFUL_WIKIPEDIA_HISTOGRAM", "")


@st.composite
def problems(draw: st.DrawFn, most: int = 300) -> tuple[list[int], int, int | None]:
    """(lengths, capacity, most sequences in a row)."""
    capacity = draw(st.integers(1, 64))
    kinds = draw(st.lists(st.integers(1, capacity), min_size=1, max_size=8))
    lengths = draw(st.lists(st.sampled_from(kinds) | st.integers(1, capacity), max_size=most))
    return lengths, capacity, draw(st.none() | st.integers(1, 8))


def naive_rows(lengths: list[int], capacity: int, max_sequences: int | None) -> int:
    """Best-fit decreasing, an item at a time: into the fullest row that still takes it."""
    spaces: list[tuple[int, int]] = []  # (space, sequences) of rows that take more
    rows = 0
    for length in sorted(lengths, reverse=True):
        place = bisect_left(spaces, (length, 0))
        if place < len(spaces):
            space, sequences = spaces.pop(place)
        else:
            rows += 1
            space, sequences = capacity, 0
        if sequences + 1 < (max_sequences or capacity):
            insort(spaces, (space - length, sequences + 1))
    return rows


def plan_lengths(plan: Plan) -> Counter[int]:
    counts: Counter[int] = Counter()
    for pattern, repeats in zip(plan.patterns, plan.repeats.tolist(), strict=True):
        for length in pattern:
            counts[length] += repeats
    return counts


@given(problems())
def test_a_plan_holds_every_sequence_and_fits(problem: tuple) -> None:
    lengths, capacity, most = problem
    counts = count_lengths(np.array(lengths, dtype=np.int64))
    plan = best_fit(counts, capacity, most)
    assert plan_lengths(plan) == Counter(lengths)
    assert all(sum(pattern) <= capacity for pattern in plan.patterns)
    assert all(0 < len(pattern) <= (most or capacity) for pattern in plan.patterns)
    assert all(list(pattern) == sorted(pattern, reverse=True) for pattern in plan.patterns)
    assert all(repeats > 0 for repeats in plan.repeats)
    assert plan.rows >= lower_bound(counts, capacity)
    assert plan.sequences == len(lengths)
    assert plan.tokens == sum(lengths)
    assert plan.depth == max((len(pattern) for pattern in plan.patterns), default=0)
    assert plan.efficiency == (sum(lengths) / (plan.rows * capacity) if lengths else 1.0)


@given(problems(most=120))
def test_as_many_rows_as_item_by_item(problem: tuple) -> None:
    lengths, capacity, most = problem
    plan = best_fit(count_lengths(np.array(lengths, dtype=np.int64)), capacity, most)
    assert plan.rows == naive_rows(lengths, capacity, most)


@pytest.mark.parametrize("lengths", [[0, 3], [17], [3, 200]])
def test_a_length_that_fits_no_row_is_refused(lengths: list[int]) -> None:
    with pytest.raises(BrimfulError, match=r"length 0|longer than the capacity"):
        best_fit(count_lengths(np.array(lengths)), 16)


@given(problems())
def test_no_row_count_is_below_the_bound(problem: tuple) -> None:
    lengths, capacity, _ = problem
    bound = lower_bound(count_lengths(np.array(lengths, dtype=np.int64)), capacity)
    assert bound * capacity >= sum(lengths)
    assert bound >= sum(2 * length > capacity for length in lengths)
    assert (bound - 1) * capacity < sum(lengths) or bound == sum(2 * length > capacity for length in lengths)


def test_padded_efficiency() -> None:
    counts = count_lengths(np.array([2, 4, 4]))
    assert padded_efficiency(counts) == 10 / 12
    assert padded_efficiency(counts, 8) == 10 / 24
    assert padded_efficiency(np.zeros(5, dtype=np.int64)) == 1.0


@given(problems(), st.integers(0, 2**64 - 1))
def test_assignment(problem: tuple, word: int) -> None:
    lengths, capacity, most = problem
    array = np.array(lengths, dtype=np.int32)
    plan = best_fit(count_lengths(array), capacity, most)
    key = np.uint64(word)
    row_offsets, order = assign(plan, array, key)
    assert sorted(order.tolist()) == list(range(len(lengths)))
    rows = [tuple(array[order[a:b]].tolist()) for a, b in pairwise(row_offsets)]
    assert Counter(rows) == Counter(
        {
            pattern: sum(n for p, n in zip(plan.patterns, plan.repeats.tolist(), strict=True) if p == pattern)
            for pattern in plan.patterns
        }
    )
    again = assign(plan, array, key)
    assert np.array_equal(again[0], row_offsets)
    assert np.array_equal(again[1], order)


def test_neighbours_depend_on_the_key(seed: int) -> None:
    lengths = np.random.default_rng(seed).integers(1, 100, 2000)
    plan = best_fit(count_lengths(lengths), 512)
    orders = [assign(plan, lengths, derive_key(seed, epoch))[1] for epoch in range(3)]
    assert not np.array_equal(orders[0], orders[1])
    # Of each place, the chance to hold the same sequence again is that of a draw among 20 of its length.
    assert (orders[1] == orders[2]).mean() < 0.2


def test_a_plan_for_other_lengths_is_refused() -> None:
    plan = best_fit(count_lengths(np.array([3, 4])), 8)
    for lengths in ([3, 5], [3], [3, 4, 4]):
        with pytest.raises(ValueError, match="other lengths"):
            assign(plan, np.array(lengths), np.uint64(0))


@pytest.mark.skipif(
    not Path(WIKIPEDIA).is_file(), reason="set BRIMFUL_WIKIPEDIA_HISTOGRAM to a JSON file with its counts"
)
@pytest.mark.parametrize(
    ("most", "rows"),
    [(None, 8_138_483), (2, 10_099_081), (3, 9_090_154), (4, 8_657_119), (8, 8_207_569), (16, 8_140_006)],
)
def test_rows_of_the_wikipedia(most: int | None, rows: int) -> None:
    counts = np.array([0, *json.loads(Path(WIKIPEDIA).read_text())["counts"]])
    plan = best_fit(counts, 512, most)
    assert plan.rows == rows
    assert plan_lengths(plan) == Counter(dict(enumerate(counts.tolist())))
