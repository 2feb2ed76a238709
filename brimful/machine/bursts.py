"""How fast a device computes and how fast it moves memory, in bursts of about a second.

Tests of communication alone miss a slow device: all ranks wait for it, and every link looks fine. Under
torchrun all ranks measure at the same time, as they train, so ranks that share a host's cores, memory or
power measure their share of it.
"""

import os
import statistics
import time
from collections.abc import Callable, Sequence

import torch

from brimful.train.memory import available_memory

SLICES = 10
"""A burst is timed in about this many parts, and the median counts: a moment's noise is no slow device."""
COMPUTE_SECONDS, MEMORY_SECONDS = 1.0, 0.5
SIDE = {"cpu": 1024, "cuda": 8192}
"""Rows and columns of the matrices."""
BYTES = {"cpu": 256 << 20, "cuda": 1 << 30}
"""Size of the array that is copied: larger than the caches."""
SLOWER = 0.85
"""A rank is slow if its speed is below this fraction of the others'."""


def compute_speed(device: torch.device, dtype: torch.dtype, seconds: float = COMPUTE_SECONDS) -> float:
    """Flops per second of products of large matrices of `dtype`."""
    side = SIDE[device.type]
    a, b = (torch.randn(side, side, device=device).to(dtype) for _ in range(2))
    out = torch.empty_like(a)
    return 2 * side**3 * _rate(lambda: torch.matmul(a, b, out=out), device, seconds)


def memory_speed(device: torch.device, seconds: float = MEMORY_SECONDS) -> float:
    """Bytes per second, read and written, of copies within the device's memory."""
    size = min(BYTES[device.type], _free(device) // 4)
    source = torch.ones(size, dtype=torch.uint8, device=device)
    target = torch.zeros_like(source)
    return 2 * size * _rate(lambda: target.copy_(source), device, seconds)


def _free(device: torch.device) -> int:
    """Bytes that this rank may take."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    return available_memory() // int(os.environ.get("LOCAL_WORLD_SIZE", 1))


def _rate(run: Callable[[], object], device: torch.device, seconds: float) -> float:
    """Runs per second: the median of several parts of a burst."""

    def timed(count: int) -> float:
        started = time.perf_counter()
        for _ in range(count):
            run()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return time.perf_counter() - started

    timed(3)  # chooses kernels, touches pages
    count = max(1, round(seconds / SLICES / max(timed(1), 1e-9)))
    rates: list[float] = []
    ends = time.perf_counter() + seconds
    while len(rates) < 3 or time.perf_counter() < ends:
        rates.append(count / timed(count))
    return statistics.median(rates)


def slow_ones(speeds: Sequence[float]) -> list[int]:
    """The indices of the speeds that are clearly below the median (of two in the middle, the higher one)."""
    reference = statistics.median_high(speeds) if speeds else 0.0
    return [index for index, speed in enumerate(speeds) if speed < SLOWER * reference]
