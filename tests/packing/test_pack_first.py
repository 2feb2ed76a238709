"""Histograms, bounds, SPFHP and LPFHP: against packers of one sequence after the other, and known figures."""

from bisect import bisect_left, insort
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from brimful.base.errors import BrimfulError
from brimful.base.storage import read_json
from brimful.packing.histogram import PUBLISHED, Plan, count_lengths, lower_bound, read_histogram
from brimful.packing.pack_first import best_fit, lpfhp, spfhp


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


@given(problems(most=60))
def test_the_bound_is_that_of_martello_and_toth(problem: tuple) -> None:
    """L2 by its definition (1990, section 8.3.2), a sequence at a time."""
    lengths, capacity, _ = problem
    best = -(-sum(lengths) // capacity)
    for a in range(capacity // 2 + 1):
        long = sum(2 * length > capacity for length in lengths)
        beside = [length for length in lengths if 2 * length > capacity and length <= capacity - a]
        short = sum(length for length in lengths if 2 * length <= capacity and length >= a)
        space = len(beside) * capacity - sum(beside)
        best = max(best, long + max(0, -(-(short - space) // capacity)))
    counts = count_lengths(np.array(lengths, dtype=np.int64))
    assert lower_bound(counts, capacity) == best
    for depth in (1, 2, 5):
        assert lower_bound(counts, capacity, depth) == max(best, -(-len(lengths) // depth))


def shortest_pack_first(lengths: list[int], capacity: int, max_sequences: int | None) -> int:
    """Rows of SPFHP, an item at a time: into the emptiest row; those that fit none open a row each."""
    rows: list[list[int]] = []
    for length in sorted(set(lengths), reverse=True):
        open_now = list(rows)
        for _ in range(lengths.count(length)):
            fitting = [
                row
                for row in open_now
                if capacity - sum(row) >= length and len(row) < (max_sequences or capacity)
            ]
            if fitting:
                min(fitting, key=sum).append(length)
            else:
                rows.append([length])
    return len(rows)


@given(problems(most=40), st.booleans())
def test_spfhp_is_as_published(problem: tuple, limited: bool) -> None:
    lengths, capacity, most = problem
    counts = count_lengths(np.array(lengths, dtype=np.int64))
    depth = most if limited else None
    plan = spfhp(counts, capacity, depth)
    assert plan_lengths(plan) == Counter(lengths)
    assert all(0 < sum(pattern) <= capacity for pattern in plan.patterns)
    assert max(map(len, plan.patterns), default=0) <= (depth or capacity)
    if depth is None:  # with a limit, which of several rows as empty is taken matters, and isn't published
        assert plan.rows == shortest_pack_first(lengths, capacity, None)


def test_numbers_of_numpy_are_numbers() -> None:
    counts = count_lengths(np.array([200, 100, 50, 3], dtype=np.uint8))
    for capacity in (np.uint8(200), np.int32(200), 200):
        plan = lpfhp(counts, capacity, np.int8(4))
        assert (plan.rows, plan.capacity, plan.tokens) == (2, 200, 353)


@pytest.mark.parametrize("lengths", [[1.5], [[1]], [3, -1], ["a"]])
def test_lengths_that_are_none(lengths: list) -> None:
    with pytest.raises(BrimfulError, match="length"):
        count_lengths(np.array(lengths))


def test_capacities_and_depths_below_one() -> None:
    for arguments in ((0, None), (8, 0)):
        with pytest.raises(BrimfulError, match="at least 1"):
            lpfhp(np.array([0, 1]), *arguments)
    for counts in (np.array([0, -1]), np.zeros((2, 2))):
        with pytest.raises(BrimfulError, match="histogram"):
            spfhp(counts, 8)


@pytest.mark.parametrize(
    ("depth", "shortest_first", "longest_first"),
    [
        (2, 10_101_683, 10_099_081),
        (3, 9_094_695, 9_090_154),
        (4, 8_658_996, 8_657_119),
        (8, 8_224_673, 8_207_569),
        (16, 8_166_708, 8_140_006),
        (None, 8_166_708, 8_138_483),
    ],
)
def test_rows_of_the_wikipedia(depth: int | None, shortest_first: int, longest_first: int) -> None:
    counts = read_histogram("wikipedia-512")
    for algorithm, rows in ((spfhp, shortest_first), (lpfhp, longest_first)):
        plan = algorithm(counts, 512, depth)
        assert plan.rows == rows
        assert plan_lengths(plan) == Counter(dict(enumerate(counts.tolist())))
    assert lower_bound(counts, 512) == 8_135_727


def test_the_published_histogram_names_its_source() -> None:
    counts = read_histogram("wikipedia-512")
    assert (counts.sum(), counts @ np.arange(513)) == (16_279_552, 4_164_796_173)
    published = read_json(PUBLISHED["wikipedia-512"])
    assert "Graphcore" in published["source"]
    assert "MIT License" in published["licence"]
