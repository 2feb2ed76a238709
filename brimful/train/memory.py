"""Freed memory of a CPU step is kept for the next one."""

import ctypes
import sys

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
