"""The queue in front of the engine: what is accepted, whose turn it is, and what a batch holds.

A request (`QueuedRequest`, here a job) arrives, is tokenized, and its texts (`QueuedText`, here rows) become
ready. Whenever a thread that computes is free, it takes the rows that came first, of one model, up to the
model's token budget: nothing waits for a batch to fill. A job is over once: answered, failed, late, or left
by its client.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, NamedTuple

AHEAD = 2
"""Batches for each that is computed at a time, which are tokenized before they are asked for."""


class RefusedError(Exception):
    """Why a request gets no answer, in one line.

    Attributes:
        status: as of HTTP.
        wait: seconds after which it may come again, if it may.
    """

    def __init__(self, status: int, message: str, wait: int | None = None) -> None:
        super().__init__(" ".join(message.split()))
        self.status, self.wait = status, wait


class LeftError(Exception):
    """The client has left."""


@dataclass(eq=False, slots=True)
class QueuedRequest:
    """A request on its way.

    Attributes:
        model: that answers it; `budget` is the most tokens of a batch of its, and `workers` the most batches
            that are computed at the same time.
        overlap: of windows; None: texts are cut, or refused if `reject`.
        tokens: expected until they are counted.
        deadline: by the queue's clock.
        has_left: whether its client has.
        taken: whether it is being tokenized, or has been.
        waiting, left: rows that no batch has taken, and that are not computed.
        results: of each text, once it is over without an error.
        queued, tokenizing: seconds; `computing` those since its first batch `began`.
    """

    model: Any
    texts: list[str]
    second: list[str] | None = None
    overlap: int | None = field(default=None, kw_only=True)
    reject: bool = field(default=False, kw_only=True)
    tokens: int = field(default=0, kw_only=True)
    deadline: float = field(default=float("inf"), kw_only=True)
    has_left: Callable[[], bool] = field(default=lambda: False, kw_only=True)
    number: int = field(default=-1, init=False)
    left: int = field(init=False)
    waiting: int = field(init=False)
    is_over: bool = field(default=False, init=False)
    taken: bool = field(default=False, init=False)
    results: list[Any] = field(init=False)
    error: Exception | None = field(default=None, init=False)
    arrived: float = field(default=0.0, init=False)
    began: float = field(default=float("inf"), init=False)
    queued: float = field(default=0.0, init=False)
    tokenizing: float = field(default=0.0, init=False)
    computing: float = field(default=0.0, init=False)
    future: Any = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.left = self.waiting = len(self.texts)
        self.results = [None] * len(self.texts)


class QueuedText(NamedTuple):
    """Text number `place` of a job, tokenized."""

    job: QueuedRequest
    place: int
    reading: Any

    @property
    def length(self) -> int:
        """Its tokens."""
        return int(self.reading.length)


class Queue:
    """Jobs between the server's loop, the thread that tokenizes and those that compute.

    Attributes:
        most_requests, most_tokens: that are accepted and not over; `requests` and `tokens` are.
        speed: tokens a second of the slowest model.
        closed: whether no job is accepted any more.
    """

    def __init__(
        self,
        most_requests: int,
        over: Callable[[list[QueuedRequest]], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """
        Args:
            over: takes the jobs that are over, in any thread.
        """
        self.most_requests, self.most_tokens, self.speed = most_requests, 1 << 62, 1e9
        self.requests = self.tokens = 0
        self.closed = False
        self._stopped: Exception | None = None
        self.clock, self._over = clock, over
        self._lock = threading.RLock()
        self._to_read, self._to_compute = threading.Condition(self._lock), threading.Condition(self._lock)
        self._count = 0
        self._open: dict[int, QueuedRequest] = {}
        self._arrived: deque[QueuedRequest] = deque()
        self._ready: dict[Any, deque[QueuedText]] = {}
        self._ready_tokens = 0
        self._running: dict[Any, int] = {}
        self._calls: deque[tuple[Callable[[], None], Future[Any]]] = deque()

    @property
    def is_full(self) -> bool:
        """Whether no job is accepted, however small."""
        return self._has_no_room(0)

    def refuse_if_full(self, tokens: int = 0) -> None:
        """Refuse a job of so many tokens if there is no room; the only job always has it.

        Raises:
            RefusedError: 503 if the queue is closed, 429 if it is full.
        """
        if self.closed:
            raise RefusedError(503, "the server is draining; ask another one")
        if self._has_no_room(tokens):
            seconds = max(1, min(60, round(self.tokens / self.speed)))
            raise RefusedError(429, f"the queue is full; wait {seconds} s", seconds)

    def admit(self, job: QueuedRequest) -> None:
        """Accept a job, or refuse it as `refuse_if_full`."""
        with self._lock:
            self.refuse_if_full(job.tokens)
            job.number, job.arrived = self._count, self.clock()
            self._count += 1
            self.requests += 1
            self.tokens += job.tokens
            self._open[job.number] = job
            self._arrived.append(job)
            self._to_read.notify()

    def jobs(self) -> list[QueuedRequest]:
        """The jobs to tokenize next, the first first: about as many as make the batches that are wanted."""
        found: list[QueuedRequest] = []
        tokens = most = ready = self._ready_tokens
        while self._arrived and (not found or tokens + self._arrived[0].tokens <= most):
            job = self._arrived.popleft()
            most = self._wanted(job) if ready else job.model.budget  # an idle engine is not to wait for more
            if not self._dropped(job):
                job.taken = True
                found.append(job)
                tokens += job.tokens
        return found

    def put(self, rows: list[QueuedText]) -> None:
        """Rows that are tokenized: all of those of their jobs."""
        with self._lock:
            rows = sorted(
                (row for row in rows if not row.job.is_over), key=lambda row: (row.job.number, row.place)
            )
            counts = dict[QueuedRequest, int]()
            for row in rows:
                counts[row.job] = counts.get(row.job, 0) + row.length
                self._ready.setdefault((row.job.model, row.job.second is None), deque()).append(row)
            for job, tokens in counts.items():
                self.tokens += tokens - job.tokens
                self._ready_tokens += tokens
                job.tokens = tokens
            self._to_compute.notify_all()

    def batch(self) -> list[QueuedText]:
        """The rows to compute next: of one model, all single texts or all pairs, within its budget; or one
        longer text alone. After it, `computed` has to be told."""
        found: list[QueuedText] = []
        while not found:
            kinds = [kind for kind in self._ready if self._running.get(kind[0], 0) < kind[0].workers]
            if not kinds:
                break
            kind = min(kinds, key=lambda one: self._ready[one][0].job.number)
            line, tokens = self._ready[kind], 0
            while line and (not found or tokens + line[0].length <= kind[0].budget):
                row = line.popleft()
                self._ready_tokens -= row.length
                if not self._dropped(row.job):
                    row.job.waiting -= 1
                    found.append(row)
                    tokens += row.length
            if not line:
                del self._ready[kind]
        if found:
            model = found[0].job.model
            self._running[model] = self._running.get(model, 0) + 1
        return found

    def computed(self, model: Any) -> None:
        """A batch of a model is over, whatever became of it."""
        with self._lock:
            self._running[model] -= 1
            if not self._running[model]:  # a reload replaces models, and keys keep the old ones in memory
                del self._running[model]
            self._to_compute.notify()

    def complete(self, rows: Sequence[QueuedText], results: Sequence[Any], seconds: float) -> None:
        """What was computed for a batch, and how long that took."""
        with self._lock:
            for row, result in zip(rows, results, strict=True):
                row.job.results[row.place] = result
                row.job.left -= 1
            over, now = [], self.clock()
            for job in dict.fromkeys(row.job for row in rows):
                job.began = min(job.began, now - seconds)
                job.computing = now - job.began
                if not job.left and not job.is_over:
                    over.append(self._end(job, None))
        self._over(over)

    def fail(self, jobs: Sequence[QueuedRequest], error: Exception) -> None:
        """End jobs that cannot be answered."""
        with self._lock:
            over = [self._end(job, error) for job in jobs if not job.is_over]
        self._over(over)

    def expire(self) -> None:
        """End the jobs that wait beyond their deadline, or whose client has left."""
        now = self.clock()
        with self._lock:
            jobs = list(self._open.values())
        self.fail([job for job in jobs if job.has_left()], LeftError())
        late = [job for job in jobs if job.waiting and job.deadline <= now]
        self.fail(late, RefusedError(504, "the deadline passed while the request waited"))

    def call(self, function: Callable[[], Any]) -> Future[Any]:
        """Have a computing thread call a function between two batches.

        Returns:
            a future of its result, or of the error that `stop` was given.
        """
        future: Future[Any] = Future()

        def run() -> None:
            try:
                result = function()
            except BaseException as error:
                future.set_exception(error)
                if not isinstance(error, Exception):  # which ends the thread too
                    raise
            else:
                future.set_result(result)

        with self._lock:
            self._calls.append((run, future))
            if self._stopped is not None:
                self._end_calls(self._stopped)
            self._to_compute.notify()
        return future

    def wait_for_jobs(self) -> list[QueuedRequest] | None:
        """`jobs`, once there are some and half of what was read ahead is used, so that many are read at once;
        None after `stop`."""
        with self._lock:
            while self._stopped is None:
                if self._arrived and 2 * self._ready_tokens < self._wanted(self._arrived[0]):
                    return self.jobs()
                self._to_read.wait()
        return None

    def wait_for_batch(self) -> list[QueuedText] | Callable[[], None] | None:
        """`batch`, or a function to call, once there is one; None after `stop`."""
        with self._lock:
            while self._stopped is None:
                if self._calls:
                    return self._calls.popleft()[0]
                ready = self._ready_tokens
                found = self.batch()
                if self._ready_tokens < ready:  # perhaps of jobs that are over, and of no batch
                    self._to_read.notify()
                if found:
                    return found
                self._to_compute.wait()
        return None

    def stop(self, error: Exception) -> None:
        """Accept and hand out nothing more, and end what is left with an error."""
        with self._lock:
            self.closed, self._stopped = True, error
            self._end_calls(error)
            self._to_read.notify_all()
            self._to_compute.notify_all()
        self.fail(list(self._open.values()), error)

    def _end_calls(self, error: Exception) -> None:
        while self._calls:
            self._calls.popleft()[1].set_exception(error)

    def _has_no_room(self, tokens: int) -> bool:
        many = self.tokens + tokens > self.most_tokens and self.requests > 0
        return many or self.requests >= self.most_requests

    def _wanted(self, job: QueuedRequest) -> int:
        """Tokens of its model to have ready."""
        return int(AHEAD * job.model.workers * job.model.budget)

    def _dropped(self, job: QueuedRequest) -> bool:
        """Whether a job is over, perhaps just now, since its client has left."""
        if not job.is_over and job.has_left():
            self._over([self._end(job, LeftError())])
        return job.is_over

    def _end(self, job: QueuedRequest, error: Exception | None) -> QueuedRequest:
        job.is_over, job.error = True, error
        if not job.taken:  # its place in the line stays, and its texts would
            job.texts, job.second = [], None
        self.requests -= 1
        self.tokens -= job.tokens
        del self._open[job.number]
        return job
