"""Models behind one queue, and the threads that serve it, for callers on an asyncio loop.

One thread tokenizes the next texts beside those that compute, another long ones.
"""

import asyncio
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice
from typing import Any

from brimful.base.console import say
from brimful.base.errors import BrimfulError, is_out_of_memory
from brimful.serving.batch_model import BatchModel
from brimful.serving.queue import (
    QueuedRequest,
    QueuedText,
    RefusedError,
    RequestQueue,
    TextsToRead,
    Windows,
)

QUEUED = 0.25
"""Part of the deadline in which the slowest model computes what is accepted: in time even where refusals, and
other processes, leave the engine a third of the speed that it was measured with."""
Part = TextsToRead | Windows | QueuedText
"""Of a request."""


class BatchEngine:
    """The threads.

    Attributes:
        lost: why one of them has ended, which none should; empty while they run.
    """

    def __init__(self, queue: RequestQueue, computed: Callable[[Sequence[Part], float | None], None]) -> None:
        """
        Args:
            computed: takes each batch, and the seconds that it took; None: it failed.
        """
        self.queue, self.lost, self._computed, self._workers = queue, "", computed, 0
        for long in (False, True):
            self._start(partial(self._tokenize, long))
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
            jobs, model = list(dict.fromkeys(part.job for part in parts)), parts[0].job.model
            is_theirs = isinstance(error, BrimfulError) and isinstance(parts[0], TextsToRead)
            if not is_theirs:
                self._computed(parts, None)
            if len(jobs) == 1:
                self.queue.fail(jobs, RefusedError(422, str(error)) if is_theirs else _failure(model, error))
                return
            for job in jobs:
                self._apart(work, [part for part in parts if part.job is job], caught)

    def _tokenize(self, long: bool) -> None:
        while (parts := self.queue.wait_for_texts(long=long)) is not None:
            alike = defaultdict(list)
            for part in parts:
                alike[part.job.model, part.job.overlap, part.second is None].append(part)
            for some in alike.values():
                self._apart(partial(self._read, long), some, BaseException)  # as a panic of the tokenizer is

    def _read(self, long: bool, parts: list[TextsToRead]) -> None:
        job, started = parts[0].job, time.monotonic()
        texts = [text for part in parts for text in part.texts]
        second = [text for part in parts for text in part.second or ()] or None
        readings = job.model.read(texts, second, job.overlap, long=long)
        seconds, rest = time.monotonic() - started, iter(readings)
        job.model.learn(readings)
        for part in parts:
            part.job.tokenizing += seconds
            mine = list(islice(rest, len(part.texts)))
            cut = (place for place, reading in enumerate(mine, part.first) if reading.cut)
            if part.job.reject and (place := next(cut, None)) is not None:
                which = f"text {place + 1}" if len(part.job.results) > 1 else "the text"
                most = f"more tokens than the {job.model.served.max_length:,} that {job.model.name} reads"
                self.queue.fail([part.job], RefusedError(422, f"{which} has {most}"))
            self.queue.put(part, mine)

    def _compute(self) -> None:
        while (batch := self.queue.wait_for_batch()) is not None:
            if callable(batch):
                batch()
            else:
                self._apart(self._answer, batch)
                self.queue.computed(batch[0].job.model)

    def _answer(self, batch: list[Windows]) -> None:
        model, started = batch[0].job.model, time.monotonic()
        outputs = model.outputs([(text.reading, first, end) for text, first, end in batch])
        texts = self.queue.keep(batch, outputs, time.monotonic() - started)
        if texts:
            self._apart(self._conclude, texts)
        seconds = time.monotonic() - started
        model.timed(sum(windows.length for windows in batch), seconds)
        self._computed(batch, seconds)

    def _conclude(self, texts: list[QueuedText]) -> None:
        given = [text.reading for text in texts], [text.outputs for text in texts]
        self.queue.complete(texts, texts[0].job.model.answers(*given))


def _failure(model: BatchModel, error: BaseException) -> RefusedError:
    """The answer to a request that failed in the model; a line says so, without its texts."""
    why = str(error) if isinstance(error, BrimfulError) else f"{type(error).__name__} in the model"
    why = "out of memory; send fewer or shorter texts" if is_out_of_memory(error) else why
    say(f"serve: {model.name}: {why}")
    return RefusedError(500, f"{model.name}: {why}")


class Service:
    """What all requests share.

    Attributes:
        models: by name; empty until they are loaded.
    """

    def __init__(
        self,
        most_requests: int,
        most_tokens: int | None,
        deadline: float,
        computed: Callable[[Sequence[Part], float | None], None],
    ) -> None:
        """
        Args:
            most_requests, most_tokens: that are accepted and not answered yet; None: as many tokens as the
                slowest model reads in `QUEUED` of the deadline.
            deadline: seconds that a request may wait.
            computed: as of `BatchEngine`.
        """
        self.models: dict[str, BatchModel] = {}
        self.queue = RequestQueue(most_requests, self._over)
        self.engine = BatchEngine(self.queue, computed)
        self._most_tokens, self._deadline = most_tokens, deadline
        self._loop: asyncio.AbstractEventLoop | None = None

    def use(self, models: dict[str, BatchModel]) -> None:
        """Answer with these models from now on; requests that are accepted keep theirs."""
        queue, most = self.queue, self._most_tokens
        queue.speed = min(model.speed for model in models.values())
        queue.most_tokens = int(queue.speed * self._deadline * QUEUED) if most is None else most
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
            raise RefusedError(503, "the server is loading", 1)

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

    async def finish(self, job: QueuedRequest) -> None:
        """Wait until a job is over.

        Raises:
            RefusedError, LeftError: why it has no results.
        """
        if job.texts:
            self._loop = asyncio.get_running_loop()
            job.future, job.deadline = self._loop.create_future(), self.queue.clock() + self._deadline
            self.queue.admit(job)
            await job.future
            job.queued = max(0.0, self.queue.clock() - job.arrived - job.tokenizing - job.computing)
            if job.error is not None:
                raise job.error

    def _over(self, jobs: list[QueuedRequest]) -> None:
        if jobs and self._loop is not None:
            self._loop.call_soon_threadsafe(_wake, jobs)


def _wake(jobs: list[QueuedRequest]) -> None:
    for job in jobs:
        if not job.future.done():
            job.future.set_result(None)
