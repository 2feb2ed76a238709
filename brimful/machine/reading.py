"""How fast data comes: files from the disk, batches from a stream."""

import time
from collections.abc import Sequence
from pathlib import Path

from brimful.base.system import forget_cached
from brimful.data.loader import Stream

MOST_BYTES, CHUNK = 256 << 20, 1 << 20
"""Bytes that are read from the disk, in all and at a time."""
SECONDS = 1.0
"""About how long each of the measurements takes at most."""


def disk_speed(paths: Sequence[Path]) -> float:
    """The speed of one thread that reads files in order; 0.0 if they are empty."""
    read, seconds = 0, 0.0
    for path in paths:
        if read >= MOST_BYTES or seconds > SECONDS:
            break
        with open(path, "rb", buffering=0) as file:
            forget_cached(file.fileno())
            started = time.perf_counter()
            while (got := len(file.read(CHUNK))) and read < MOST_BYTES:
                read += got
                if seconds + time.perf_counter() - started > SECONDS:
                    break
            seconds += time.perf_counter() - started
    return read / seconds if seconds else 0.0


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
