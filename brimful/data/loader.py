"""A prefetching loader with an exact state: batches are made ahead, in a thread, while the model computes.

The state is the cursor of the next update, handed out together with each update; what was prefetched but
not used is simply made again after a resume.
"""

import queue
import threading
from collections.abc import Iterator
from typing import Protocol

from brimful.data.batch import PackedBatch
from brimful.data.rows import Cursor

PREFETCH = 2


class Stream(Protocol):
    """A pure function from cursor to update: `RowStream`, `ExampleStream`."""

    def start(self) -> Cursor:
        """The cursor of a new run."""

    def take(self, cursor: Cursor) -> tuple[list[PackedBatch], Cursor]:
        """The micro-batches at `cursor` and the cursor that follows."""


def prefetch(stream: Stream, cursor: Cursor, updates: int) -> Iterator[tuple[list[PackedBatch], Cursor]]:
    """Yield `updates` updates from `cursor` on: (micro-batches, cursor of the next update).

    An error in the stream is raised here, at the update that it belongs to.
    """
    ready: queue.Queue = queue.Queue(maxsize=PREFETCH)
    stopped = threading.Event()

    def put(item: object) -> bool:
        while not stopped.is_set():
            try:
                ready.put(item, timeout=0.1)
            except queue.Full:
                continue
            return True
        return False

    def work() -> None:
        at = cursor
        try:
            for _ in range(updates):
                batches, at = stream.take(at)
                if not put((batches, at)):
                    return
        except BaseException as error:
            put(error)

    thread = threading.Thread(target=work, name="prefetch", daemon=True)
    thread.start()
    try:
        for _ in range(updates):
            item = ready.get()
            if isinstance(item, BaseException):
                raise item
            yield item
    finally:
        stopped.set()
        thread.join()
