"""What Linux has and macOS lacks. Without it there is another way, and no error.

/proc, /sys                                 unknown
CPU affinity, control groups                all cores; half of the installed memory
advice on the page cache and on maps        none is given
glibc's mallopt, GOMP_parallel of OpenMP    memory returns as usual; one thread
"""

import ctypes
import mmap
import os
import platform
from pathlib import Path
from typing import Any

ROOT = Path("/")
"""The root of the file system with `proc` and `sys`; tests give another one."""


def read_kernel_file(name: str, root: Path = ROOT) -> str | None:
    """Read a file of /proc or /sys, such as "proc/meminfo"; None where there is no such file."""
    try:
        return (root / name).read_text(errors="replace")
    except OSError:
        return None


def count_cores() -> int:
    """Return the number of cores that this process may run on, by its affinity."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def read_fields(text: str, separator: str) -> dict[str, str]:
    """Return the values of lines such as "MemAvailable: 123 kB", by name."""
    fields = {}
    for line in text.splitlines():
        name, _, value = line.partition(separator)
        fields[name.strip()] = value.strip()
    return fields


def processor_name() -> str:
    """Return the name of the processor's model, as far as the system knows it."""
    fields = read_fields(read_kernel_file("proc/cpuinfo") or "", ":")
    return fields.get("model name") or fields.get("Model") or platform.processor() or platform.machine()


def drop_pages(memory: mmap.mmap) -> None:
    """Give back the resident pages of a map of a file; the system loads them again when they are read."""
    if hasattr(mmap, "MADV_DONTNEED"):
        memory.madvise(mmap.MADV_DONTNEED)


def find_library_function(library: Path | None, name: str) -> Any:
    """Find a function of a shared library, or of the program's own C library without one; None if absent."""
    try:
        return getattr(ctypes.CDLL(None if library is None else str(library)), name)
    except (OSError, AttributeError, TypeError):
        return None
