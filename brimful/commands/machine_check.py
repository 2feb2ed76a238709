"""What `brimful doctor` measures on the machines of all ranks."""

import os
import shutil
import socket
import statistics
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from brimful.base.distributed import World, join_ranks
from brimful.base.errors import is_out_of_memory
from brimful.base.machine import (
    ROOT,
    available_memory,
    processor_name,
    read_kernel_file,
    usable_cores,
)
from brimful.base.torch_compile import find_missing_compiler
from brimful.precision.policy import DTYPES, resolve

WATCHED_SECONDS = 1.0
"""For how long the cores are watched before anything is measured."""
BURST_SECONDS, BURST_SLICES = 1.0, 10
"""A burst takes about so long, in slices. Their median counts: a moment's noise is no slow device."""
WAITED_SECONDS = 60.0
"""Seconds after which a rank says that it cannot reach another."""
MATRIX_SIDE = {"cpu": 1024, "cuda": 8192}
"""Rows and columns of the matrices that are multiplied."""
STEAL_FIELD = 8
"""The field of the stolen ticks in the first line of /proc/stat, after the line's name."""
SUMMED_NUMBERS = 1 << 22
"""In the sum over all ranks that is checked."""


def load_average() -> float:
    """The load average of the machine in the last minute; 0 where the system does not say."""
    with suppress(OSError, AttributeError):
        return os.getloadavg()[0]
    return 0.0


def stolen_seconds(root: Path = ROOT) -> float:
    """The core seconds that the host of a virtual machine has withheld; 0 where the system does not say."""
    fields = (read_kernel_file("proc/stat", root) or "").partition("\n")[0].split()
    ticks = float(fields[STEAL_FIELD]) if len(fields) > STEAL_FIELD else 0.0
    return ticks / os.sysconf("SC_CLK_TCK")


def check_machines() -> dict[str, Any]:
    """Measure the machines of all ranks; see `brimful.doctor` for the report, which has no findings yet."""
    with join_ranks() as ranks, ranks.waits(WAITED_SECONDS):
        stolen_before = stolen_seconds()
        time.sleep(WATCHED_SECONDS)
        # torchrun's number of the node tells apart containers of one name.
        name = f"{socket.gethostname()} {os.environ.get('GROUP_RANK', '')}".strip()
        host = {
            "rank": ranks.rank,
            "name": name,
            "processor": processor_name(),
            "cores": usable_cores(),
            "load": load_average(),
            "stolen_cores": (stolen_seconds() - stolen_before) / WATCHED_SECONDS,
            "memory": available_memory(),
            "disk": shutil.disk_usage(".").free,
            "versions": {"python": sys.version.split()[0], "torch": torch.__version__},
            "lacks": find_missing_compiler(ranks.device) if ranks.device.type == "cuda" else None,
        }
        hosts: dict[str, dict[str, Any]] = {}
        for each in ranks.gather(host):
            hosts.setdefault(each["name"], each)
        return {
            "hosts": list(hosts.values()),
            "devices": measure_devices(ranks, name),
            "wrong_sums": find_wrong_sums(ranks),
        }


def measure_devices(ranks: World, host: str) -> list[dict[str, Any]]:
    """The devices of all ranks, with their speeds; of one process with GPUs, each of them in turn."""
    devices, found = [ranks.device], []
    if ranks.size == 1 and ranks.device.type == "cuda":
        devices = [torch.device("cuda", index) for index in range(torch.cuda.device_count())]
    for device in devices:
        precision = resolve("auto", device)
        facts: dict[str, Any] = {"rank": ranks.rank, "host": host, "name": processor_name()}
        if device.type == "cuda":
            free, total = torch.cuda.mem_get_info(device)
            name = torch.cuda.get_device_properties(device).name
            facts |= {"name": name, "number": device.index, "memory": total, "taken": total - free}
        ranks.barrier()  # all at the same time, as in training
        found.append(facts | {"precision": precision, "flops": measure_flops(device, DTYPES[precision])})
    return [facts for own in ranks.gather(found) for facts in own]


def measure_flops(device: torch.device, dtype: torch.dtype) -> float | None:
    """The operations a second of products of large matrices, the median over the slices of a burst; None
    where memory is full."""
    side = MATRIX_SIDE[device.type]
    try:
        a, b = (torch.randn(side, side, device=device).to(dtype) for _ in range(2))
        product = torch.empty_like(a)

        def timed(count: int) -> float:
            started = time.perf_counter()
            for _ in range(count):
                torch.matmul(a, b, out=product)
            if device.type == "cuda":
                torch.cuda.synchronize(device)
            return time.perf_counter() - started

        timed(3)  # chooses kernels, touches pages
        count = max(1, round(BURST_SECONDS / BURST_SLICES / max(timed(1), 1e-9)))
        speed = statistics.median(count / timed(count) for _ in range(BURST_SLICES))
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        return None
    return 2 * side**3 * speed


def find_wrong_sums(ranks: World) -> list[int]:
    """The ranks on which a sum of whole numbers over all ranks is not exact."""
    if ranks.size == 1:
        return []
    numbers = torch.arange(SUMMED_NUMBERS, device=ranks.device) % 4096
    tensor = (numbers + ranks.rank).float()
    dist.all_reduce(tensor)
    expected = ranks.size * numbers + sum(range(ranks.size))
    is_right = ranks.gather(torch.equal(tensor, expected.float()))
    return [rank for rank, right in enumerate(is_right) if not right]
