"""Models behind one queue, and the threads that serve it, for callers on an asyncio loop.

One thread tokenizes the next texts beside those that compute.
"""

import asyncio
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

from brimful.base.console import say
from brimful.base.errors import BrimfulError, is_out_of_memory
from brimful.base.types import Numbers
from brimful.serving.batch_model import BatchModel
from brimful.serving.queue import (
    QueuedRequest,
    QueuedText,
    QueuedWindow,
    RefusedError,
    RequestQueue,
    UnreadText,
)

QUEUE_SHARE = 0.25
"""The fraction of the deadline in which the slowest model computes all accepted requests. Answers are in time
even if refusals and other processes leave the engine only a third of its measured speed."""
ReportBatch = Callable[[BatchModel, int, float], None]
"""Takes the model of a batch, its tokens, and the seconds that it took."""
Part = UnreadText | QueuedWindow | QueuedText
"""A part of a request, at one of its stages."""


class BatchEngine:
    """The threads that tokenize and compute.

    Attributes:
        lost: the reason why a thread has ended, after which the engine is dead; empty while all run.
    """

    def __init__(self, queue: RequestQueue, report_batch: ReportBatch) -> None:
        self.queue, self.lost, self._report_batch, self._workers = queue, "", report_batch, 0
        self._start(self._tokenize)
        self.employ(1)

    def employ(self, workers: int) -> None:
        """Have at least `workers` threads that compute.

        Several batches, each on its part of the cores, take less time beside each other than one after the
        other on all cores, since the threads of one batch wait for each other.
        """
        while self._workers < workers:
            self._workers += 1
            self._start(self._compute)

    def call(self, function: Callable[[], Any]) -> Any:
        """Call a function in a computing thread between two batches, and return its result."""
        return self.queue.call(function).result()

    def _start(self, work: Callable[[], None]) -> None:
        threading.Thread(target=self._run, args=(work,), daemon=True).start()

    def _run(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:
            self.lost = f"the engine has stopped ({type(error).__name__}); start the server again"
            say(f"serve: {self.lost}")
            self.queue.stop(RefusedError(500, self.lost))

    def _isolate(
        self, work: Callable[[Any], None], parts: Sequence[Part], caught: type[BaseException] = Exception
    ) -> None:
        """Do something with parts of requests; if it fails, again with the parts of each request separately,
        so that no request fails because of another one."""
        try:
            work(parts)
        except caught as error:
            by_request = defaultdict(list)
            for part in parts:
                by_request[part.request].append(part)
            if len(by_request) == 1:
                self.queue.fail(list(by_request), _failure(parts[0], error))
                return
            for own_parts in by_request.values():
                self._isolate(work, own_parts, caught)

    def _tokenize(self) -> None:
        while (parts := self.queue.wait_for_texts()) is not None:
            batches = defaultdict(list)
            for part in parts:
                batches[part.request.model, part.request.overlap, part.second is None].append(part)
            for batch in batches.values():
                # A panic of the tokenizer, which is Rust, is a BaseException.
                self._isolate(self._read, batch, BaseException)

    def _read(self, parts: Sequence[UnreadText]) -> None:
        model, overlap = parts[0].request.model, parts[0].request.overlap
        second = [part.second for part in parts if part.second is not None]
        texts = model.read([part.text for part in parts], second or None, overlap)
        for part, text in zip(parts, texts, strict=True):
            text.request, text.place = part.request, part.place
            if part.request.reject and text.cut:
                name = f"text {part.place + 1}" if len(part.request.results) > 1 else "the text"
                limit = f"the {model.served.max_length:,} that {model.name} reads"
                self.queue.fail([part.request], RefusedError(422, f"{name} has more tokens than {limit}"))
        self.queue.add_tokenized(texts)

    def _compute(self) -> None:
        while (batch := self.queue.wait_for_batch()) is not None:
            if isinstance(batch, list):
                model = batch[0].request.model
                self._isolate(self._answer, batch)
                self.queue.end_batch(model)
                continue
            function, future = batch
            try:
                future.set_result(function())
            except BaseException as error:  # it belongs to the caller, not to this thread
                future.set_exception(error)

    def _answer(self, batch: list[QueuedWindow]) -> None:
        model, started = batch[0].request.model, time.monotonic()
        tokens = sum(window.length for window in batch)
        complete = self.queue.store_outputs(batch, model.outputs(batch))
        if complete:
            self._isolate(self._conclude, complete)
        self._report_batch(model, tokens, time.monotonic() - started)

    def _conclude(self, texts: list[QueuedText]) -> None:
        texts[0].request.model.answer(texts)
        self.queue.complete(texts)


def _failure(part: Part, error: BaseException) -> RefusedError:
    """Return the answer to a failed request; print a line, without its texts, if the model is at fault."""
    if isinstance(error, BrimfulError) and isinstance(part, UnreadText):  # the request's own fault
        return RefusedError(422, str(error))
    if is_out_of_memory(error):
        reason = "out of memory; send fewer or shorter texts"
    elif isinstance(error, BrimfulError):
        reason = str(error)
    else:  # the message may hold a text
        reason = f"{type(error).__name__} in the model"
    line = f"{part.request.model.name}: {reason}"
    say(f"serve: {line}")
    return RefusedError(500, line)


class Service:
    """The models, the queue and the engine that all requests share.

    Attributes:
        models: the models by name; empty until they are loaded.
    """

    def __init__(self, max_requests: int, deadline: float, report_batch: ReportBatch) -> None:
        self.models: dict[str, BatchModel] = {}
        self.queue = RequestQueue(max_requests, self._report_over)
        self.engine = BatchEngine(self.queue, report_batch)
        self._deadline = deadline  # seconds that a request may wait
        self._loop: asyncio.AbstractEventLoop | None = None

    def use(self, models: dict[str, BatchModel]) -> None:
        """Answer with these models from now on; accepted requests keep theirs."""
        self.queue.speed = min(model.speed for model in models.values())
        self.queue.max_tokens = int(self.queue.speed * self._deadline * QUEUE_SHARE)
        self.models = models
        self.engine.employ(max(model.workers for model in models.values()))

    @property
    def state(self) -> str:
        """ready, loading, draining, or the reason why the engine has stopped."""
        if self.engine.lost:
            return self.engine.lost
        if self.queue.closed:
            return "draining"
        return "ready" if self.models else "loading"

    def refuse_if_busy(self) -> None:
        """Refuse a request before its body is read, with 429 or 503."""
        self.queue.refuse_if_full()
        if not self.models:
            raise RefusedError(503, "the server is loading", 1, kind="loading")

    def find_model(self, name: str | None) -> BatchModel:
        """Return the model that a request names, or the only one; refuse other names."""
        if name is None and len(self.models) == 1:
            return next(iter(self.models.values()))
        served = ", ".join(self.models)
        if name is None:
            raise RefusedError(422, f"several models are served; name one as model: {served}")
        if name not in self.models:
            raise RefusedError(404, f"no model is called {name!r:.100}; served: {served}")
        return self.models[name]

    async def finish(self, request: QueuedRequest) -> Numbers:
        """Wait until a request is over, and raise the error that left it without results.

        Returns:
            the seconds that it was in the `queue`, and then to `compute`; empty if it has no texts.
        """
        if not request.texts:
            return {}
        self._loop = asyncio.get_running_loop()
        request.future, request.deadline = self._loop.create_future(), self.queue.clock() + self._deadline
        self.queue.admit(request)
        await request.future
        if request.error is not None:
            raise request.error
        assert request.began is not None
        return {"queue": request.began - request.arrived, "compute": self.queue.clock() - request.began}

    def _report_over(self, requests: list[QueuedRequest]) -> None:
        if requests and self._loop is not None:
            self._loop.call_soon_threadsafe(_wake, requests)


def _wake(requests: list[QueuedRequest]) -> None:
    for request in requests:
        if not request.future.done():
            request.future.set_result(None)
