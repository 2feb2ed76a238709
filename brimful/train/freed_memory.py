"""Memory that stays with a training on a CPU, instead of going back to the system in each step."""

import ctypes
import mmap

from brimful.base.machine import find_library_function
from brimful.base.resources import available_memory, can_reserve_memory

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # from malloc.h
MAX_BYTES, OLD_MAX_BYTES = 2**31 - 1, 32 << 20
"""The largest M_MMAP_THRESHOLD that mallopt accepts, and that older versions of glibc accept."""
BLOCK_BYTES = 1 << 30
"""Bytes of the heap that are reserved at a time."""


def keep_freed_memory() -> None:
    """Make glibc keep freed memory, in huge pages. From then on the process keeps its peak memory.

    By default large blocks return to the system at once, which zeroes each page when it is touched again: a
    step would pay for the same activations every time. Huge pages are asked for where they cost nothing until
    they are used. The heap grows at its end: blocks that are allocated there and freed leave it larger.
    """
    mallopt = find_library_function(None, "mallopt")
    # Setting one stops glibc from raising M_MMAP_THRESHOLD itself: if it is refused, set nothing else.
    takes_all = mallopt is not None and mallopt(M_MMAP_THRESHOLD, MAX_BYTES)
    if mallopt is None or not (takes_all or mallopt(M_MMAP_THRESHOLD, OLD_MAX_BYTES)):
        return
    if not mallopt(M_TRIM_THRESHOLD, -1) or not takes_all or not can_reserve_memory():
        return
    # The heap grows now, by blocks that are freed again, so that the pages of a step are huge from the start.
    malloc, free, madvise = (find_library_function(None, name) for name in ("malloc", "free", "madvise"))
    malloc.restype, malloc.argtypes, free.argtypes = ctypes.c_void_p, [ctypes.c_size_t], [ctypes.c_void_p]
    madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    blocks = [malloc(BLOCK_BYTES) for _ in range(available_memory() // 2 // BLOCK_BYTES)]
    for block in blocks:
        if block:
            madvise(block // mmap.PAGESIZE * mmap.PAGESIZE, BLOCK_BYTES, mmap.MADV_HUGEPAGE)
    for block in blocks:  # only now: a freed block would be the next one again
        free(block)
