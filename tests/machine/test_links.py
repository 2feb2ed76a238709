"""Every two ranks meet once, and no rank is in two places."""

from itertools import combinations

import pytest
import torch

from brimful.distributed import World
from brimful.errors import BrimfulError
from brimful.machine import links
from brimful.machine.links import ALONE, rounds


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
        links.measure_pairs(World(1, 2, torch.device("cpu")))
    assert str(raised.value).startswith(
        "ranks 0 and 1 do not reach each other: Connect timeout [10.0.0.2]:4711;"
    )
    assert "\n" not in str(raised.value)
