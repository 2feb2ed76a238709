"""What Linux has and macOS has not, or not so, each with its plain form: Brimful needs none of it.

/proc, /sys                                 unknown
CPU affinity                                all cores
advice on the page cache and on maps        none is given
glibc's mallopt, GOMP_parallel of OpenMP    memory returns as usual; one thread

Locks of files and limits of a process stand here too.
"""

import ctypes
import fcntl
import mmap
import os
import resource
from pathlib import Path
from typing import Any

HUGE_PAGE_BYTES = 32 << 20
"""The largest huge page to ask for. Where they have 512 MiB, a process would fill few."""


def read_kernel_file(name: str, root: Path = Path("/")) -> str | None:
    """The content of a file of /proc or /sys, such as "proc/meminfo"; None where there is no such file."""
    try:
        return (root / name).read_text(errors="replace")
    except OSError:
        return None


def usable_cores() -> int:
    """How many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def lock_file(descriptor: int, *, waits: bool = False) -> None:
    """Take the record lock of an open file. It ends with the process.

    Args:
        waits: until another process gives it up.

    Raises:
        OSError: another process has it, or the file system has no locks.
    """
    fcntl.lockf(descriptor, fcntl.LOCK_EX | (0 if waits else fcntl.LOCK_NB))


def can_reserve_memory(root: Path = Path("/")) -> bool:
    """Whether huge pages of a useful size exist, and this process may reserve memory that it never touches.

    Args:
        root: of the file system with `proc` and `sys`.
    """
    size = read_kernel_file("sys/kernel/mm/transparent_hugepage/hpage_pmd_size", root)
    overcommit = read_kernel_file("proc/sys/vm/overcommit_memory", root)
    if size is None or overcommit is None or "MALLOC_PERTURB_" in os.environ:
        return False
    if not size.strip().isdigit() or int(size) > HUGE_PAGE_BYTES or overcommit.strip() == "2":
        return False
    limits = (resource.getrlimit(limit)[0] for limit in (resource.RLIMIT_AS, resource.RLIMIT_DATA))
    return all(limit == resource.RLIM_INFINITY for limit in limits)


def count_open_files() -> int:
    """How many files this process has open."""
    return len(os.listdir("/dev/fd"))


def allow_open_files(needed: int) -> int | None:
    """Let this process have `needed` files open. Returns the system's limit where it is lower, else None."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or needed <= soft:
        return None
    if hard != resource.RLIM_INFINITY and needed > hard:
        return hard
    resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
    return None


def drop_pages(memory: mmap.mmap) -> None:
    """Give back the resident pages of a map of a file, which come again when they are read."""
    if hasattr(mmap, "MADV_DONTNEED"):
        memory.madvise(mmap.MADV_DONTNEED)


def find_library_function(library: Path | None, name: str) -> Any:
    """A function of a shared library, None: of the program's own C library; None where there is none."""
    try:
        return getattr(ctypes.CDLL(None if library is None else str(library)), name)
    except (OSError, AttributeError, TypeError):
        return None
