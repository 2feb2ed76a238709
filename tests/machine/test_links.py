"""Every two ranks meet once, slow pairs are found, and fast ones join the ranks to train on."""

from itertools import combinations

import pytest
import torch

from brimful.base.distributed import World
from brimful.base.errors import BrimfulError
from brimful.machine import links
from brimful.machine.links import ALONE, ranks_to_train_on, rounds, slow_pairs


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 7, 8, 9, 10, 17, 64])
def test_every_pair_meets_once(ranks):
    made = list(rounds(ranks))
    assert sorted(pair for pairs in made for pair in pairs) == list(combinations(range(ranks), 2))
    for pairs in made:
        busy = [rank for pair in pairs for rank in pair]
        assert len(busy) == len(set(busy))
    if ranks <= ALONE:
        assert all(len(pairs) == 1 for pairs in made)
    else:
        assert len(made) == ranks - 1 + ranks % 2
        assert all(len(pairs) == ranks // 2 for pairs in made)


def test_ranks_that_do_not_reach_each_other_are_named(monkeypatch):
    def refuse(*args, **options):
        raise RuntimeError("Connect timeout [10.0.0.2]:4711\nand a long trace")

    monkeypatch.setattr(links.dist, "new_group", refuse)
    monkeypatch.setattr(World, "barrier", lambda world: None)
    with pytest.raises(BrimfulError) as raised:
        links.measure_links(World(1, 2, torch.device("cpu")))
    assert str(raised.value).startswith(
        "ranks 0 and 1 do not reach each other: Connect timeout [10.0.0.2]:4711;"
    )
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("hosts", "slow"),
    [
        # Eight of fifteen pairs use the network: it is slow against the pairs within hosts.
        ("aaaabb", {(a, b) for a in range(4) for b in (4, 5)}),
        ("aaa", {(0, 2), (1, 2)}),
        ("aa", set()),
    ],
)
def test_slow_pairs_are_those_far_below_the_faster_median(hosts, slow):
    pairs = list(combinations(range(len(hosts)), 2))
    speeds = {pair: 0.9e9 if pair in slow else 20e9 for pair in pairs}
    if hosts == "aaa":  # of a host's own pairs the median is the slow one, so nothing stands out
        assert slow_pairs(speeds, hosts) == set()
        speeds |= {(0, 2): 20e9}
        slow = {(1, 2)}
    assert slow_pairs(speeds, hosts) == slow


@pytest.mark.parametrize(
    ("ranks", "good", "chosen"),
    [
        (1, set(), [0]),
        (3, set(), [0]),
        (6, {(0, 1), (1, 2), (2, 3), (4, 5)}, [0, 1, 2, 3]),  # take these four
        (5, {(0, 1), (3, 4)}, [0, 1]),
        (5, {(2, 4), (3, 4)}, [2, 3, 4]),
    ],
)
def test_the_largest_set_that_good_pairs_join(ranks, good, chosen):
    assert ranks_to_train_on(ranks, good) == chosen
