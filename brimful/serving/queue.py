"""The queue in front of the engine: what is accepted, whose turn it is, and what a batch holds.

A request is a `Job`, each of its texts a `Row`. A job arrives, is tokenized, and its rows become ready.
Whenever the engine is free, it takes the ready rows that came first, of one model, up to the model's token
budget: nothing waits for a batch to fill. Every job is over once: answered, failed, past its deadline, or left
by its client.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from brimful.serving.bodies import RefusedError

AHEAD = 2
"""Batches that are tokenized before the engine asks for them."""


class Budgeted(Protocol):
    """A model, as the queue sees it: `budget` is the most tokens of a batch."""

    budget: int


class Job:
    """A request on its way.

    Attributes:
        model: that answers it.
        texts, second: of the request.
        overlap: of windows; None: texts are cut, or refused if `reject`.
        tokens: expected until they are counted.
        deadline: by the queue's clock; it is refused if rows still wait then.
        is_gone: whether its client has left.
        results: of each text, once it is over without an error.
        error: why it has none.
        tokenizing, computing: seconds.
    """

    __slots__ = (
        *("model", "texts", "second", "overlap", "reject", "tokens", "deadline", "is_gone", "number", "left"),
        *("waiting", "is_over", "results", "error", "arrived", "tokenizing", "computing", "future"),
    )

    def __init__(
        self,
        model: Any,
        texts: list[str],
        second: list[str] | None = None,
        *,
        overlap: int | None = None,
        reject: bool = False,
        tokens: int = 0,
        deadline: float = float("inf"),
        is_gone: Callable[[], bool] = lambda: False,
    ) -> None:
        self.model, self.texts, self.second = model, texts, second
        self.overlap, self.reject, self.tokens = overlap, reject, tokens
        self.deadline, self.is_gone = deadline, is_gone
        self.number = -1
        self.left = self.waiting = len(texts)
        self.is_over = False
        self.results: list[Any] = [None] * len(texts)
        self.error: Exception | None = None
        self.arrived = self.tokenizing = self.computing = 0.0
        self.future: Any = None


class Row:
    """A text that is tokenized.

    Attributes:
        index: its place in its job.
        tokens, segments, characters: of each of its windows, as in `data.examples.Examples`.
        length: all of its tokens.
        cut: where reading stopped in the text and in the second; None where nothing was cut.
    """

    __slots__ = ("characters", "cut", "index", "job", "length", "segments", "tokens")

    def __init__(
        self,
        job: Job,
        index: int,
        tokens: Sequence[np.ndarray],
        segments: Sequence[np.ndarray],
        characters: Sequence[np.ndarray] | None = None,
        cut: tuple[int | None, int | None] = (None, None),
    ) -> None:
        self.job, self.index, self.tokens, self.segments = job, index, tokens, segments
        self.characters, self.cut = characters, cut
        self.length = sum(map(len, tokens))


class GoneError(Exception):
    """The client has left."""


class Queue:
    """Jobs between the server's loop, the thread that tokenizes and the one that computes.

    Attributes:
        most_requests, most_tokens: that are accepted and not over.
        requests, tokens: that are.
        speed: tokens a second of the slowest model, for Retry-After.
    """

    def __init__(
        self,
        most_requests: int,
        over: Callable[[list[Job]], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """
        Args:
            over: is called with the jobs that are over, from any thread.
        """
        self.most_requests, self.most_tokens, self.speed = most_requests, 1 << 62, 1e9
        self.requests = self.tokens = 0
        self.closed = False
        self._over, self.clock = over, clock
        self._changed = threading.Condition()
        self._count = 0
        self._open: dict[int, Job] = {}
        self._arrived: deque[Job] = deque()
        self._ready: dict[Any, deque[Row]] = {}
        self._ready_tokens = 0
        self._calls: deque[Callable[[], None]] = deque()
        self._stopped = False

    @property
    def is_full(self) -> bool:
        """Whether no further job is accepted."""
        return self.requests >= self.most_requests or self.tokens >= self.most_tokens

    def full(self) -> RefusedError:
        """The refusal of a job that finds the queue full."""
        seconds = max(1, min(60, round(self.tokens / self.speed)))
        headers = ((b"retry-after", b"%d" % seconds),)
        return RefusedError(429, f"the queue is full; try again in {seconds} s", headers)

    def admit(self, job: Job) -> None:
        """Accept a job.

        Raises:
            RefusedError: 429 if the queue is full, 503 if it is closed.
        """
        with self._changed:
            if self.closed:
                raise RefusedError(503, "the server is draining; send the request to another one")
            if self.is_full or (self.requests and self.tokens + job.tokens > self.most_tokens):
                raise self.full()
            job.number, job.arrived = self._count, self.clock()
            self._count += 1
            self.requests += 1
            self.tokens += job.tokens
            self._open[job.number] = job
            self._arrived.append(job)
            self._changed.notify_all()

    def jobs(self) -> list[Job]:
        """The jobs to tokenize next, the first first; as many as make a batch, if there are so many."""
        found: list[Job] = []
        tokens = 0
        while self._arrived and (not found or tokens + self._arrived[0].tokens <= found[0].model.budget):
            job = self._arrived.popleft()
            if not self._dropped(job):
                found.append(job)
                tokens += job.tokens
        return found

    def put(self, rows: list[Row]) -> None:
        """Rows that are tokenized: all of those of their jobs."""
        with self._changed:
            rows.sort(key=lambda row: (row.job.number, row.index))
            for row in rows:
                if row.index == 0 and not row.job.is_over:
                    self.tokens -= row.job.tokens
                    row.job.tokens = 0
            for row in rows:
                if not row.job.is_over:
                    row.job.tokens += row.length
                    self.tokens += row.length
                    self._ready.setdefault(row.job.model, deque()).append(row)
                    self._ready_tokens += row.length
            self._changed.notify_all()

    def batch(self) -> list[Row]:
        """The rows to compute next: of one model, within its budget; of a longer text, that one alone."""
        while self._ready:
            model = min(self._ready, key=lambda one: self._ready[one][0].job.number)
            line = self._ready[model]
            found: list[Row] = []
            tokens = 0
            while line and (not found or tokens + line[0].length <= model.budget):
                row = line.popleft()
                self._ready_tokens -= row.length
                if not self._dropped(row.job):
                    row.job.waiting -= 1
                    found.append(row)
                    tokens += row.length
            if not line:
                del self._ready[model]
            if found:
                return found
        return []

    def complete(self, rows: list[Row], results: Sequence[Any], seconds: float) -> None:
        """What was computed for a batch, and how long that took."""
        over = []
        with self._changed:
            for job in {id(row.job): row.job for row in rows}.values():
                job.computing += seconds
            for row, result in zip(rows, results, strict=True):
                job = row.job
                job.results[row.index] = result
                job.left -= 1
                if not job.left and not job.is_over:
                    over.append(self._end(job, None))
        self._over(over)

    def fail(self, jobs: Sequence[Job], error: Exception) -> None:
        """End jobs that cannot be answered."""
        with self._changed:
            over = [self._end(job, error) for job in jobs if not job.is_over]
        self._over(over)

    def expire(self) -> None:
        """End the jobs whose deadline has passed while rows of theirs wait, or whose client has left."""
        with self._changed:
            now, over = self.clock(), []
            for job in list(self._open.values()):
                if job.waiting and job.deadline <= now:
                    over.append(
                        self._end(job, RefusedError(504, "the deadline passed while the request waited"))
                    )
                elif job.is_gone():
                    over.append(self._end(job, GoneError()))
        self._over(over)

    def call(self, function: Callable[[], None]) -> None:
        """Let the thread that computes call a function between two batches."""
        with self._changed:
            self._calls.append(function)
            self._changed.notify_all()

    def wait_for_jobs(self) -> list[Job] | None:
        """`jobs`, as soon as there are some and the engine needs them; None once the queue has stopped."""
        with self._changed:
            while not self._stopped:
                if self._arrived and self._ready_tokens < AHEAD * self._arrived[0].model.budget:
                    return self.jobs()
                self._changed.wait()
        return None

    def wait_for_batch(self) -> list[Row] | Callable[[], None] | None:
        """`batch`, or a function to call, as soon as there is one; None once the queue has stopped."""
        with self._changed:
            while not self._stopped:
                if self._calls:
                    return self._calls.popleft()
                if found := self.batch():
                    self._changed.notify_all()
                    return found
                self._changed.wait()
        return None

    def stop(self, error: Exception) -> None:
        """Accept and hand out nothing more; end what is left with an error."""
        with self._changed:
            self.closed = self._stopped = True
            over = [self._end(job, error) for job in list(self._open.values())]
            self._changed.notify_all()
        self._over(over)

    def _dropped(self, job: Job) -> bool:
        """Whether a job is over, perhaps just now, since its client has left."""
        if not job.is_over and job.is_gone():
            self._over([self._end(job, GoneError())])
        return job.is_over

    def _end(self, job: Job, error: Exception | None) -> Job:
        job.is_over, job.error = True, error
        self.requests -= 1
        self.tokens -= job.tokens
        del self._open[job.number]
        return job
