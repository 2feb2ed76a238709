"""Slow pairs of ranks, and the ranks that have none among them, against every subset."""

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from brimful.machine import advice
from brimful.machine.advice import ranks_without, reference_speed, slow_pairs


def pairs(ranks: int) -> list[tuple[int, int]]:
    return list(combinations(range(ranks), 2))


@st.composite
def cases(draw, most=9):
    ranks = draw(st.integers(1, most))
    speeds = {pair: draw(st.sampled_from([0.5, 1.0, 12.0, 20.0])) for pair in pairs(ranks)}
    return (
        ranks,
        speeds,
        {pair for pair in speeds if speeds[pair] <= draw(st.sampled_from([0.0, 0.5, 1.0, 12.0]))},
    )


def without_slow(chosen, slow) -> bool:
    return not any(pair in slow for pair in combinations(sorted(chosen), 2))


@given(cases())
def test_the_set_is_the_largest_and_then_the_fastest(case):
    ranks, speeds, slow = case
    found = ranks_without(slow, speeds, ranks)
    assert found == sorted(found)
    assert without_slow(found, slow)

    def quality(chosen):
        return len(chosen), min((speeds[pair] for pair in combinations(chosen, 2)), default=0.0)

    subsets = [s for n in range(1, ranks + 1) for s in combinations(range(ranks), n) if without_slow(s, slow)]
    best = max(map(quality, subsets))
    assert tuple(found) == min(s for s in subsets if quality(s) == best)


@given(cases(most=12))
def test_with_many_ranks_no_rank_could_be_added(case):
    ranks, speeds, slow = case
    exact, advice.EXACT = advice.EXACT, 0
    try:
        found = ranks_without(slow, speeds, ranks)
    finally:
        advice.EXACT = exact
    assert without_slow(found, slow)
    for other in set(range(ranks)) - set(found):
        assert not without_slow([*found, other], slow)


def test_many_ranks_with_one_bad_host():
    hosts = [rank // 8 for rank in range(128)]
    speeds = {
        (a, b): 0.5 if 3 in (hosts[a], hosts[b]) and hosts[a] != hosts[b] else 20.0 for a, b in pairs(128)
    }
    slow = slow_pairs(speeds, hosts)
    assert ranks_without(slow, speeds, 128) == [rank for rank in range(128) if hosts[rank] != 3]


def test_six_cards_on_two_hosts():
    """Most pairs are slow here, so their median is slow too."""
    hosts = ["a"] * 4 + ["b"] * 2
    speeds = {(a, b): 20e9 if hosts[a] == hosts[b] else 0.9e9 for a, b in pairs(6)}
    assert reference_speed(speeds, hosts) == 20e9
    slow = slow_pairs(speeds, hosts)
    assert slow == {(a, b) for a, b in speeds if hosts[a] != hosts[b]}
    assert ranks_without(slow, speeds, 6) == [0, 1, 2, 3]


def test_one_bad_link_of_one_host():
    speeds = dict.fromkeys(pairs(4), 20.0) | {(1, 2): 1.0}
    slow = slow_pairs(speeds, ["a"] * 4)
    assert slow == {(1, 2)}
    assert ranks_without(slow, speeds, 4) == [0, 1, 3]


@given(cases(), st.floats(0.01, 100))
def test_slow_is_relative(case, factor):
    ranks, speeds, _ = case
    hosts = [rank % 2 for rank in range(ranks)]
    scaled = {pair: factor * speed for pair, speed in speeds.items()}
    assert slow_pairs(scaled, hosts) == slow_pairs(speeds, hosts)
    # Within a factor of ten nothing is slow.
    assert not slow_pairs({pair: 1 + speed for pair, speed in speeds.items() if speed < 13}, hosts)


def test_one_rank():
    assert slow_pairs({}, ["a"]) == set()
    assert ranks_without(set(), {}, 1) == [0]
