"""This machine's memory: how much is available, and how a CPU step keeps its memory for the next one."""

import ctypes
import os
import sys
from pathlib import Path

from brimful.control_groups import read_groups

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
MOST = 2**31 - 1
"""The largest value that mallopt accepts."""

MOST_OF_OLD = 32 << 20
"""The largest M_MMAP_THRESHOLD that older versions of glibc accept."""


def keep_freed_memory() -> bool:
    """Make the C library keep freed memory. From then on the process keeps its peak memory.

    By default, blocks above 32 MiB and free memory at the end of the heap return to the operating system at
    once. A step frees its activations and allocates the same ones again, so it pays for each page every time:
    the system zeroes a page when it is first touched. With an old glibc, large blocks still return.

    Returns:
        False where the C library is not glibc; then nothing changes.
    """
    if not sys.platform.startswith("linux"):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    # Setting either one stops glibc from raising M_MMAP_THRESHOLD from its first 128 kB by itself. So if the
    # first is refused, the second must not be set.
    return mallopt is not None and bool(
        (mallopt(M_MMAP_THRESHOLD, MOST) or mallopt(M_MMAP_THRESHOLD, MOST_OF_OLD))
        and mallopt(M_TRIM_THRESHOLD, MOST)
    )


def available_memory(root: Path = Path("/")) -> int:
    """Bytes that are still available on this machine and in this process's cgroups.

    Where that is unknown (not on Linux), half of the installed memory.

    Args:
        root: of the file system with `proc` and `sys`.
    """
    try:
        lines = (root / "proc/meminfo").read_text().splitlines()
    except OSError:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    fields = {name: int(value.split()[0]) for name, value in (line.split(":") for line in lines)}
    return min([fields["MemAvailable"] << 10, *_left_in_cgroups(root)])


def _left_in_cgroups(root: Path) -> list[int]:
    """Bytes left below each cgroup limit (v2 or v1) of this process. Page cache counts as left."""
    left = []
    names = ["memory.max", "memory.current", "memory.stat"]
    names_v1 = ["memory.limit_in_bytes", "memory.usage_in_bytes", "memory.stat"]
    for _, (limit, used, stat) in read_groups("memory", names, names_v1, root):
        if limit != "max":
            fields = dict(entry.split() for entry in stat.splitlines())
            cache = int(fields["inactive_file"]) + int(fields["active_file"])
            left.append(int(limit) - int(used) + cache)
    return left
