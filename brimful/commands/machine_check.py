"""What `brimful doctor` measures: how fast devices compute, and how fast ranks reach each other.

All ranks wait for the slowest device, and one slow pair of ranks slows every sum over all of them. A mean
over all ranks shows neither.
"""

import os
import socket
import statistics
import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from datetime import timedelta
from itertools import combinations
from typing import Any

import torch
import torch.distributed as dist

from brimful.base.distributed import World, world
from brimful.base.errors import BrimfulError, is_out_of_memory
from brimful.base.resources import CoreWatch, available_memory, processor
from brimful.precision.policy import DTYPES, resolve

WATCHED_SECONDS = 1.0
"""For how long the cores are watched before anything is measured."""
BURST_SECONDS, BURST_SLICES = 1.0, 10
"""A burst takes about so long, in slices. Their median counts: a moment's noise is no slow device."""
MATRIX_SIDE = {"cpu": 1024, "cuda": 8192}
"""Rows and columns of the matrices that are multiplied."""
COPIED_BYTES = {"cpu": 256 << 20, "cuda": 1 << 30}
"""Size of the array that is copied: larger than the caches."""
SUM_BYTES = (1 << 20, 16 << 20)
"""Sizes of the all-reduces that are checked. The largest is timed."""
SUM_SECONDS = 0.15
"""About how long all-reduces are timed."""
FEW_RANKS = 8
"""Up to this many ranks, pairs are measured one by one; beyond, as many at a time as share no rank."""
TIMES_SLOWER = 10
"""A pair is slow if it is more than this many times slower than the rest."""

Pair = tuple[int, int]


def check_machines() -> dict[str, Any]:
    """Measure the machines of all ranks; see `brimful.doctor` for the report, which has no findings yet.

    Raises:
        BrimfulError: two ranks do not reach each other.
    """
    with world() as ranks:
        watch = CoreWatch()
        time.sleep(WATCHED_SECONDS)
        use = watch.look(threads=1)
        # torchrun's number of the node tells apart containers of one name.
        name = f"{socket.gethostname()} {os.environ.get('GROUP_RANK', '')}".strip()
        cores = {"cores": use.cores, "load": use.load, "stolen_cores": use.stolen}
        hosts = ranks.gather({"rank": ranks.rank, "name": name, "processor": processor(), **cores})
        names = [host["name"] for host in hosts]
        return {
            "collectives": collectives(),
            "hosts": [hosts[names.index(each)] for each in dict.fromkeys(names)],
            "devices": measure_devices(ranks, name),
            "links": describe_links(ranks, names) if ranks.size > 1 else None,
        }


def collectives() -> str:
    """The library that sums between ranks, as linked: NCCL (on ROCm RCCL) or gloo, and the version."""
    if torch.cuda.is_available() and dist.is_nccl_available():
        version = ".".join(map(str, torch.cuda.nccl.version()))
        return f"{'RCCL' if torch.version.hip else 'NCCL'} {version}"
    return f"gloo of torch {torch.__version__}"


def measure_devices(ranks: World, host: str) -> list[dict[str, Any]]:
    """The devices of all ranks, with their speeds; of one process with GPUs, each of them in turn."""
    devices, found = [ranks.device], []
    if ranks.size == 1 and ranks.device.type == "cuda":
        devices = [torch.device("cuda", index) for index in range(torch.cuda.device_count())]
    for device in devices:
        precision = resolve("auto", device)
        facts: dict[str, Any] = {"rank": ranks.rank, "host": host, "name": processor()}
        if device.type == "cuda":
            free, total = torch.cuda.mem_get_info(device)
            name = torch.cuda.get_device_properties(device).name
            facts |= {"name": name, "number": device.index, "memory": total, "taken": total - free}
        ranks.barrier()
        found.append(facts | {"precision": precision} | measure_burst(device, DTYPES[precision]))
    return [facts for own in ranks.gather(found) for facts in own]


