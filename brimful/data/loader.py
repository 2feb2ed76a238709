"""A prefetching loader with an exact state: updates are made ahead, in a thread, while the model computes.

The thread reads, masks and weighs batches, and on CUDA copies them through pinned memory on a stream of its
own; its loops are compiled and let other threads run. The state is the cursor of the next update, handed out
together with each update; what was prefetched but not used is simply made again after a resume.
"""

import queue
import threading
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol

import torch

from brimful.data.batch import PackedBatch
from brimful.data.rows import Cursor


class Stream(Protocol):
    """A pure function from cursor to update: `RowStream`, `ExampleStream`."""

    def start(self) -> Cursor:
        """The cursor of a new run."""

    def take(self, cursor: Cursor) -> tuple[list[PackedBatch], Cursor]:
        """The micro-batches at `cursor` and the cursor that follows."""

    def tokens_by_source(self, cursor: Cursor) -> dict[str, int]:
        """Real tokens that each source of a mixture has given before `cursor`, all ranks together."""


class Update(NamedTuple):
    """What a step takes.

    Attributes:
        batches: this rank's micro-batches, on the device.
        weights: what each one's sums are to be divided by, from the host.
        cursor: of the next update.
        waited: seconds that the caller stood still for it.
    """

    batches: list[PackedBatch]
    weights: list[dict[str, float]]
    cursor: Cursor
    waited: float


class _Device:
    """Copies batches to a device beside its computation."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.stream = torch.cuda.Stream(device) if device.type == "cuda" else None

    def send(self, batches: list[PackedBatch]) -> tuple[list[PackedBatch], torch.cuda.Event | None]:
        """Begin to copy; the event tells when that is done."""
        if self.stream is None:
            return [batch.to(self.device) for batch in batches], None
        with torch.cuda.stream(self.stream):
            copies = [
                batch.map(lambda t: t.pin_memory().to(self.device, non_blocking=True)) for batch in batches
            ]
            return copies, self.stream.record_event()

    def receive(self, batches: list[PackedBatch], copied: torch.cuda.Event | None) -> list[PackedBatch]:
        """The batches, in the order of the caller's stream, which keeps them until it has used them."""
        if copied is not None:
            current = torch.cuda.current_stream(self.device)
            current.wait_event(copied)
            for batch in batches:
                batch.map(lambda t: (t.record_stream(current), t)[1])
        return batches


def prefetch(
    stream: Stream,
    cursor: Cursor,
    updates: int,
    *,
    weigh: Callable[[PackedBatch], dict[str, float]],
    device: torch.device,
    depth: int = 2,
) -> Iterator[Update]:
    """Yield `updates` updates from `cursor` on.

    Args:
        weigh: the weights of a batch, from its tensors on the host.
        device: where batches are wanted.
        depth: how many updates may lie ready; 0 makes each when it is asked for.

    An error in the stream is raised here, at the update that it belongs to.
    """
    copier = _Device(device)

    def make(at: Cursor) -> tuple:
        batches, following = stream.take(at)
        return *copier.send(batches), [weigh(batch) for batch in batches], following

    if not depth:
        for _ in range(updates):
            started = time.perf_counter()
            batches, copied, weights, cursor = make(cursor)
            yield Update(copier.receive(batches, copied), weights, cursor, time.perf_counter() - started)
        return

    ready: queue.Queue = queue.Queue(maxsize=depth)
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
                made = make(at)
                at = made[-1]
                if not put(made):
                    return
        except BaseException as error:
            put(error)

    thread = threading.Thread(target=work, name="prefetch", daemon=True)
    thread.start()
    try:
        for _ in range(updates):
            started = time.perf_counter()
            item = ready.get()
            if isinstance(item, BaseException):
                raise item
            batches, copied, weights, following = item
            yield Update(copier.receive(batches, copied), weights, following, time.perf_counter() - started)
    finally:
        stopped.set()
        thread.join()
