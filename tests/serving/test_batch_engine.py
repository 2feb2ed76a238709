"""The engine's threads: how many batches are computed at a time, and that none waits in vain."""

import threading
import time
from types import SimpleNamespace

import numpy as np
import pytest

from brimful.serving.queue import QueuedRequest, QueuedText, QueuedWindow, RequestQueue
from brimful.serving.service import BatchEngine

WORKERS = 3
PATIENCE = 60.0


class Waiting:
    """A model whose batches, of one text each, end once `together` of them are computed at the same time."""

    name, budget, speed, served = "waiting", 1, 1e3, SimpleNamespace(max_length=9)

    def __init__(self, workers: int) -> None:
        self.workers, self.met = workers, threading.Barrier(workers)

    def read(self, texts: list[str], second: None, overlap: None) -> list[QueuedText]:
        window = [np.zeros(1)]
        return [QueuedText(text, None, window, window, []) for text in texts]

    def outputs(self, windows: list[QueuedWindow]) -> list[int]:
        assert self.met.n_waiting < self.workers
        self.met.wait(PATIENCE)
        return [0] * len(windows)

    def answer(self, texts: list[QueuedText]) -> None:
        for text in texts:
            text.value = "answered"


def values(request: QueuedRequest) -> list[str]:
    """The answers to its texts."""
    return [text.value for text in request.results]


@pytest.mark.parametrize("workers", [1, WORKERS])
def test_batches_are_computed_beside_each_other(workers):
    model, over = Waiting(workers), threading.Semaphore(0)
    queue = RequestQueue(100, lambda requests: [over.release() for _ in requests] and None)
    engine = BatchEngine(queue, lambda model, tokens, seconds: None)
    engine.employ(WORKERS)  # another model has so many
    requests = [QueuedRequest(model, ["a"]) for _ in range(2 * WORKERS)]
    for request in requests:
        queue.admit(request)
    for _ in requests:
        assert over.acquire(timeout=PATIENCE)
    queue.stop(RuntimeError("over"))
    assert [values(request) for request in requests] == [["answered"]] * len(requests)
    assert engine.lost == ""


def test_a_function_that_waits_for_an_engine_that_stops_gets_its_error():
    queue = RequestQueue(100, lambda requests: None)
    engine = BatchEngine(queue, lambda model, tokens, seconds: None)
    assert engine.call(lambda: 7) == 7
    with pytest.raises(ZeroDivisionError):
        engine.call(lambda: 1 // 0)
    assert engine.lost == ""
    held = threading.Event()
    queue.call(lambda: held.wait(PATIENCE))
    waiting = queue.call(lambda: 8)
    queue.stop(RuntimeError("over"))
    with pytest.raises(RuntimeError, match="over"):
        waiting.result(PATIENCE)
    held.set()
    with pytest.raises(RuntimeError, match="over"):
        engine.call(lambda: 9)


def test_texts_of_those_who_left_hold_up_nobody():
    first, over = Waiting(1), threading.Semaphore(0)
    queue = RequestQueue(100, lambda requests: [over.release() for _ in requests] and None)
    BatchEngine(queue, lambda model, tokens, seconds: None)
    held, gone = threading.Event(), threading.Event()
    queue.call(lambda: held.wait(PATIENCE) and None)
    many = QueuedRequest(first, ["a"] * 50)
    many.has_left = gone.is_set
    queue.admit(many)
    until = time.monotonic() + PATIENCE
    while queue.tokens != 50 and time.monotonic() < until:  # they are tokenized
        time.sleep(0.01)
    last = QueuedRequest(first, ["a"])
    queue.admit(last)
    gone.set()
    queue.expire()
    held.set()
    assert over.acquire(timeout=PATIENCE)
    assert over.acquire(timeout=PATIENCE)
    queue.stop(RuntimeError("over"))
    assert values(last) == ["answered"]
