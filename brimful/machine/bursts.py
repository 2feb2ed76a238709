"""How fast a device computes and moves memory: all ranks wait for the slowest, though links look fine."""

import os
import statistics
import time
from collections.abc import Callable, Sequence

import torch

from brimful.base.errors import is_out_of_memory
from brimful.base.resources import available_memory

SECONDS, SLICES = 1.0, 10
"""A burst takes about so long, in slices. Their median counts: a moment's noise is no slow device."""
SIDE = {"cpu": 1024, "cuda": 8192}
"""Rows and columns of the matrices."""
BYTES = {"cpu": 256 << 20, "cuda": 1 << 30}
"""Size of the array that is copied: larger than the caches."""
SLOWER = 0.85
"""A device is slow if its speed is below this fraction of the others'."""


def burst(device: torch.device, dtype: torch.dtype) -> dict[str, float | None]:
    """Per second, the `flops` of products of large matrices, and the `bytes`, read and written, of copies
    within the device's memory; None where it is full."""
    side, free = SIDE[device.type], available_memory() // int(os.environ.get("LOCAL_WORLD_SIZE", 1))
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
    try:
        a, b = (torch.randn(side, side, device=device).to(dtype) for _ in range(2))
        out = torch.empty_like(a)
        source = torch.ones(min(BYTES[device.type], free // 4), dtype=torch.uint8, device=device)
        target = torch.zeros_like(source)
        flops = 2 * side**3 * _rate(lambda: torch.matmul(a, b, out=out), device)
        return {"flops": flops, "bytes": 2 * len(source) * _rate(lambda: target.copy_(source), device)}
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        return {"flops": None, "bytes": None}


def _rate(run: Callable[[], object], device: torch.device) -> float:
    """Runs per second."""

    def timed(count: int) -> float:
        started = time.perf_counter()
        for _ in range(count):
            run()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return time.perf_counter() - started

    timed(3)  # chooses kernels, touches pages
    count = max(1, round(SECONDS / SLICES / max(timed(1), 1e-9)))
    return statistics.median(count / timed(count) for _ in range(SLICES))


def slow_ones(speeds: Sequence[float]) -> list[int]:
    """The indices of the speeds that are clearly below the median (of two in the middle, the higher one)."""
    reference = statistics.median_high(speeds)
    return [index for index, speed in enumerate(speeds) if speed < SLOWER * reference]
