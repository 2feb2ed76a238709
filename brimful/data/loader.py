"""A prefetching loader with an exact state: updates are made ahead, in a thread, while the model computes.

The thread reads and masks batches, computes their normalizers, and on CUDA copies them through pinned memory
on its own stream. Its loops are compiled and let other threads run. The state is the cursor of the next
update, which comes with each update. Updates that were made but not used are made again after a resume.
"""

import queue
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from typing import NamedTuple, Protocol

import torch

from brimful.base.types import Cursor
from brimful.data.batch import PackedBatch

SWITCH_SECONDS = 3e-4
"""Seconds until the thread gets the interpreter's lock back from a step that computes in Python. The thread
releases the lock in each compiled loop, tens of times an update; Python's default would cost 5 ms each
time."""


class Stream(Protocol):
    """A pure function from cursor to update: `RowStream`, `ExampleStream`."""

    def start(self) -> Cursor:
        """The cursor of a new run."""

    def take(self, cursor: Cursor) -> tuple[list[PackedBatch], Cursor]:
        """The micro-batches at `cursor` and the cursor that follows."""

    def advise_smaller(self) -> str:
        """What to set where a micro-batch does not fit in memory."""

    def tokens_by_source(self, cursor: Cursor) -> dict[str, int]:
        """Real tokens that each source of a mixture has given before `cursor`, all ranks together."""


class Update(NamedTuple):
    """The input of a step.

    Attributes:
        batches: this rank's micro-batches, on the device.
        normalizers: of each one's loss sums, from the host.
        cursor: of the next update.
        waited: seconds that the caller waited for it.
    """

    batches: list[PackedBatch]
    normalizers: list[dict[str, float]]
    cursor: Cursor
    waited: float


class _Device:
    """Copies batches to a device beside its computation."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.stream = torch.cuda.Stream(device) if device.type == "cuda" else None

    def send(self, batches: list[PackedBatch]) -> tuple[list[PackedBatch], torch.cuda.Event | None]:
        """Begin to copy; the event marks the end."""
        if self.stream is None:
            return [batch.to(self.device) for batch in batches], None
        with torch.cuda.stream(self.stream):
            # torch does not reuse the pinned memory before the copy is done.
            copies = [
                batch.map(lambda t: t.pin_memory().to(self.device, non_blocking=True)) for batch in batches
            ]
            return copies, self.stream.record_event()

    def receive(self, batches: list[PackedBatch], copied: torch.cuda.Event | None) -> list[PackedBatch]:
        """The batches. The caller's stream waits for them, and their memory is kept until it has used
        them."""
        if copied is None:
            return batches
        current = torch.cuda.current_stream(self.device)
        current.wait_event(copied)

        def kept(tensor: torch.Tensor) -> torch.Tensor:
            tensor.record_stream(current)
            return tensor

        return [batch.map(kept) for batch in batches]


class _Made(NamedTuple):
    """An update on its way to the device."""

    batches: list[PackedBatch]
    copied: torch.cuda.Event | None
    weights: list[dict[str, float]]
    cursor: Cursor


def prefetch(
    stream: Stream,
    cursor: Cursor,
    updates: int,
    *,
    normalizers: Callable[[PackedBatch], dict[str, float]],
    device: torch.device,
    depth: int = 2,
) -> Generator[Update, None, None]:
    """Yield `updates` updates from `cursor` on.

    Args:
        normalizers: a batch, with its tensors on the host -> its normalizers.
        device: of the batches.
        depth: the number of updates that are made ahead; 0 makes each on demand.

    An error in the stream is raised here, at its update. The thread ends with the generator.
    """
    copier = _Device(device)

    def make() -> Generator[_Made, None, None]:
        following = cursor
        for _ in range(updates):
            batches, following = stream.take(following)
            yield _Made(*copier.send(batches), [normalizers(batch) for batch in batches], following)

    with closing(_ahead(make(), depth) if depth else make()) as made:
        for _ in range(updates):
            started = time.perf_counter()
            batches, copied, weights, following = next(made)
            batches = copier.receive(batches, copied)
            yield Update(batches, weights, following, time.perf_counter() - started)


def _ahead(items: Iterator[_Made], depth: int) -> Generator[_Made, None, None]:
    """The items, made by a thread that is at most `depth` of them ahead and ends with this generator."""
    ready: queue.SimpleQueue[_Made | BaseException] = queue.SimpleQueue()
    room = threading.Semaphore(depth)
    stopped = threading.Event()

    def work() -> None:
        try:
            while True:
                room.acquire()
                if stopped.is_set():
                    return
                ready.put(next(items))
        except BaseException as error:  # the end of the items too
            ready.put(error)

    thread = threading.Thread(target=work, name="prefetch", daemon=True)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(min(interval, SWITCH_SECONDS))
    thread.start()
    try:
        while not isinstance(made := ready.get(), StopIteration):
            if isinstance(made, BaseException):
                raise made
            room.release()
            yield made
    finally:
        stopped.set()
        room.release()
        thread.join()
        sys.setswitchinterval(interval)
