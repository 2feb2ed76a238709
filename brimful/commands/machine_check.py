"""The measurements of `brimful doctor` on the machines of all ranks."""

import os
import shutil
import socket
import statistics
import sys
import time
from itertools import chain
from pathlib import Path

import torch
import torch.distributed as dist

from brimful.base.distributed import World, join_ranks
from brimful.base.errors import is_out_of_memory
from brimful.base.machine import ROOT, processor_name, read_kernel_file
from brimful.base.resources import available_memory, usable_cores
from brimful.base.torch_compile import find_missing_compiler
from brimful.base.types import Values
from brimful.precision.policy import DTYPES, resolve

WATCH_SECONDS = 1.0
"""Seconds that the cores are watched before anything is measured."""
BURST_SECONDS, BURST_SLICES = 1.0, 10
"""The seconds of a burst, and its slices. Their median counts, so that noise does not make a device slow."""
WAIT_SECONDS = 60.0
"""Seconds after which a rank says that it cannot reach another."""
MATRIX_SIDE = {"cpu": 1024, "cuda": 8192}
"""Rows and columns of the matrices that are multiplied."""
STEAL_FIELD = 8
"""The field of the stolen ticks in the first line of /proc/stat, after the line's name."""
SUM_NUMBERS = 1 << 22
"""Numbers of the sum over all ranks that is checked: 16 MiB."""


def load_average() -> float:
    """Return the load average of the machine in the last minute; 0 where the system does not tell it."""
    try:
        return os.getloadavg()[0]
    except OSError:
        return 0.0


def stolen_seconds(root: Path = ROOT) -> float:
    """Return the core seconds that a virtual machine's host has withheld; 0 if the system does not tell."""
    fields = (read_kernel_file("proc/stat", root) or "").partition("\n")[0].split()
    if len(fields) <= STEAL_FIELD:
        return 0.0
    return float(fields[STEAL_FIELD]) / os.sysconf("SC_CLK_TCK")


def check_machines() -> Values:
    """Measure the machines of all ranks, and return the report of `brimful.doctor` without its findings."""
    with join_ranks() as ranks, ranks.waits(WAIT_SECONDS):
        stolen_before = stolen_seconds()
        time.sleep(WATCH_SECONDS)
        # Containers may have one name: torchrun's number of the node tells them apart.
        name = f"{socket.gethostname()} {os.environ.get('GROUP_RANK', '')}".strip()
        host = {
            "rank": ranks.rank,
            "name": name,
            "processor": processor_name(),
            "cores": usable_cores(),
            "load": load_average(),
            "stolen_cores": (stolen_seconds() - stolen_before) / WATCH_SECONDS,
            "memory": available_memory(),
            "disk": shutil.disk_usage(".").free,
            "versions": {"python": sys.version.split()[0], "torch": torch.__version__},
            "lacks": find_missing_compiler(ranks.device) if ranks.device.type == "cuda" else None,
        }
        hosts: dict[str, Values] = {}
        for each in ranks.gather(host):
            hosts.setdefault(each["name"], each)
        return {
            "hosts": list(hosts.values()),
            "devices": measure_devices(ranks, name),
            "wrong_sums": find_wrong_sums(ranks),
        }


def measure_devices(ranks: World, host: str) -> list[Values]:
    """Return the devices of all ranks, with their speeds; alone, one process measures its GPUs in turn."""
    devices, own_facts = [ranks.device], []
    if ranks.size == 1 and ranks.device.type == "cuda":
        devices = [torch.device("cuda", index) for index in range(torch.cuda.device_count())]
    for device in devices:
        precision = resolve("auto", device)
        facts: Values = {"rank": ranks.rank, "host": host, "name": processor_name()}
        if device.type == "cuda":
            free, total = torch.cuda.mem_get_info(device)
            name = torch.cuda.get_device_properties(device).name
            facts |= {"name": name, "number": device.index, "memory": total, "taken": total - free}
        ranks.barrier()  # all at the same time, as in training
        flops = measure_flops(device, DTYPES[precision])
        own_facts.append(facts | {"precision": precision, "flops": flops})
    return list(chain.from_iterable(ranks.gather(own_facts)))


def measure_flops(device: torch.device, dtype: torch.dtype) -> float | None:
    """Return the operations a second of products of large matrices; None if memory is full."""
    side = MATRIX_SIDE[device.type]
    try:
        a, b = torch.randn(2, side, side, device=device).to(dtype)
        product = torch.empty_like(a)

        def time_products(count: int) -> float:
            started = time.perf_counter()
            for _ in range(count):
                torch.matmul(a, b, out=product)
            if device.type == "cuda":
                torch.cuda.synchronize(device)
            return time.perf_counter() - started

        time_products(3)  # chooses kernels, touches pages
        count = max(1, round(BURST_SECONDS / BURST_SLICES / max(time_products(1), 1e-9)))
        speed = statistics.median(count / time_products(count) for _ in range(BURST_SLICES))
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        return None
    return 2 * side**3 * speed  # a product takes side^3 multiplications, and as many additions


def find_wrong_sums(ranks: World) -> list[int]:
    """Return the ranks on which a sum of whole numbers over all ranks is not exact."""
    if ranks.size == 1:
        return []
    # Float32 holds these sums exactly, so any difference is an error of the machines.
    numbers = torch.arange(SUM_NUMBERS, device=ranks.device) % 4096
    tensor = (numbers + ranks.rank).float()
    dist.all_reduce(tensor)
    expected = ranks.size * numbers + sum(range(ranks.size))
    is_right = ranks.gather(torch.equal(tensor, expected.float()))
    return [rank for rank, right in enumerate(is_right) if not right]
