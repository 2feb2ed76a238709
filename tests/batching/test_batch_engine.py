"""The engine's threads: how many batches are computed at a time, and what each may take of the cores."""

import threading
from types import SimpleNamespace

import pytest

from brimful.batching.engine import BatchEngine
from brimful.batching.queue import Queue, QueuedRequest

WORKERS = 3
PATIENCE = 60.0


class Waiting:
    """A model whose batches, of one text each, end once `together` of them are computed at the same time."""

    name, budget, served = "waiting", 1, SimpleNamespace(max_length=9)

    def __init__(self, together: int) -> None:
        self.met = threading.Barrier(together)
        self.busy: list[int] = []

    def read(self, texts: list[str], second: None, overlap: None) -> list[SimpleNamespace]:
        return [SimpleNamespace(length=1, cut={}) for _ in texts]

    def learn(self, readings: list[SimpleNamespace]) -> None:
        pass

    def answers(self, readings: list[SimpleNamespace], busy: int) -> list[str]:
        self.busy.append(busy)
        self.met.wait(PATIENCE)
        return ["answered"] * len(readings)


@pytest.mark.parametrize("workers", [1, WORKERS])
def test_batches_are_computed_beside_each_other(workers: int) -> None:
    model, over = Waiting(workers), threading.Semaphore(0)
    queue = Queue(100, lambda jobs: [over.release() for _ in jobs] and None)
    engine = BatchEngine(queue, lambda rows, seconds: None)
    engine.employ(workers)
    engine.employ(1)  # none of them ends
    jobs = [QueuedRequest(model, ["a"]) for _ in range(2 * WORKERS)]
    for job in jobs:
        queue.admit(job)
    for _ in jobs:
        assert over.acquire(timeout=PATIENCE)
    queue.stop(RuntimeError("over"))
    assert [job.results for job in jobs] == [["answered"]] * len(jobs)
    assert max(model.busy) == workers
    assert engine.lost == ""
