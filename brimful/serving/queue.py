"""The queue in front of the engine: what is accepted, whose turn it is, and what a batch holds.

A request (`QueuedRequest`, here a job) arrives. Its texts are tokenized in slices and computed in batches,
which hold windows of one model's texts up to its token budget. A thread that is free takes what has the
earliest turn: nothing waits for a slice or a batch to fill. The turn of a job's first text is its arrival;
each later text or window has its turn `STRETCH` times as long after the one before as that takes to tokenize
or to compute. So short jobs pass long ones, which have a batch for each `STRETCH` of others at least, and all
of them while nobody else waits. A job is over once: answered, failed, late, or left by its client. What is
left of its work is not done.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import islice
from typing import Any, NamedTuple

AHEAD = 2
"""Batches for each that is computed at a time, which are tokenized before they are asked for."""
STRETCH = 4
"""Times slower than it could be that a job is computed where others wait."""
LONG = 8192
"""Characters of texts that are tokenized in one call; a longer text has its own, in another thread."""


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
        model: that answers it; `budget` is the most tokens of a batch of its, `workers` the most batches
            that are computed at the same time, and `pace` the tokens a second of all, lately.
        overlap: of windows; None: texts are cut, or refused if `reject`.
        tokens: expected until they are counted.
        deadline: by the queue's clock.
        has_left: whether its client has.
        expected: tokens of each text that is not tokenized yet.
        read: texts that are tokenized, or are now.
        turn: of the next that is not, by the queue's clock.
        waiting, left: texts of which windows wait for a batch, and that are not answered.
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
    expected: int = field(init=False)
    read: int = field(default=0, init=False)
    turn: float = field(default=0.0, init=False)
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
        self.expected = -(-self.tokens // max(1, len(self.texts)))
        self.tokens = self.expected * len(self.texts)

    def characters_of(self, place: int) -> int:
        """Those of a text or pair."""
        return len(self.texts[place]) + (0 if self.second is None else len(self.second[place]))


class TextsToRead(NamedTuple):
    """Texts of a job to tokenize together, from number `first`, whose turn is `turn`; out at `since`."""

    job: QueuedRequest
    first: int
    turn: float
    since: float
    texts: list[str]
    second: list[str] | None


@dataclass(eq=False, slots=True)
class QueuedText:
    """Text number `place` of a job, tokenized.

    Attributes:
        turn: of its next window.
        taken: windows that batches have.
        outputs: of each window; `missing` are not computed.
    """

    job: QueuedRequest
    place: int
    turn: float
    reading: Any
    taken: int = field(default=0, init=False)
    outputs: list[Any] = field(init=False)
    missing: int = field(init=False)

    def __post_init__(self) -> None:
        self.missing = len(self.reading.lengths)
        self.outputs = [None] * self.missing


class Windows(NamedTuple):
    """Those of a text, from `first` to before `end`, that are computed together."""

    text: QueuedText
    first: int
    end: int

    @property
    def job(self) -> QueuedRequest:
        """Whose text it is."""
        return self.text.job

    @property
    def length(self) -> int:
        """Their tokens."""
        return sum(self.text.reading.lengths[self.first : self.end])


class RequestQueue:
    """Jobs between the server's loop, the threads that tokenize and those that compute.

    Attributes:
        most_requests, most_tokens: that are accepted and not over, the tokens without those of the largest
            job, which holds up no others; `requests` and `tokens` are.
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
        self._to_compute = threading.Condition(self._lock)
        self._to_read = {long: threading.Condition(self._lock) for long in (False, True)}
        self._count = 0
        self._open: dict[int, QueuedRequest] = {}
        self._largest: QueuedRequest | None = None
        self._unread: dict[bool, list[tuple[float, int, QueuedRequest]]] = {False: [], True: []}
        self._ready: dict[Any, list[tuple[float, int, int, QueuedText]]] = {}
        self._ready_tokens = 0  # of the first batch that could have them of each text that no batch has
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
            seconds = max(1, min(60, round((self._tokens_beside + tokens) / self.speed)))
            raise RefusedError(429, f"the queue is full; wait {seconds} s", seconds)

    def admit(self, job: QueuedRequest) -> None:
        """Accept a job, or refuse it as `refuse_if_full`."""
        with self._lock:
            self.refuse_if_full(job.tokens)
            job.number, job.arrived = self._count, self.clock()
            job.turn = job.arrived
            self._count += 1
            self.requests += 1
            self._open[job.number] = job
            expected, job.tokens = job.tokens, 0
            self._count_more(job, expected)
            self._await_reading(job)
            self._wake_readers()

    def texts_to_read(self, *, long: bool = False) -> list[TextsToRead]:
        """The texts to tokenize next, the first first: about as many as make the batches that are wanted, and
        at most `LONG` characters; or one text that has more."""
        found, line = list[TextsToRead](), self._unread[long]
        tokens, most, characters = self._ready_tokens, 0, 0
        while line:
            job = line[0][-1]
            if self._dropped(job):
                heappop(line)
                continue
            first, turn = job.read, job.turn
            if not found:
                # An idle engine is not to wait for more.
                most = self._wanted(job) if tokens else job.model.budget
                tokens = min(tokens, most // 2)
            while job.read < len(job.texts):
                size = job.characters_of(job.read)
                fits = tokens + job.expected <= most and characters + size <= LONG
                if not fits and (found or job.read > first):
                    break
                tokens, characters, job.read = tokens + job.expected, characters + size, job.read + 1
            if job.read == first:
                break
            heappop(line)
            part = slice(first, job.read)
            second = job.second and job.second[part]
            found.append(TextsToRead(job, first, turn, self.clock(), job.texts[part], second))
        return found

    def put(self, part: TextsToRead, readings: Sequence[Any]) -> None:
        """Texts that are tokenized, a reading each."""
        job = part.job
        with self._lock:
            took = self.clock() - part.since
            turn = max(part.turn, self.clock())  # while it was tokenized, it kept no batch waiting
            for place, reading in enumerate(readings, part.first):
                if not job.is_over:
                    text, tokens = QueuedText(job, place, turn, reading), sum(reading.lengths)
                    turn += float(STRETCH * tokens / job.model.pace)
                    self._count_more(job, tokens - job.expected)
                    self._ready_tokens += self._first_batch(text)
                    self._await_batch(text)
            if not job.is_over and job.read < len(job.texts):
                took = max(took, job.expected * len(readings) / job.model.pace)
                job.turn = self._turn_after(part.turn, took)
                self._await_reading(job)
                self._wake_readers()
            self._to_compute.notify_all()

    def batch(self) -> list[Windows]:
        """The windows to compute next: of one model, all of single texts or all of pairs, within its budget;
        or one longer window alone. After it, `computed` has to be told."""
        found: list[Windows] = []
        while not found:
            kinds = [kind for kind in self._ready if self._running.get(kind[0], 0) < kind[0].workers]
            if not kinds:
                break
            kind = min(kinds, key=lambda one: self._ready[one][0])
            line, room = self._ready[kind], kind[0].budget
            while line and (not found or line[0][-1].reading.lengths[line[0][-1].taken] <= room):
                text = heappop(line)[-1]
                if not text.taken:
                    self._ready_tokens -= self._first_batch(text)
                if not self._dropped(text.job):
                    found.append(self._take(text, room))
                    room -= found[-1].length
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

    def keep(self, batch: Sequence[Windows], outputs: Sequence[Any], seconds: float) -> list[QueuedText]:
        """What was computed for windows, and how long that took.

        Args:
            outputs: of all windows, in their order.

        Returns:
            the texts that have all their outputs now, of jobs that are not over.
        """
        given = iter(outputs)
        with self._lock:
            began = self.clock() - seconds
            for text, first, end in batch:
                text.job.began = min(text.job.began, began)
                text.outputs[first:end] = islice(given, end - first)
                text.missing -= end - first
            return [each.text for each in batch if not each.text.missing and not each.job.is_over]

    def complete(self, texts: Sequence[QueuedText], results: Sequence[Any]) -> None:
        """The answers to texts."""
        with self._lock:
            for text, result in zip(texts, results, strict=True):
                text.job.results[text.place] = result
                text.job.left -= 1
            over, now = [], self.clock()
            for job in dict.fromkeys(text.job for text in texts):
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

    def wait_for_texts(self, *, long: bool = False) -> list[TextsToRead] | None:
        """`texts_to_read`, once there are some and are wanted; None after `stop`."""
        with self._lock:
            while self._stopped is None:
                if self._unread[long] and (long or self._wants_texts()):
                    found = self.texts_to_read(long=long)
                    self._wake_readers()  # the next text can be for the other thread
                    if found:
                        return found
                else:
                    self._to_read[long].wait()
        return None

    def wait_for_batch(self) -> list[Windows] | Callable[[], None] | None:
        """`batch`, or a function to call, once there is one; None after `stop`."""
        with self._lock:
            while self._stopped is None:
                if self._calls:
                    return self._calls.popleft()[0]
                found = self.batch()
                self._wake_readers()  # perhaps what was ready is of jobs that are over
                if found:
                    return found
                self._to_compute.wait()
        return None

    def stop(self, error: Exception) -> None:
        """Accept and hand out nothing more, and end what is left with an error."""
        with self._lock:
            self.closed, self._stopped = True, error
            self._end_calls(error)
            for readers in self._to_read.values():
                readers.notify()
            self._to_compute.notify_all()
        self.fail(list(self._open.values()), error)

    def _end_calls(self, error: Exception) -> None:
        while self._calls:
            self._calls.popleft()[1].set_exception(error)

    @property
    def _tokens_beside(self) -> int:
        """Those of all jobs but the largest."""
        return self.tokens - (0 if self._largest is None else self._largest.tokens)

    def _has_no_room(self, tokens: int) -> bool:
        many = self._tokens_beside + tokens > self.most_tokens and self.requests > 0
        return many or self.requests >= self.most_requests

    def _count_more(self, job: QueuedRequest, tokens: int) -> None:
        """A job has so many tokens more than was known."""
        self.tokens += tokens
        job.tokens += tokens
        if self._largest is None or job.tokens > self._largest.tokens:
            self._largest = job

    def _await_reading(self, job: QueuedRequest) -> None:
        heappush(self._unread[job.characters_of(job.read) > LONG], (job.turn, job.number, job))

    def _wake_readers(self) -> None:
        """Wake the threads that have texts to tokenize; for nothing, one would only hold up the others."""
        for long, line in self._unread.items():
            if line:
                self._to_read[long].notify()

    def _await_batch(self, text: QueuedText) -> None:
        line = self._ready.setdefault((text.job.model, text.job.second is None), [])
        heappush(line, (text.turn, text.job.number, text.place, text))

    def _turn_after(self, turn: float, seconds: float) -> float:
        """The turn of what comes after work of so many seconds; what came before its turn costs a job nothing
        later."""
        return min(turn, self.clock()) + STRETCH * seconds

    def _take(self, text: QueuedText, room: int) -> Windows:
        """As many of a text's windows as there is room for, but at least one; the others wait again."""
        first, lengths = text.taken, text.reading.lengths
        tokens, text.taken = lengths[first], first + 1
        while text.taken < len(lengths) and tokens + lengths[text.taken] <= room:
            tokens += lengths[text.taken]
            text.taken += 1
        if text.taken < len(lengths):
            text.turn = self._turn_after(text.turn, tokens / float(text.job.model.pace))
            self._await_batch(text)
        else:
            text.job.waiting -= 1
        return Windows(text, first, text.taken)

    def _first_batch(self, text: QueuedText) -> int:
        """Tokens of a text that no batch has, as far as one could have them."""
        return int(min(sum(text.reading.lengths), text.job.model.budget))

    def _wants_texts(self) -> bool:
        """Whether half of what was tokenized ahead is used, so that many are read at once; or the next text
        has its turn before all that is ready."""
        turn, _, job = self._unread[False][0]
        return 2 * self._ready_tokens < self._wanted(job) or all(
            turn < line[0][0] for line in self._ready.values()
        )

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
        job.texts, job.second = [], None  # its place in the line stays, and its texts would
        self.requests -= 1
        self.tokens -= job.tokens
        del self._open[job.number]
        if job is self._largest:
            self._largest = max(self._open.values(), key=lambda each: each.tokens, default=None)
        return job
