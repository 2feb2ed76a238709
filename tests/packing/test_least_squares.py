"""Histogram packing by non-negative least squares: valid plans, hand-derived rows."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from brimful.base.errors import BrimfulError
from brimful.packing.histogram import Plan, read_histogram
from brimful.packing.least_squares import nnlshp


@st.composite
def histograms(draw: st.DrawFn) -> tuple[np.ndarray, int]:
    """(counts, capacity); few lengths or many, of up to 10^10 sequences each."""
    capacity = draw(st.integers(1, 48))
    kinds = draw(st.lists(st.integers(1, capacity), max_size=capacity, unique=True))
    most = draw(st.sampled_from([1, 3, 1000, 10**10]))
    counts = np.zeros(capacity + 1, dtype=np.int64)
    for length in kinds:
        counts[length] = draw(st.integers(0, most))
    return counts, capacity


def check(plan: Plan, counts: np.ndarray, most: int) -> None:
    """Every sequence has one place, and every row is real."""
    assert np.array_equal(plan.counts()[: len(counts)], counts)
    assert plan.counts().sum() == counts.sum()
    assert all(repeats > 0 for repeats in plan.repeats)
    assert len(set(plan.patterns)) == len(plan.patterns)
    for pattern in plan.patterns:
        assert 0 < len(pattern) <= most
        assert sum(pattern) <= plan.capacity
        assert list(pattern) == sorted(pattern, reverse=True)
    assert plan.lower_bound <= plan.rows <= counts.sum()


@given(histograms(), st.integers(1, 3))
@example((np.bincount([6, 12, 18, 23]), 24), 3)  # columns that reach 0 together, but for rounding
def test_a_plan_holds_every_sequence_and_fits(histogram: tuple, most: int) -> None:
    counts, capacity = histogram
    check(nnlshp(counts, capacity, most), counts, most)


@given(histograms())
def test_two_to_a_row_are_as_many_rows_as_the_more_frequent_partner(histogram: tuple) -> None:
    """Rows of two fill up with one partner only: each length with its own, and the rest of either alone."""
    counts, capacity = histogram
    counts = np.minimum(counts, 10**6)
    pairs = sum(max(counts[a], counts[capacity - a]) for a in range(1, (capacity + 1) // 2))
    halves = -(-counts[capacity // 2] // 2) if capacity % 2 == 0 else 0
    assert nnlshp(counts, capacity, 2).rows == pairs + halves + counts[capacity]


@given(histograms())
def test_one_to_a_row_is_a_row_each(histogram: tuple) -> None:
    counts, capacity = histogram
    assert nnlshp(counts, capacity, 1).rows == counts.sum()


def test_ones_alone() -> None:
    """In a row of 6, a 1 goes with 1 and 4 (a rows), with 5 (b rows) or with 2 and 3 (c rows); the others are
    padding. Without weights, least squares leave r = 1 - 2a - b - c of the ones over, at a = 2r, b = r,
    c = r / 2: a + b + c + r rows."""
    share = 4.5 / 6.5
    plan = nnlshp(np.array([0, 10**6]), 6)
    check(plan, np.array([0, 10**6]), 3)
    assert plan.rows == pytest.approx(share * 10**6, abs=3)


def test_finds_the_full_rows_that_sequences_come_from(seed: int) -> None:
    draw = np.random.default_rng(seed)
    capacity, repeats = 96, 10**6
    counts = np.zeros(capacity + 1, dtype=np.int64)
    for _ in range(200):
        cuts = np.sort(draw.integers(0, capacity + 1, 2))
        for length in np.diff(cuts, prepend=0, append=capacity):
            counts[length] += repeats if length else 0
    plan = nnlshp(counts, capacity)
    check(plan, counts, 3)
    assert plan.rows <= 200 * repeats * 1.00001


@pytest.mark.parametrize("most", [1, 2, 3])
@pytest.mark.parametrize(
    ("lengths", "capacity", "rows"),
    [
        ({}, 5, 0),
        ({1: 7}, 1, 7),
        ({2: 3}, 2, 3),
        ({5: 1}, 12, 1),
        ({6: 10_000_000_001}, 6, 10_000_000_001),
        ({7: 3, 9: 1, 12: 10**10}, 12, 10**10 + 4),
    ],
)
def test_rows_known_at_every_depth(lengths: dict[int, int], capacity: int, rows: int, most: int) -> None:
    counts = np.bincount(list(lengths), list(lengths.values()), capacity + 1).astype(np.int64)
    plan = nnlshp(counts, capacity, most)
    check(plan, counts, most)
    assert plan.rows == rows


@pytest.mark.parametrize(("capacity", "most"), [(512, 4), (512, None), (2048, 3), (1025, 1)])
def test_too_many_patterns(capacity: int, most: int | None) -> None:
    with pytest.raises(BrimfulError, match=rf"{most or 'any'} .*{capacity:,} tokens.*cutting-stock"):
        nnlshp(np.array([0, 3]), capacity, most)


@pytest.mark.parametrize("counts", [[1, 3], [0] * 9 + [1], [0, -1]])
def test_bad_histograms(counts: list[int]) -> None:
    with pytest.raises(BrimfulError, match=r"length 0|longer than the capacity|at least 0"):
        nnlshp(np.array(counts), 8)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("most", "rows", "within"), [(1, 16_279_552, 0), (2, 13_128_311, 0), (3, 8_155_057, 50)]
)
def test_rows_of_the_wikipedia(most: int, rows: int, within: int) -> None:
    counts = read_histogram("wikipedia-512")
    plan = nnlshp(counts, 512, most)
    check(plan, counts, most)
    assert abs(plan.rows - rows) <= within
    if most == 3:
        assert plan.efficiency >= 0.997
