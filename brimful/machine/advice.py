"""Which pairs of ranks are slow, and which ranks to train on without them."""

import statistics
from collections.abc import Hashable, Mapping, Sequence
from itertools import combinations

Speeds = Mapping[tuple[int, int], float]
"""Bytes per second by the two ranks, the lower one first; every pair is there."""

TIMES = 10
"""A pair is slow if it is more than this many times slower than the rest."""
EXACT = 24
"""Up to this many ranks the largest set is found exactly."""


def reference_speed(speeds: Speeds, hosts: Sequence[Hashable]) -> float:
    """The speed that pairs are compared with: the median of the pairs within hosts or of those between hosts,
    whichever is higher; of two medians, the upper one.

    One median over all pairs would call a slow network normal, since most pairs of several hosts use it.

    Args:
        hosts: of each rank.
    """
    kinds: dict[bool, list[float]] = {}
    for (a, b), speed in speeds.items():
        kinds.setdefault(hosts[a] == hosts[b], []).append(speed)
    return max((statistics.median_high(kind) for kind in kinds.values()), default=0.0)


def slow_pairs(speeds: Speeds, hosts: Sequence[Hashable]) -> set[tuple[int, int]]:
    """The pairs that are more than `TIMES` times slower than the rest; see `reference_speed`."""
    reference = reference_speed(speeds, hosts)
    return {pair for pair, speed in speeds.items() if TIMES * speed < reference}


def ranks_without(slow: set[tuple[int, int]], speeds: Speeds, ranks: int) -> list[int]:
    """The largest set of ranks without a slow pair; of several, the one whose slowest pair is fastest, then
    the one with the lowest ranks.

    Exact up to `EXACT` ranks. Beyond, the rank with the most slow pairs is dropped until none is left, so the
    set may be smaller than the largest one.
    """
    if ranks > EXACT:
        return _greedy(slow, ranks)
    near = {
        rank: {other for other in range(ranks) if other != rank and _pair(rank, other) not in slow}
        for rank in range(ranks)
    }
    best: tuple[int, float, list[int]] = (0, 0.0, [])

    def grow(chosen: list[int], open_: list[int]) -> None:
        """Extend a set by ranks that reach all of it, in ascending order."""
        nonlocal best
        if len(chosen) + len(open_) < best[0]:
            return
        if not open_:
            slowest = min((speeds[pair] for pair in combinations(chosen, 2)), default=0.0)
            if (len(chosen), slowest) > best[:2]:
                best = len(chosen), slowest, chosen
            return
        first, *rest = open_
        grow([*chosen, first], [rank for rank in rest if rank in near[first]])
        if not near[first].issuperset(rest):  # else a set without it is never larger
            grow(chosen, rest)

    grow([], list(range(ranks)))
    return best[2]


def _greedy(slow: set[tuple[int, int]], ranks: int) -> list[int]:
    kept, given = set(range(ranks)), slow
    while slow:
        counts = {rank: sum(rank in pair for pair in slow) for rank in sorted(kept)}
        worst = max(counts, key=lambda rank: (counts[rank], rank))
        kept.remove(worst)
        slow = {pair for pair in slow if worst not in pair}
    for rank in set(range(ranks)) - kept:  # it may be back if all that it was slow with are gone
        if not any(_pair(rank, other) in given for other in kept):
            kept.add(rank)
    return sorted(kept)


def _pair(a: int, b: int) -> tuple[int, int]:
    return min(a, b), max(a, b)
