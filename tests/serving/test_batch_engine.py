"""Several batches at a time: their threads, of which none waits in vain, and answers that stay the same."""

import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pytest

from brimful.serving.batch_model import BatchModel, open_models
from brimful.serving.config import ModelOptions
from brimful.serving.open_model import open_served
from brimful.serving.queue import QueuedRequest, QueuedText, QueuedWindow, RequestQueue
from brimful.serving.service import BatchEngine

WORKERS = 3
PATIENCE = 60.0
THREADS, TURNS = 4, 3
TEXTS = [" ".join(f"w{(3 * row + word) % 40}" for word in range(1 + row % 13)) for row in range(24)]


class Waiting:
    """A model whose batches, of one text each, end once `workers` of them are computed at the same time."""

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
    assert [text.value for request in requests for text in request.results] == ["answered"] * len(requests)
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


def test_a_model_is_called_after_the_folder_that_was_given(small_models, tmp_path, monkeypatch):
    """A link's name stays when it leads to another model."""
    (tmp_path / "router").symlink_to(small_models / "topics")
    monkeypatch.chdir(small_models / "vectors")
    openings = [ModelOptions(model=name, device="cpu") for name in (f"{tmp_path}/router/", ".", "../topics")]
    found = open_models(openings, lambda function: function())
    assert list(found) == ["router", "vectors", "topics"]


def numbers(model: BatchModel, given: list[str]) -> list[object]:
    texts = model.read(given, None, None)
    outputs = model.outputs([QueuedWindow(text, 0) for text in texts])
    for text, output in zip(texts, outputs, strict=True):
        text.outputs = [output]
    model.answer(texts)
    return [text.value.tolist() if isinstance(text.value, np.ndarray) else text.value for text in texts]


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("name", ["topics", "names", "vectors"])
def test_in_any_thread_a_text_has_the_same_answer(small_models, name, precision):
    opening = ModelOptions(model=str(small_models / name), precision=precision, device="cpu", resident=True)  # type: ignore[arg-type]
    model = BatchModel(name, open_served(opening))
    model._threads = 1
    batches = [TEXTS[start::6] for start in range(6)]
    expected = [numbers(model, batch) for batch in batches]
    with ThreadPoolExecutor(THREADS) as pool:
        found = list(pool.map(lambda batch: numbers(model, batch), batches * TURNS))
    assert found == expected * TURNS
