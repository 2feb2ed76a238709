"""Histogram packing by non-negative least squares: valid plans, hand-derived rows."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from brimful.packing.least_squares import nnlshp
from brimful.packing.published import read_histogram
from builders.packings import check_plan, histogram, problems


@given(problems(largest=48, most=10**10, depths=st.integers(1, 3)))
# Columns that reach 0 together, but for rounding.
@example((np.bincount([6, 12, 18, 23], minlength=25), 24, 3))
def test_a_plan_holds_every_sequence_and_fits(problem: tuple) -> None:
    plan = nnlshp(*problem)
    check_plan(plan, *problem)
    assert len(set(plan.patterns)) == len(plan.patterns)


@given(problems(largest=48, most=10**6))
def test_one_and_two_to_a_row(problem: tuple) -> None:
    """A row of two fills up with one partner only: as many rows as the more frequent of both lengths has."""
    counts, capacity, _ = problem
    pairs = sum(max(counts[a], counts[capacity - a]) for a in range(1, (capacity + 1) // 2))
    halves = -(-counts[capacity // 2] // 2) if capacity % 2 == 0 else 0
    assert nnlshp(counts, capacity, 2).rows == pairs + halves + counts[capacity]
    assert nnlshp(counts, capacity, 1).rows == counts.sum()


def test_only_ones() -> None:
    """In a row of 6, a 1 goes with 1 and 4 (a rows), with 5 (b rows) or with 2 and 3 (c rows); the others are
    padding. Without weights, least squares leave r = 1 - 2a - b - c of the ones over, at a = 2r, b = r,
    c = r / 2: a + b + c + r rows."""
    plan = nnlshp(np.array([0, 10**6]), 6)
    check_plan(plan, np.array([0, 10**6]), 6, 3)
    assert plan.rows == pytest.approx(4.5 / 6.5 * 10**6, abs=3)


def test_finds_the_full_rows_that_sequences_come_from(seed: int) -> None:
    draw = np.random.default_rng(seed)
    capacity, repeats = 96, 10**6
    counts = np.zeros(capacity + 1, dtype=np.int64)
    for _ in range(200):
        cuts = np.sort(draw.integers(0, capacity + 1, 2))
        for length in np.diff(cuts, prepend=0, append=capacity):
            counts[length] += repeats if length else 0
    assert nnlshp(counts, capacity).rows <= 200 * repeats * 1.00001


@pytest.mark.parametrize(
    ("lengths", "capacity", "rows"),
    [({}, 5, 0), ({1: 7}, 1, 7), ({5: 1}, 12, 1), ({7: 3, 9: 1, 12: 10**10}, 12, 10**10 + 4)],
)
def test_rows_known_at_every_depth(lengths: dict[int, int], capacity: int, rows: int) -> None:
    counts = histogram(capacity, lengths)
    for depth in (1, 2, 3):
        plan = nnlshp(counts, capacity, depth)
        check_plan(plan, counts, capacity, depth)
        assert plan.rows == rows


@pytest.mark.slow
@pytest.mark.parametrize(
    ("depth", "rows", "within"), [(1, 16_279_552, 0), (2, 13_128_311, 0), (3, 8_155_057, 50)]
)
def test_rows_of_the_wikipedia(depth: int, rows: int, within: int) -> None:
    counts = read_histogram("wikipedia-512")
    plan = nnlshp(counts, 512, depth)
    check_plan(plan, counts, 512, depth)
    assert abs(plan.rows - rows) <= within
