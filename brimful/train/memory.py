"""This machine's memory: how much is available, and how a CPU step keeps its memory for the next one."""

import ctypes
import mmap
import os
from pathlib import Path

from brimful.base.control_groups import read_groups
from brimful.base.system import kernel_file, library_function, limits_addresses

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
MOST = 2**31 - 1
"""The largest M_MMAP_THRESHOLD that mallopt accepts."""

MOST_OF_OLD = 32 << 20
"""The largest M_MMAP_THRESHOLD that older versions of glibc accept."""

NEVER = -1
"""An M_TRIM_THRESHOLD with which no free memory returns to the system."""

LARGEST_PAGE = 32 << 20
"""Bytes. Systems with pages of 64 KiB have huge pages of 512 MiB, of which a process would fill few."""

BLOCK = 1 << 30
"""Bytes of the heap that are reserved at a time."""


def keep_freed_memory() -> bool:
    """Make the C library keep freed memory, in huge pages. From then on the process keeps its peak memory.

    By default, blocks above 32 MiB and free memory at the end of the heap return to the operating system at
    once. A step frees its activations and allocates the same ones again, so it pays for each page every time:
    the system zeroes a page when it is first touched. With an old glibc, large blocks still return, and pages
    are of the usual size.

    Returns:
        False where the C library is not glibc; then nothing changes.
    """
    mallopt = library_function(None, "mallopt")
    if mallopt is None:
        return False
    # Setting either one stops glibc from raising M_MMAP_THRESHOLD from its first 128 kB by itself. So if the
    # first is refused, the second must not be set.
    all_sizes = mallopt(M_MMAP_THRESHOLD, MOST)
    if not (all_sizes or mallopt(M_MMAP_THRESHOLD, MOST_OF_OLD)) or not mallopt(M_TRIM_THRESHOLD, NEVER):
        return False
    if all_sizes and may_reserve():
        _advise_huge_pages(available_memory() // 2)
    return True


def may_reserve(root: Path = Path("/")) -> bool:
    """Whether the system has huge pages, not larger than LARGEST_PAGE, and memory that is reserved and never
    touched does not count as used."""
    size = kernel_file("sys/kernel/mm/transparent_hugepage/hpage_pmd_size", root)
    overcommit = kernel_file("proc/sys/vm/overcommit_memory", root)
    if size is None or overcommit is None or limits_addresses() or "MALLOC_PERTURB_" in os.environ:
        return False
    return size.strip().isdigit() and int(size) <= LARGEST_PAGE and overcommit.strip() != "2"


def _advise_huge_pages(size: int) -> None:
    """Ask for huge pages in the next `size` bytes of the heap, rounded down to BLOCK.

    A step walks through more memory than the processor can translate addresses of, at 4 KiB a page, and a
    virtual machine pays for each page that is not found twice. The heap grows at its end: blocks that are
    allocated there, advised and freed untouched leave it that much larger, in addresses alone.
    """
    malloc, free, madvise = (library_function(None, name) for name in ("malloc", "free", "madvise"))
    malloc.restype = ctypes.c_void_p
    malloc.argtypes = [ctypes.c_size_t]
    free.argtypes = [ctypes.c_void_p]
    madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    blocks = []
    for _ in range(size // BLOCK):
        block = malloc(BLOCK)
        if block is None:
            break
        blocks.append(block)
        begin, end = (address // mmap.PAGESIZE * mmap.PAGESIZE for address in (block, block + BLOCK))
        madvise(begin, end - begin, mmap.MADV_HUGEPAGE)
    for block in blocks:
        free(block)


def available_memory(root: Path = Path("/")) -> int:
    """Bytes that are still available on this machine and in this process's cgroups.

    Where that is unknown (not on Linux), half of the installed memory.

    Args:
        root: of the file system with `proc` and `sys`.
    """
    known = kernel_file("proc/meminfo", root)
    if known is None:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    lines = (line.split(":") for line in known.splitlines())
    fields = {name: int(value.split()[0]) for name, value in lines}
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
