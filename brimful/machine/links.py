"""How fast each two ranks reach each other: all-reduces between the two, of a few bytes and of megabytes.

One slow pair slows every all-reduce of all ranks, and the mean over all ranks does not show which it is.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist

from brimful.distributed import World
from brimful.errors import BrimfulError

SIZES = (1 << 20, 16 << 20)
"""Bytes of an all-reduce. The speed of a pair is that of its largest size."""
SECONDS = 0.15
"""About how long the all-reduces of one size may take. One is made in any case."""
MOST = 20
"""All-reduces of one size."""
ALONE = 8
"""Up to this many ranks, each pair is measured while all others wait. Beyond, half as many pairs as there are
ranks are measured at the same time, and share the network if they use the same part of it."""
PATIENCE = timedelta(seconds=60)
"""How long the two ranks of a pair wait for each other."""


@dataclass(frozen=True)
class Pair:
    """Two ranks and their link.

    Attributes:
        ranks: the lower one first.
        latency: seconds of an all-reduce of 8 bytes.
        speeds: bytes per second that each of the two sends, by the bytes of the all-reduce ("bus bandwidth").
    """

    ranks: tuple[int, int]
    latency: float
    speeds: dict[int, float]

    @property
    def speed(self) -> float:
        """Bytes per second of the largest size."""
        return self.speeds[max(self.speeds)]


def rounds(ranks: int) -> Iterator[list[tuple[int, int]]]:
    """Every pair of ranks once, in rounds of pairs that have no rank in common: a round-robin tournament.

    n ranks take n - 1 rounds, or n if n is odd. Up to `ALONE` ranks a round is one pair.
    """
    seats = list(range(ranks)) + [None] * (ranks % 2)  # who meets None sits out
    for _ in range(len(seats) - 1):
        half = len(seats) // 2
        meet = zip(seats[:half], reversed(seats[half:]), strict=True)
        pairs = [(min(a, b), max(a, b)) for a, b in meet if a is not None and b is not None]
        if ranks <= ALONE:
            yield from ([pair] for pair in pairs)
        else:
            yield pairs
        seats = [seats[0], seats[-1], *seats[1:-1]]


def measure_pairs(world: World) -> list[Pair]:
    """The links of this rank to higher ranks. All ranks call it together.

    Raises:
        BrimfulError: the two ranks of a pair do not reach each other.
    """
    found = []
    for pairs in rounds(world.size):
        mine = next((pair for pair in pairs if world.rank in pair), None)
        world.barrier()
        if mine is None:
            continue
        measured = _measure(mine, world)
        if world.rank == mine[0]:
            found.append(measured)
    world.barrier()
    return found


def measure_all(world: World) -> float:
    """Bytes per second that each rank sends in an all-reduce of all ranks: 2 (n - 1) / n of its bytes."""
    seconds = _seconds(SIZES[-1], world.device, None)
    return 2 * (world.size - 1) / world.size * SIZES[-1] / seconds


def _measure(ranks: tuple[int, int], world: World) -> Pair:
    backend = "nccl" if world.device.type == "cuda" else "gloo"
    try:
        # Only the two take part in making their group, and it is gone before the next pair's turn.
        group = dist.new_group(list(ranks), PATIENCE, backend, use_local_synchronization=True)
        latency = _seconds(8, world.device, group)
        speeds = {size: size / _seconds(size, world.device, group) for size in SIZES}
        dist.destroy_process_group(group)
    except RuntimeError as error:
        first = next(iter(str(error).splitlines()), type(error).__name__)
        raise BrimfulError(
            f"ranks {ranks[0]} and {ranks[1]} do not reach each other: {first}; look at the firewall between"
            " their hosts, and at NCCL_SOCKET_IFNAME or GLOO_SOCKET_IFNAME"
        ) from error
    return Pair(ranks, latency, speeds)


def _seconds(size: int, device: torch.device, group: dist.ProcessGroup | None) -> float:
    """Seconds of one all-reduce of `size` bytes, the mean over several."""
    tensor = torch.zeros(size // 4, device=device)

    def timed(count: int) -> float:
        started = time.perf_counter()
        for _ in range(count):
            dist.all_reduce(tensor, group=group)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return time.perf_counter() - started

    timed(1)  # connects
    once = torch.tensor(timed(1), device=device)
    dist.all_reduce(once, dist.ReduceOp.MAX, group=group)  # the ranks make the same number
    count = max(1, min(MOST, int(SECONDS / max(float(once), 1e-9))))
    return timed(count) / count
