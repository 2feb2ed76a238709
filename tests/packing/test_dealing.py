"""Dealing rows to ranks: every row once, and costs that even out."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from brimful.base.errors import BrimfulError
from brimful.base.randomness import derive_key, permutation
from brimful.packing.assignment import assign
from brimful.packing.dealing import deal, row_costs
from brimful.packing.histogram import count_lengths
from brimful.packing.pack_first import best_fit


def skewed_rows(seed: int, capacity: int = 512) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(row_offsets, order, lengths) of 60,000 packed sequences, most of them short."""
    lengths = np.random.default_rng(seed).geometric(1 / 150, 60_000).clip(3, capacity)
    row_offsets, order = assign(best_fit(count_lengths(lengths), capacity), lengths, np.uint64(seed))
    return row_offsets, order, lengths


def imbalance(costs: np.ndarray, dealt: np.ndarray) -> tuple[float, float]:
    """The cost of the most expensive rank over the mean cost of the ranks: mean and worst of all updates."""
    loads = costs[dealt].sum(axis=2)
    ratios = loads.max(axis=1) / loads.mean(axis=1)
    return float(ratios.mean()), float(ratios.max())


@given(st.lists(st.lists(st.integers(1, 2**20), max_size=5)))
def test_a_row_costs_its_squared_lengths(rows: list[list[int]]) -> None:
    lengths = np.array([length for row in rows for length in row], dtype=np.int32)
    order = permutation(len(lengths), np.uint64(1))
    back = np.empty_like(lengths)
    back[order] = lengths
    costs = row_costs(np.cumsum([0, *map(len, rows)]), order, back)
    assert costs.dtype == np.int64
    assert costs.tolist() == [sum(length**2 for length in row) for row in rows]


@given(
    st.lists(st.integers(1, 50), max_size=300),
    st.integers(1, 9),
    st.integers(1, 9),
    st.integers(0, 2**64 - 1),
)
def test_no_row_is_lost_and_none_comes_twice(costs: list[int], ranks: int, each: int, word: int) -> None:
    dealt, rest = deal(np.array(costs, dtype=np.int64), ranks, each, np.uint64(word))
    updates, left = divmod(len(costs), ranks * each)
    assert dealt.shape == (updates, ranks, each)
    assert rest.shape == (left,)
    assert sorted([*dealt.ravel().tolist(), *rest.tolist()]) == list(range(len(costs)))
    again = deal(np.array(costs, dtype=np.int64), ranks, each, np.uint64(word))
    assert np.array_equal(again[0], dealt)
    assert np.array_equal(again[1], rest)


@given(st.lists(st.integers(1, 1000), min_size=1, max_size=300), st.integers(1, 9), st.integers(1, 9))
def test_hands_are_neighbours_in_cost(costs: list[int], ranks: int, each: int) -> None:
    """What ranks get of a turn costs between what they get of the next and of the one before, everywhere."""
    array = np.array(costs, dtype=np.int64)
    hands = array[deal(array, ranks, each, np.uint64(3))[0]].transpose(2, 0, 1)
    for dearer, cheaper in pairwise(hands):
        assert dearer.min(initial=1000) >= cheaper.max(initial=0)
    # The hands, sorted, are pieces of the sorted rows: no hand reaches into another.
    ends = sorted((hand.min(), hand.max()) for hand in hands.reshape(-1, ranks))
    assert all(before[1] <= after[0] for before, after in pairwise(ends))


@given(st.lists(st.integers(1, 1000), min_size=1, max_size=300), st.integers(1, 9), st.integers(1, 9))
def test_ranks_of_an_update_differ_by_at_most_its_widest_hand(
    costs: list[int], ranks: int, each: int
) -> None:
    array = np.array(costs, dtype=np.int64)
    for update in array[deal(array, ranks, each, np.uint64(4))[0]]:
        loads = update.sum(axis=1)
        assert loads.max() - loads.min() <= (update.max(axis=0) - update.min(axis=0)).max()


@pytest.mark.parametrize("ranks", [8, 64])
@pytest.mark.parametrize("each", [4, 16])
def test_ranks_cost_the_same_within_a_percent(ranks: int, each: int, seed: int) -> None:
    row_offsets, order, lengths = skewed_rows(seed)
    costs = row_costs(row_offsets, order, lengths)
    dealt, _ = deal(costs, ranks, each, derive_key(seed))
    mean, worst = imbalance(costs, dealt)
    assert 1 <= mean <= worst
    assert mean < 1.01
    random = permutation(len(costs), derive_key(seed))[: dealt.size].reshape(dealt.shape)
    assert imbalance(costs, random)[0] > 1.05  # what there was to gain
    tokens = np.add.reduceat(lengths[order], row_offsets[:-1])
    assert imbalance(tokens, dealt)[0] < 1.001


def test_with_several_rows_a_rank_updates_cost_about_the_same(seed: int) -> None:
    costs = row_costs(*skewed_rows(seed))
    dealt, _ = deal(costs, 8, 16, derive_key(seed))
    random = permutation(len(costs), derive_key(seed))[: dealt.size].reshape(dealt.shape)
    assert costs[dealt].sum(axis=(1, 2)).std() < costs[random].sum(axis=(1, 2)).std()


def test_rows_meet_anew_with_every_key(seed: int) -> None:
    costs = np.random.default_rng(seed).integers(1, 20, 1000)
    first, second = (deal(costs, 4, 5, derive_key(seed, epoch))[0] for epoch in range(2))
    together = [{frozenset(update) for update in dealt.reshape(-1, 20).tolist()} for dealt in (first, second)]
    assert not together[0] & together[1]


def test_the_rest_is_fair(seed: int) -> None:
    """Dear or cheap, each row is left over equally often."""
    costs = np.arange(1, 12)
    left = np.bincount(np.concatenate([deal(costs, 2, 4, derive_key(seed, i))[1] for i in range(2000)]))
    expected = 2000 * 3 / 11
    assert np.abs(left - expected).max() < 6 * expected**0.5


@pytest.mark.parametrize(("ranks", "each"), [(0, 1), (1, 0), (-2, 3)])
def test_at_least_one_rank_and_row(ranks: int, each: int) -> None:
    with pytest.raises(BrimfulError, match="must be at least 1"):
        deal(np.array([1, 2]), ranks, each, np.uint64(0))
