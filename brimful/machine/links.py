"""How fast each two ranks reach each other, whether their sums are right, and which ranks to train on.

One slow pair slows every all-reduce of all ranks, and the mean over all ranks does not show which it is.
"""

import statistics
import time
from collections.abc import Hashable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import NamedTuple

import torch
import torch.distributed as dist

from brimful.base.distributed import World
from brimful.base.errors import BrimfulError

SIZES = (1 << 20, 16 << 20)
"""Bytes of the all-reduces that are checked. The largest is timed."""
SECONDS = 0.15
"""About how long all-reduces are timed."""
ALONE = 8
"""Up to this many ranks, pairs are measured one by one; beyond, as many at a time as share no rank."""
TIMES = 10
"""A pair is slow if it is more than this many times slower than the rest."""


class Link(NamedTuple):
    """An all-reduce: bytes per second that each rank sends, and whether every sum was exact on this one."""

    ranks: tuple[int, ...]
    speed: float
    right: bool


def rounds(ranks: int) -> Iterator[list[tuple[int, int]]]:
    """Every pair of ranks once, in rounds of pairs that have no rank in common (a round-robin tournament), or
    up to `ALONE` ranks of one pair."""
    seats = list(range(ranks)) + [None] * (ranks % 2)  # who meets None sits out
    for _ in range(len(seats) - 1):
        meet = zip(seats[: len(seats) // 2], seats[::-1], strict=False)
        pairs = [(min(a, b), max(a, b)) for a, b in meet if a is not None and b is not None]
        yield from ([pair] for pair in pairs) if ranks <= ALONE else [pairs]
        seats = [seats[0], seats[-1], *seats[1:-1]]


def measure_links(world: World) -> list[Link]:
    """The link of this rank to each other, and at last that of all ranks together. All ranks call it.

    Raises:
        BrimfulError: the two ranks of a pair do not reach each other.
    """
    found, backend = [], "nccl" if world.device.type == "cuda" else "gloo"
    for pairs in rounds(world.size):
        world.barrier()
        pair = next((pair for pair in pairs if world.rank in pair), None)
        if pair is None:
            continue
        try:
            # Only the two make their group, and it is gone before the next pair's turn.
            group = dist.new_group(list(pair), timedelta(minutes=1), backend, use_local_synchronization=True)
            found.append(_measure(pair, world.device, group))
            dist.destroy_process_group(group)
        except RuntimeError as error:
            first = next(iter(str(error).splitlines()), type(error).__name__)
            raise BrimfulError(
                f"ranks {pair[0]} and {pair[1]} do not reach each other: {first}; look at the firewall and"
                " NCCL_SOCKET_IFNAME or GLOO_SOCKET_IFNAME"
            ) from error
    world.barrier()
    return [*found, _measure(tuple(range(world.size)), world.device, None)]


def _measure(ranks: tuple[int, ...], device: torch.device, group: dist.ProcessGroup | None) -> Link:
    right = True
    for size in SIZES:
        pattern = torch.arange(size // 4, device=device) % 4096  # whole numbers, so that sums are exact
        tensor = (pattern + dist.get_rank()).float()
        dist.all_reduce(tensor, group=group)
        right &= torch.equal(tensor, (len(ranks) * pattern + sum(ranks)).float())

    def timed(count: int) -> float:
        started = time.perf_counter()
        for _ in range(count):
            dist.all_reduce(tensor.zero_(), group=group)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return time.perf_counter() - started

    once = torch.tensor(timed(1), device=device)
    dist.all_reduce(once, dist.ReduceOp.MAX, group=group)  # the ranks make the same number
    count = max(1, int(SECONDS / max(float(once), 1e-4)))
    sent = 2 * (len(ranks) - 1) / len(ranks) * SIZES[-1]
    return Link(ranks, sent * count / timed(count), right)


def slow_pairs(speeds: Mapping[tuple[int, int], float], hosts: Sequence[Hashable]) -> set[tuple[int, int]]:
    """The pairs that are more than `TIMES` times slower than the median of the pairs within `hosts` (of each
    rank) or of those between them, whichever is higher: most pairs may use a slow network."""
    kinds: dict[bool, list[float]] = {}
    for (a, b), speed in speeds.items():
        kinds.setdefault(hosts[a] == hosts[b], []).append(speed)
    reference = max((statistics.median_high(kind) for kind in kinds.values()), default=0.0)
    return {pair for pair, speed in speeds.items() if TIMES * speed < reference}


def ranks_to_train_on(ranks: int, good: set[tuple[int, int]]) -> list[int]:
    """The largest set of ranks that are joined by good pairs, through each other if need be; of several, the
    one with the lowest rank."""
    left, best = set(range(ranks)), list[int]()
    while left:
        found, new = set[int](), {min(left)}
        while new:
            found |= new
            new = {b for pair in good for a, b in (pair, pair[::-1]) if a in new} - found
        left -= found
        best = sorted(found) if len(found) > len(best) else best
    return best
