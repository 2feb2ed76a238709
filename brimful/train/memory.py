"""Memory of this machine: how much may still be used, and that a CPU step's is kept for the next one."""

import ctypes
import os
import sys
from pathlib import Path

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
MOST = 2**31 - 1
"""The largest number that mallopt takes."""

MOST_OF_OLD = 32 << 20
"""The largest M_MMAP_THRESHOLD that older versions of glibc take."""


def keep_freed_memory() -> bool:
    """Have the C library keep what is freed; false where it is not glibc, and nothing changes.

    By default blocks above 32 MiB, and what is free at the end of the heap, go back to the operating system
    at once. (Those blocks still do where glibc is old.) A step frees and asks for the same activations again,
    and pays for each page anew: it is zeroed when it is first touched. The process keeps its peak memory from
    then on.
    """
    if not sys.platform.startswith("linux"):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    # One that is refused must not leave the other alone in force: either ends the growth of M_MMAP_THRESHOLD
    # with use, which begins at 128 kB.
    return mallopt is not None and bool(
        (mallopt(M_MMAP_THRESHOLD, MOST) or mallopt(M_MMAP_THRESHOLD, MOST_OF_OLD))
        and mallopt(M_TRIM_THRESHOLD, MOST)
    )


def available_memory(root: Path = Path("/")) -> int:
    """Bytes that this machine, or the cgroup that this process is in, can still give without taking them from
    anybody; where neither can be known (not Linux), half of what is installed.

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
    """Bytes left below each limit (v2 or v1) that holds for this process; page cache counts as left."""
    mount, left = root / "sys/fs/cgroup", []
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return []
    for line in lines:
        number, controllers, path = line.split(":", 2)
        if number == "0":
            top, names = mount, ("memory.max", "memory.current")
        elif "memory" in controllers.split(","):
            top, names = mount / "memory", ("memory.limit_in_bytes", "memory.usage_in_bytes")
        else:
            continue
        inner = top / path.lstrip("/")
        for group in (inner, *inner.parents)[: len(inner.parts) - len(top.parts) + 1]:
            try:
                limit, used = ((group / name).read_text().strip() for name in names)
                stat = dict(entry.split() for entry in (group / "memory.stat").read_text().splitlines())
            except OSError:  # the root has no limit, and a container sees its own group as the root
                continue
            if limit != "max":
                cache = int(stat["inactive_file"]) + int(stat["active_file"])
                left.append(int(limit) - int(used) + cache)
    return left
