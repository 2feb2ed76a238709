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
from brimful.serving.batch_model import BatchModel
from brimful.serving.queue import (
    QueuedRequest,
    QueuedText,
    QueuedWindow,
    RefusedError,
    RequestQueue,
    UnreadText,
)

QUEUED = 0.25
"""Part of the deadline in which the slowest model computes what is accepted: in time even where refusals, and
other processes, leave the engine a third of the speed that it was measured with."""
Part = UnreadText | QueuedWindow | QueuedText
"""Of a request."""


class BatchEngine:
    """The threads.

    Attributes:
        lost: why one of them has ended, which none should; empty while they run.
    """

    def __init__(self, queue: RequestQueue, computed: Callable[[BatchModel, int, float], None]) -> None:
        """
        Args:
            computed: takes the model of each batch, its tokens, and the seconds that it took.
        """
        self.queue, self.lost, self._computed, self._workers = queue, "", computed, 0
        self._start(self._tokenize)
        self.employ(1)

    def employ(self, workers: int) -> None:
        """Have at least `workers` threads that compute. Batches beside each other, each with its part of the
        cores, take less of them than one after the other with all, which wait for each other."""
        for _ in range(self._workers, workers):
            self._workers += 1
            self._start(self._compute)

    def call(self, function: Callable[[], Any]) -> Any:
        """What a function returns that a computing thread calls between two batches."""
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

    def _apart(
        self, work: Callable[[Any], None], parts: Sequence[Part], caught: type[BaseException] = Exception
    ) -> None:
        """Do something with parts of requests; if that fails, with each request's by themselves, so that none
        fails for another."""
        try:
            work(parts)
        except caught as error:
            requests = list(dict.fromkeys(part.request for part in parts))
            if len(requests) == 1:
                self.queue.fail(requests, _failure(parts[0], error))
                return
            for request in requests:
                self._apart(work, [part for part in parts if part.request is request], caught)

    def _tokenize(self) -> None:
        while (parts := self.queue.wait_for_texts()) is not None:
            alike = defaultdict(list)
            for part in parts:
                alike[part.request.model, part.request.overlap, part.second is None].append(part)
            for some in alike.values():
                self._apart(self._read, some, BaseException)  # as a panic of the tokenizer is

    def _read(self, parts: Sequence[UnreadText]) -> None:
        model, overlap = parts[0].request.model, parts[0].request.overlap
        second = [part.second for part in parts if part.second is not None] or None
        texts = model.read([part.text for part in parts], second, overlap)
        for part, text in zip(parts, texts, strict=True):
            text.request, text.place = part.request, part.place
            if part.request.reject and text.cut:
                which = f"text {part.place + 1}" if len(part.request.results) > 1 else "the text"
                most = f"more tokens than the {model.served.max_length:,} that {model.name} reads"
                self.queue.fail([part.request], RefusedError(422, f"{which} has {most}"))
        self.queue.put(texts)

    def _compute(self) -> None:
        while (batch := self.queue.wait_for_batch()) is not None:
            if isinstance(batch, list):
                model = batch[0].request.model
                self._apart(self._answer, batch)
                self.queue.computed(model)
                continue
            function, future = batch
            try:
                future.set_result(function())
            except BaseException as error:
                future.set_exception(error)

    def _answer(self, batch: list[QueuedWindow]) -> None:
        model, started = batch[0].request.model, time.monotonic()
        texts = self.queue.keep(batch, model.outputs(batch))
        if texts:
            self._apart(self._conclude, texts)
        self._computed(model, sum(window.length for window in batch), time.monotonic() - started)

    def _conclude(self, texts: list[QueuedText]) -> None:
        texts[0].request.model.answer(texts)
        self.queue.complete(texts)


def _failure(part: Part, error: BaseException) -> RefusedError:
    """The answer to a request that failed; a line says so of those in the model, without their texts."""
    if isinstance(error, BrimfulError) and isinstance(part, UnreadText):  # it is the request's own fault
        return RefusedError(422, str(error))
    name = part.request.model.name
    why = str(error) if isinstance(error, BrimfulError) else f"{type(error).__name__} in the model"
    why = "out of memory; send fewer or shorter texts" if is_out_of_memory(error) else why
    say(f"serve: {name}: {why}")
    return RefusedError(500, f"{name}: {why}")


class Service:
    """What all requests share.

    Attributes:
        models: by name; empty until they are loaded.
    """

    def __init__(
        self,
        most_requests: int,
        deadline: float,
        computed: Callable[[BatchModel, int, float], None],
    ) -> None:
        """
        Args:
            most_requests: that are accepted and not answered yet.
            deadline: seconds that a request may wait.
            computed: as of `BatchEngine`.
        """
        self.models: dict[str, BatchModel] = {}
        self.queue = RequestQueue(most_requests, self._over)
        self.engine = BatchEngine(self.queue, computed)
        self._deadline = deadline
        self._loop: asyncio.AbstractEventLoop | None = None

    def use(self, models: dict[str, BatchModel]) -> None:
        """Answer with these models from now on; requests that are accepted keep theirs."""
        self.queue.speed = min(model.speed for model in models.values())
        self.queue.most_tokens = int(self.queue.speed * self._deadline * QUEUED)
        self.models = models
        self.engine.employ(max(model.workers for model in models.values()))

    @property
    def state(self) -> str:
        """ready, loading, draining, or why the engine has stopped."""
        if self.engine.lost:
            return self.engine.lost
        return "draining" if self.queue.closed else "ready" if self.models else "loading"

    def refuse_if_busy(self) -> None:
        """Refuse a request before it is read.

        Raises:
            RefusedError: 429 or 503.
        """
        self.queue.refuse_if_full()
        if not self.models:
            raise RefusedError(503, "the server is loading", 1, kind="loading")

    def model(self, name: str | None) -> BatchModel:
        """The model that a request means.

        Raises:
            RefusedError: it is not served, or the request must say which.
        """
        if name is None and len(self.models) == 1:
            return next(iter(self.models.values()))
        known = ", ".join(self.models)
        if name is None:
            raise RefusedError(422, f"several models are served; name one as model: {known}")
        if name not in self.models:
            raise RefusedError(404, f"no model is called {name!r:.100}; served: {known}")
        return self.models[name]

    async def finish(self, request: QueuedRequest) -> dict[str, float]:
        """Wait until a request is over.

        Returns:
            the seconds that it was in the `queue`, and those since, to `compute`; empty of no texts.

        Raises:
            RefusedError, LeftError: why it has no results.
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

    def _over(self, requests: list[QueuedRequest]) -> None:
        if requests and self._loop is not None:
            self._loop.call_soon_threadsafe(_wake, requests)


def _wake(requests: list[QueuedRequest]) -> None:
    for request in requests:
        if not request.future.done():
            request.future.set_result(None)