def measure_burst(device: torch.device, dtype: torch.dtype) -> dict[str, float | None]:
    """Per second, the `flops` of products of large matrices, and the `bytes`, read and written, of copies
    within the device's memory; None where it is full."""
    side, free = MATRIX_SIDE[device.type], available_memory() // int(os.environ.get("LOCAL_WORLD_SIZE", 1))
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
    try:
        a, b = (torch.randn(side, side, device=device).to(dtype) for _ in range(2))
        product = torch.empty_like(a)
        source = torch.ones(min(COPIED_BYTES[device.type], free // 4), dtype=torch.uint8, device=device)
        target = torch.zeros_like(source)
        products = runs_per_second(lambda: torch.matmul(a, b, out=product), device)
        copies = runs_per_second(lambda: target.copy_(source), device)
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        return {"flops": None, "bytes": None}
    return {"flops": 2 * side**3 * products, "bytes": 2 * len(source) * copies}


def runs_per_second(run: Callable[[], object], device: torch.device) -> float:
    """The median over BURST_SLICES slices of a burst."""

    def timed(count: int) -> float:
        started = time.perf_counter()
        for _ in range(count):
            run()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return time.perf_counter() - started

    timed(3)  # chooses kernels, touches pages
    count = max(1, round(BURST_SECONDS / BURST_SLICES / max(timed(1), 1e-9)))
    return statistics.median(count / timed(count) for _ in range(BURST_SLICES))


def describe_links(ranks: World, hosts: Sequence[Hashable]) -> dict[str, Any]:
    """The link of each pair of ranks, and of all together; `hosts` are those of each rank."""
    right: dict[tuple[int, ...], bool] = {}
    speeds: dict[tuple[int, ...], float] = {}
    for own in ranks.gather(list(measure_links(ranks))):
        for members, speed, is_right in own:
            right[members] = right.get(members, True) and is_right
            speeds[members] = min(speeds.get(members, speed), speed)
    pairs = list(combinations(range(ranks.size), 2))
    slow = slow_pairs({pair: speeds[pair] for pair in pairs}, hosts)
    return {
        "pairs": [
            {"ranks": pair, "bytes_per_second": speeds[pair], "right": right[pair], "slow": pair in slow}
            for pair in pairs
        ],
        "all": speeds[tuple(range(ranks.size))],
        "right": all(right.values()),
        "train_on": ranks_to_train_on(ranks.size, {pair for pair in pairs if right[pair]} - slow),
    }


def measure_links(ranks: World) -> Iterator[tuple[tuple[int, ...], float, bool]]:
    """This rank's link to each other, and at last to all together. All ranks call it.

    Yields:
        the ranks of a link, bytes per second that each sends, and whether every sum was exact on this rank.

    Raises:
        BrimfulError: the two ranks of a pair do not reach each other.
    """
    backend = "nccl" if ranks.device.type == "cuda" else "gloo"
    for pairs in rounds(ranks.size):
        ranks.barrier()
        pair = next((pair for pair in pairs if ranks.rank in pair), None)
        if pair is None:
            continue
        try:
            # Only the two make their group, and it is gone before the next pair's turn.
            group = dist.new_group(list(pair), timedelta(minutes=1), backend, use_local_synchronization=True)
            yield pair, *_measure_sums(pair, ranks.device, group)
            dist.destroy_process_group(group)
        except RuntimeError as error:
            first = next(iter(str(error).splitlines()), type(error).__name__)
            raise BrimfulError(
                f"ranks {pair[0]} and {pair[1]} do not reach each other: {first}; look at the firewall and"
                " NCCL_SOCKET_IFNAME or GLOO_SOCKET_IFNAME"
            ) from error
    ranks.barrier()
    everyone = tuple(range(ranks.size))
    yield everyone, *_measure_sums(everyone, ranks.device, None)


def rounds(ranks: int) -> Iterator[list[Pair]]:
    """Every pair of ranks once, in rounds of pairs that have no rank in common (a round-robin tournament), or
    up to `FEW_RANKS` ranks of one pair."""
    seats = list(range(ranks)) + [None] * (ranks % 2)  # who meets None sits out
    for _ in range(len(seats) - 1):
        meet = zip(seats[: len(seats) // 2], seats[::-1], strict=False)
        pairs = [(min(a, b), max(a, b)) for a, b in meet if a is not None and b is not None]
        yield from ([pair] for pair in pairs) if ranks <= FEW_RANKS else [pairs]
        seats = [seats[0], seats[-1], *seats[1:-1]]


def _measure_sums(
    members: tuple[int, ...], device: torch.device, group: dist.ProcessGroup | None
) -> tuple[float, bool]:
    is_right = True
    for size in SUM_BYTES:
        pattern = torch.arange(size // 4, device=device) % 4096  # whole numbers, so that sums are exact
        tensor = (pattern + dist.get_rank()).float()
        dist.all_reduce(tensor, group=group)
        is_right &= torch.equal(tensor, (len(members) * pattern + sum(members)).float())

    def timed(count: int) -> float:
        started = time.perf_counter()
        for _ in range(count):
            dist.all_reduce(tensor.zero_(), group=group)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return time.perf_counter() - started

    once = torch.tensor(timed(1), device=device)
    dist.all_reduce(once, dist.ReduceOp.MAX, group=group)  # the ranks make the same number
    count = max(1, int(SUM_SECONDS / max(float(once), 1e-4)))
    sent = 2 * (len(members) - 1) / len(members) * SUM_BYTES[-1]
    return sent * count / timed(count), is_right


def slow_pairs(speeds: Mapping[Pair, float], hosts: Sequence[Hashable]) -> set[Pair]:
    """The pairs that are more than `TIMES_SLOWER` times slower than the median of the pairs within `hosts`
    (of each rank) or between them, whichever is higher: most pairs may use a slow network."""
    kinds: dict[bool, list[float]] = {}
    for (a, b), speed in speeds.items():
        kinds.setdefault(hosts[a] == hosts[b], []).append(speed)
    reference = max((statistics.median_high(kind) for kind in kinds.values()), default=0.0)
    return {pair for pair, speed in speeds.items() if TIMES_SLOWER * speed < reference}


def ranks_to_train_on(ranks: int, good: set[Pair]) -> list[int]:
    """The largest set of ranks that are joined by good pairs, through each other if need be; of several, the
    one with the lowest rank."""
    groups: list[set[int]] = [{rank} for rank in range(ranks)]
    for a, b in good:
        joined = [group for group in groups if a in group or b in group]
        groups = [group for group in groups if group not in joined]
        groups.append(set[int]().union(*joined))
    groups.sort(key=min)
    largest = max(groups, key=len)  # the first of them
    return sorted(largest)
