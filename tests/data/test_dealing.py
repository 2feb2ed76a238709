"""Dealing an update's rows to groups: every row once, and costs that even out."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from brimful.base.randomness import derive_key, permutation
from brimful.data.rows import deal
from brimful.packing.assignment import assign
from brimful.packing.histogram import count_lengths
from brimful.packing.pack_first import best_fit


@st.composite
def updates(draw: st.DrawFn) -> tuple[np.ndarray, int]:
    """(costs of an update's rows, groups)."""
    groups, each = draw(st.integers(1, 9)), draw(st.integers(1, 9))
    costs = draw(st.lists(st.integers(1, 1000), min_size=groups * each, max_size=groups * each))
    return np.array(costs, dtype=np.int64), groups


@given(updates(), st.integers(0, 2**64 - 1))
def test_every_row_comes_once_and_groups_cost_about_the_same(update, word):
    """What groups get of a turn costs as much as what they get of the next, or more; and the loads of groups
    differ by no more than what a hand does."""
    costs, groups = update
    dealt = deal(costs, groups, np.uint64(word))
    assert dealt.shape == (groups, len(costs) // groups)
    assert sorted(dealt.ravel().tolist()) == list(range(len(costs)))
    assert np.array_equal(deal(costs, groups, np.uint64(word)), dealt)
    dealt = costs[dealt]
    for dearer, cheaper in pairwise(dealt.T):
        assert dearer.min() >= cheaper.max()
    loads = dealt.sum(axis=1)
    assert loads.max() - loads.min() <= (dealt.max(axis=0) - dealt.min(axis=0)).max()


@pytest.mark.parametrize(("groups", "each", "most"), [(8, 4, 1.05), (8, 16, 1.01), (64, 4, 1.05)])
def test_groups_of_an_update_cost_about_the_same(groups, each, most, seed):
    """Rows of 512 slots that are packed from mostly short sequences; at random they differ by far more."""
    lengths = np.random.default_rng(seed).geometric(1 / 150, 60_000).clip(3, 512)
    offsets, order = assign(best_fit(count_lengths(lengths), 512), lengths, np.uint64(seed))
    costs = np.add.reduceat(lengths[order].astype(np.int64) ** 2, offsets[:-1])
    drawn = permutation(len(costs), derive_key(seed))[: 20 * groups * each].reshape(20, -1)

    def imbalance(loads: np.ndarray) -> float:
        return float(loads.max() / loads.mean())

    found = [
        imbalance(costs[rows][deal(costs[rows], groups, np.uint64(i))].sum(axis=1))
        for i, rows in enumerate(drawn)
    ]
    random = [imbalance(costs[rows].reshape(groups, -1).sum(axis=1)) for rows in drawn]
    assert np.mean(found) < most
    assert np.mean(found) - 1 < (np.mean(random) - 1) / 3
