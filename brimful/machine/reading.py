"""How fast data comes: files from the disk, in order and from random places; batches from a stream."""

import errno
import os
import random
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from brimful.data.loader import Stream

MOST_BYTES = 256 << 20
"""Read in order."""
SECONDS = 1.0
"""About how long each of the measurements takes at most."""
MOST_FILES = 64
"""Read at random places: each is open, and a process may not open many."""
CHUNK, PAGE = 1 << 20, 4096
"""Bytes of a read in order, and from a random place."""


class DiskSpeed(NamedTuple):
    """How fast files are read.

    Attributes:
        bytes: read in order.
        bytes_per_second: of these.
        reads_per_second: of 4 KiB from random places, one after another.
        cached: the fraction of the probed pages that were in memory in spite of all; None: unknown.
    """

    bytes: int
    bytes_per_second: float
    reads_per_second: float
    cached: float | None


def disk_speed(paths: Sequence[Path]) -> DiskSpeed:
    """Read files with one thread, after the system was asked to drop them from its page cache.

    It keeps pages that are mapped by another process or not yet written, and files of a file system in
    memory.

    Raises:
        OSError: a file cannot be read.
    """
    read, cached, probed = 0, 0, 0
    seconds = 0.0
    for path in paths:
        size = min(path.stat().st_size, MOST_BYTES - read)
        if size <= 0 or seconds > SECONDS:
            continue
        with open(path, "rb", buffering=0) as file:
            _forget(file.fileno())
            for place in range(0, size, max(PAGE, size // 64)):
                known = _in_memory(file.fileno(), place)
                cached, probed = cached + (known is True), probed + (known is not None)
            _forget(file.fileno())
            started = time.perf_counter()
            while size > 0 and seconds + time.perf_counter() - started < SECONDS:
                got = len(file.read(min(CHUNK, size)))
                if not got:
                    break
                read, size = read + got, size - got
            seconds += time.perf_counter() - started
    return DiskSpeed(
        read,
        read / seconds if seconds else 0.0,
        _random_reads(paths),
        cached / probed if probed else None,
    )


def _random_reads(paths: Sequence[Path]) -> float:
    """Reads per second of a page from a random place of the files, weighted by their sizes."""
    draw = random.Random()  # the same places would be in memory from the time before
    paths = draw.sample(paths, min(MOST_FILES, len(paths)))
    sizes = [path.stat().st_size for path in paths]
    if not sum(sizes):
        return 0.0
    opened = [os.open(path, os.O_RDONLY) for path in paths]
    try:
        for file in opened:
            _forget(file)
            if hasattr(os, "posix_fadvise"):
                os.posix_fadvise(file, 0, 0, os.POSIX_FADV_RANDOM)  # the system reads nothing ahead
        chosen = draw.choices(range(len(paths)), sizes, k=4096)
        count, started = 0, time.perf_counter()
        for file in chosen:
            os.pread(opened[file], PAGE, draw.randrange(max(1, sizes[file] // PAGE)) * PAGE)
            count += 1
            if time.perf_counter() - started > SECONDS:
                break
        return count / (time.perf_counter() - started)
    finally:
        for file in opened:
            os.close(file)


def _forget(file: int) -> None:
    """Ask the system to drop a file from its page cache."""
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)


def _in_memory(file: int, place: int) -> bool | None:
    """Whether the page at `place` is in the page cache; None: the file system does not say."""
    if not hasattr(os, "RWF_NOWAIT"):
        return None
    try:
        os.preadv(file, [bytearray(1)], place, os.RWF_NOWAIT)
    except OSError as error:
        return False if error.errno == errno.EAGAIN else None
    return True


def loader_speed(stream: Stream, seconds: float = 2 * SECONDS) -> float:
    """Real tokens per second that the stream makes of this rank's share, without a step beside it.

    The first update is not counted: it plans a block, which training does while the block before is read.
    """
    _, cursor = stream.take(stream.start())
    tokens, started = 0, time.perf_counter()
    while True:
        batches, cursor = stream.take(cursor)
        tokens += sum(batch.real_tokens for batch in batches)
        taken = time.perf_counter() - started
        if taken > seconds:
            return tokens / taken
