"""The cores, the memory and the open files that this process may use."""

import os
import resource
from collections.abc import Iterator, Sequence
from pathlib import Path

from brimful.base.machine import ROOT, count_cores, read_fields, read_kernel_file

MAX_HUGE_PAGE_BYTES = 32 << 20
"""The largest huge page to ask for. Pages of 512 MiB, which some machines have, would stay mostly empty."""


def read_groups(names: Sequence[str], root: Path) -> Iterator[list[str]]:
    """Read files of each control group (version 2) of this process, such as its container's, innermost first.

    A group without these files is left out: the root has no limits, and a container sees its own group as the
    root.
    """
    mount = root / "sys/fs/cgroup"
    for line in (read_kernel_file("proc/self/cgroup", root) or "").splitlines():
        number, _, path = line.split(":", 2)
        if number != "0":  # a group of version 1
            continue
        group = mount / path.lstrip("/")
        while group.is_relative_to(mount):
            contents = [read_kernel_file(name, group) for name in names]
            if None not in contents:
                yield [content.strip() for content in contents if content is not None]
            group = group.parent


def usable_cores(root: Path = ROOT) -> float:
    """Return the number of cores that this process may use, by its affinity and its groups' quotas."""
    cores = float(count_cores())
    for (limit,) in read_groups(["cpu.max"], root):
        quota, period = limit.split()
        if quota != "max":
            cores = min(cores, int(quota) / int(period))
    return cores


def available_memory(root: Path = ROOT) -> int:
    """Return the bytes of memory that are available on this machine and in this process's control groups.

    Systems other than Linux do not report them; there it is half of the installed memory.
    """
    meminfo = read_kernel_file("proc/meminfo", root)
    if meminfo is None:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    available = int(read_fields(meminfo, ":")["MemAvailable"].split()[0]) << 10
    for limit, used, stat in read_groups(["memory.max", "memory.current", "memory.stat"], root):
        if limit != "max":
            # The group's page cache counts as used, but the kernel gives it back.
            usage = read_fields(stat, " ")
            cache = int(usage["inactive_file"]) + int(usage["active_file"])
            available = min(available, int(limit) - int(used) + cache)
    return available


def can_reserve_memory(root: Path = ROOT) -> bool:
    """Whether huge pages of a useful size exist, and this process may reserve memory without using it."""
    size = read_kernel_file("sys/kernel/mm/transparent_hugepage/hpage_pmd_size", root)
    overcommit = read_kernel_file("proc/sys/vm/overcommit_memory", root)
    if size is None or overcommit is None or not size.strip().isdigit():
        return False
    if int(size) > MAX_HUGE_PAGE_BYTES or overcommit.strip() == "2":
        return False
    if "MALLOC_PERTURB_" in os.environ:  # malloc then fills, and so touches, all memory
        return False
    limits = (resource.RLIMIT_AS, resource.RLIMIT_DATA)
    return all(resource.getrlimit(limit)[0] == resource.RLIM_INFINITY for limit in limits)


def count_open_files() -> int:
    """Return how many files this process has open."""
    return len(os.listdir("/dev/fd"))


def allow_open_files(needed: int) -> int | None:
    """Let this process have `needed` files open. Return the system's limit where it is lower, else None."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or needed <= soft:
        return None
    if hard != resource.RLIM_INFINITY and needed > hard:
        return hard
    resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
    return None
