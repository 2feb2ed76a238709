"""What not every operating system has, each with its plain form: Brimful needs none of it.

locks of files (fcntl)                      none: the caller warns
limits and usage (resource)                 no limit is known, no peak of memory
/proc, /sys                                 unknown
CPU affinity                                all cores
advice on the page cache and on maps        none is given
timers of CPU time                          nothing is timed
SIGUSR1                                     Ctrl-C and SIGTERM alone
glibc's mallopt, GOMP_parallel of OpenMP    memory returns as usual; one thread
"""

import ctypes
import errno
import faulthandler
import mmap
import os
import signal
import sys
from pathlib import Path
from typing import Any, Literal

try:
    import fcntl
except ImportError:
    fcntl = None  # type: ignore[assignment]
try:
    import resource
except ImportError:
    resource = None  # type: ignore[assignment]

HUGE_PAGE_BYTES = 32 << 20
"""The largest huge page to ask for. Where they have 512 MiB, a process would fill few."""
PLAUSIBLE_FILES = 256
"""Open files of a process, where they cannot be counted."""


def kernel_file(name: str, root: Path = Path("/")) -> str | None:
    """The content of a file of /proc or /sys, such as "proc/meminfo"; None where there is no such file."""
    try:
        return (root / name).read_text(errors="replace")
    except OSError:
        return None


def allowed_cores() -> set[int]:
    """The numbers of the cores that this process may use; empty: the system does not say."""
    return os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set()


def usable_cores() -> int:
    """How many cores this process may use."""
    return len(allowed_cores()) or os.cpu_count() or 1


def lock_file(descriptor: int) -> None:
    """Take the record lock of an open file. It ends with the process.

    Raises:
        OSError: another process has it, or there are no locks.
    """
    if fcntl is None:
        raise OSError(errno.ENOSYS, "this system has no locks of files")
    fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def peak_memory(of: Literal["self", "children"]) -> int | None:
    """The most memory that this process, or the largest of its ended children, ever held, in bytes; None: the
    system does not count it."""
    if resource is None:
        return None
    usage = resource.getrusage(resource.RUSAGE_SELF if of == "self" else resource.RUSAGE_CHILDREN)
    return usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def may_reserve(root: Path = Path("/")) -> bool:
    """Whether huge pages of a useful size exist, and this process may reserve memory that it never touches.

    Args:
        root: of the file system with `proc` and `sys`.
    """
    size = kernel_file("sys/kernel/mm/transparent_hugepage/hpage_pmd_size", root)
    overcommit = kernel_file("proc/sys/vm/overcommit_memory", root)
    if size is None or overcommit is None or resource is None or "MALLOC_PERTURB_" in os.environ:
        return False
    if not size.strip().isdigit() or int(size) > HUGE_PAGE_BYTES or overcommit.strip() == "2":
        return False
    limits = (resource.getrlimit(limit)[0] for limit in (resource.RLIMIT_AS, resource.RLIMIT_DATA))
    return all(limit == resource.RLIM_INFINITY for limit in limits)


def open_files() -> int:
    """How many files this process has open, about."""
    try:
        return len(os.listdir("/dev/fd"))
    except OSError:
        return PLAUSIBLE_FILES


def allow_open_files(needed: int) -> int | None:
    """Let this process have `needed` files open. Returns the system's limit where it is lower, else None."""
    if resource is None:
        return None
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or needed <= soft:
        return None
    if hard != resource.RLIM_INFINITY and needed > hard:
        return hard
    resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
    return None


def forget_cached(descriptor: int) -> None:
    """Ask the system to drop a file from its page cache."""
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)


def forget_read(memory: mmap.mmap) -> None:
    """Give back the resident pages of a map of a file, which come again when they are read."""
    if hasattr(mmap, "MADV_DONTNEED"):
        memory.madvise(mmap.MADV_DONTNEED)


def signals(*names: str) -> tuple[signal.Signals, ...]:
    """Those of the signals that the system has."""
    return tuple(getattr(signal, name) for name in names if hasattr(signal, name))


def has_timers() -> bool:
    """Whether CPU time can be limited: `signal.setitimer`, and stacks that a signal writes."""
    return hasattr(signal, "setitimer") and hasattr(faulthandler, "register")


def library_function(library: Path | None, name: str) -> Any:
    """A function of a shared library, None: of the program's own C library; None where there is none."""
    try:
        return getattr(ctypes.CDLL(None if library is None else str(library)), name)
    except (OSError, AttributeError, TypeError):
        return None
