"""Random histograms, and what every packing of one must hold."""

import numpy as np
from hypothesis import strategies as st

from brimful.packing.histogram import Plan, lower_bound

DEPTHS = st.none() | st.integers(1, 8)


def histogram(capacity: int, counts: dict[int, int]) -> np.ndarray:
    """int64 (capacity + 1,): `counts[length]` sequences of each length."""
    array = np.zeros(capacity + 1, dtype=np.int64)
    array[list(counts)] = list(counts.values())
    return array


@st.composite
def problems(
    draw: st.DrawFn, largest: int = 64, most: int = 40, depths: st.SearchStrategy = DEPTHS
) -> tuple[np.ndarray, int, int | None]:
    """(counts, capacity, most sequences in a row): up to `most` sequences of each of a few lengths."""
    capacity = draw(st.integers(1, largest))
    counts = draw(st.dictionaries(st.integers(1, capacity), st.integers(1, most), max_size=10))
    return histogram(capacity, counts), capacity, draw(depths)


def sequences_of(counts: np.ndarray) -> list[int]:
    return np.repeat(np.arange(len(counts)), counts).tolist()


def check_plan(plan: Plan, counts: np.ndarray, capacity: int, depth: int | None) -> None:
    """Every sequence has one place, and every row is real and within the limits."""
    padded = np.pad(counts, (0, capacity + 1 - len(counts)))
    assert plan.capacity == capacity
    assert np.array_equal(plan.counts(), padded)
    assert (plan.sequences, plan.tokens) == (padded.sum(), padded @ np.arange(capacity + 1))
    assert plan.efficiency == (plan.tokens / (plan.rows * capacity) if plan.rows else 1)
    assert (plan.repeats > 0).all()
    for pattern in plan.patterns:
        assert 0 < len(pattern) <= (depth or capacity)
        assert sum(pattern) <= capacity
        assert list(pattern) == sorted(pattern, reverse=True)
    assert lower_bound(padded, capacity, depth) <= plan.lower_bound <= plan.rows <= plan.sequences
