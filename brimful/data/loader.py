"""A prefetching loader with an exact state: updates are made ahead, in a thread, while the model computes.

The thread reads and masks batches, computes their normalizers, and on CUDA copies them through pinned memory
on its own stream. Its loops are compiled and let other threads run. The state is the cursor of the next
update, which comes with each update. Updates that were made but not used are made again after a resume.
"""

import sys
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import NamedTuple, Protocol

import torch

from brimful.base.types import Cursor, Numbers
from brimful.data.batch import PackedBatch

SWITCH_SECONDS = 3e-4
"""How long the thread waits for the interpreter's lock while a step computes in Python. The thread releases
the lock in each compiled loop, tens of times an update; Python's default would cost 5 ms each time."""


class Stream(Protocol):
    """A pure function from cursor to update: `RowStream`, `ExampleStream`."""

    def start(self) -> Cursor:
        """The cursor of a new run."""

    def take(self, cursor: Cursor) -> tuple[list[PackedBatch], Cursor]:
        """Make the micro-batches at `cursor`, and the cursor that follows."""

    def advise_smaller(self) -> str:
        """Say what to set where a micro-batch does not fit in memory."""

    def tokens_by_source(self, cursor: Cursor) -> dict[str, int]:
        """Real tokens that each source of a mixture has given before `cursor`, all ranks together."""


class Update(NamedTuple):
    """The input of a step.

    Attributes:
        batches: this rank's micro-batches, on the device.
        normalizers: the normalizers of each micro-batch's loss sums, computed on the host.
        cursor: the cursor of the next update.
        waited: seconds that the caller waited for the update.
        copied: the event after the copies to a GPU, which `prefetch` waits for.
    """

    batches: list[PackedBatch]
    normalizers: list[Numbers]
    cursor: Cursor
    waited: float = 0.0
    copied: torch.cuda.Event | None = None


def prefetch(
    stream: Stream,
    cursor: Cursor,
    updates: int,
    *,
    normalizers: Callable[[PackedBatch], Numbers],
    device: torch.device,
    depth: int = 2,
) -> Generator[Update, None, None]:
    """Yield `updates` updates from `cursor` on.

    Args:
        normalizers: returns the normalizers of a batch whose tensors are on the host.
        device: the device of the batches.
        depth: number of updates that are made ahead; 0 makes each on demand.

    An error in the stream is raised here, at its update. The thread ends with the generator.
    """
    # A CUDA stream of its own, so that copies do not wait for the step that computes.
    side = torch.cuda.Stream(device) if device.type == "cuda" else None

    def copy(tensor: torch.Tensor) -> torch.Tensor:
        # torch does not reuse the pinned memory before the copy is done.
        return tensor.pin_memory().to(device, non_blocking=True)

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        # The caller's stream uses the memory, which belongs to the stream of the copies.
        tensor.record_stream(torch.cuda.current_stream(device))
        return tensor

    def make() -> Generator[Update, None, None]:
        following = cursor
        for _ in range(updates):
            batches, following = stream.take(following)
            sums = [normalizers(batch) for batch in batches]  # on the host, before the batches leave it
            copied = None
            if side is None:
                batches = [batch.to(device) for batch in batches]
            else:
                with torch.cuda.stream(side):
                    batches = [batch.map(copy) for batch in batches]
                    copied = side.record_event()
            yield Update(batches, sums, following, copied=copied)

    items = make()
    if depth:
        items = _work_ahead(items, depth)
    with closing(items) as made:
        for _ in range(updates):
            started = time.perf_counter()
            update = next(made)
            if update.copied is not None:
                torch.cuda.current_stream(device).wait_event(update.copied)
                for batch in update.batches:
                    batch.map(keep)
            yield update._replace(waited=time.perf_counter() - started)


def _work_ahead(items: Iterator[Update], depth: int) -> Generator[Update, None, None]:
    """Yield the items, made by a thread that is at most `depth` ahead and ends with this generator."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(min(interval, SWITCH_SECONDS))
    thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="prefetch")
    try:
        ahead = deque(thread.submit(next, items) for _ in range(depth))
        while True:
            made = ahead.popleft().result()
            ahead.append(thread.submit(next, items))
            yield made
    finally:
        thread.shutdown(cancel_futures=True)
        sys.setswitchinterval(interval)
