"""The queue in front of the engine: which requests are accepted, whose turn it is, and what a batch holds.

A request (`QueuedRequest`) arrives. Its texts are tokenized in slices, which all requests get in turn, and
computed in batches. A batch holds windows of one model's texts up to its token budget. A thread that is free
takes what has the earliest turn: nothing waits for a slice or a batch to fill.

Turns count the work that was handed out before, in seconds of the model's speed. The first turn of a request
is its arrival. After each window the next turn is later by `STRETCH` times the seconds that the window takes.
So short requests pass long ones; a long one has a window for each `STRETCH` of others at least, and all of
them while nobody else waits. A request ends once: answered, failed, late, or left by its client. The rest of
its work is not done.
"""

import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from heapq import heappop, heappush, heapreplace
from typing import Any, NamedTuple

from numpy import ndarray

STRETCH = 4
"""The largest factor by which a request may be slower than alone, while others wait."""
SLICE_CHARACTERS = 8192
"""The most characters of texts that are tokenized in one call; a longer text has its own call."""


class RefusedError(Exception):
    """The reason in one line why a request gets no answer.

    Attributes:
        status: the HTTP status.
        wait: seconds after which the request may come again, if it may.
        kind: the type of the error; if empty, the status decides it.
    """

    def __init__(self, status: int, message: str, wait: int | None = None, *, kind: str = "") -> None:
        super().__init__(" ".join(message.split()))
        self.status, self.wait, self.kind = status, wait, kind


class LeftError(Exception):
    """The client has left."""


@dataclass(eq=False)
class QueuedRequest:
    """A request on its way.

    Attributes:
        model: the model that answers. Its `budget` is the most tokens of a batch, `workers` the most batches
            that are computed at the same time, and `speed` the tokens a second of all workers.
        overlap: tokens that windows share; None: long texts are cut, or refused if `reject`.
        tokens: tokens of all texts; a text has `estimate` tokens until it is tokenized.
        deadline: the time after which the request is late, by the queue's clock.
        has_left: tells whether its client has left.
        estimate: the estimated tokens of one text.
        next_text: the number of the next text to tokenize.
        ready: tokenized texts that wait for a batch.
        waiting: the number of texts with windows that no batch has taken yet.
        unanswered: the number of texts without an answer.
        turn: the turn of the next window, in seconds of the queue's work.
        results: the answered texts in their places; None in the others.
        arrived, began: the times of arrival and of the first window in a batch, by the queue's clock.
    """

    model: Any
    texts: list[str]
    second: list[str] | None = None
    overlap: int | None = None
    reject: bool = False
    tokens: int = 0
    deadline: float = float("inf")
    has_left: Callable[[], bool] = bool  # which is False
    number: int = -1
    next_text: int = 0
    turn: float = 0.0
    arrived: float = 0.0
    began: float | None = None
    is_over: bool = False
    error: Exception | None = None
    future: Any = None

    def __post_init__(self) -> None:
        count = len(self.texts)
        self.estimate = -(-self.tokens // max(1, count))  # rounded up
        self.tokens = self.estimate * count
        self.ready = deque[QueuedText]()
        self.unanswered = self.waiting = count
        self.results: list[Any] = [None] * count


class UnreadText(NamedTuple):
    """Text number `place` of a request, or pair, to tokenize."""

    request: QueuedRequest
    place: int
    text: str
    second: str | None


@dataclass(eq=False)
class QueuedText:
    """A text or pair that is tokenized, and its answer.

    Attributes:
        tokens, segments, characters: arrays of each of its windows, as in `data.examples.Examples`.
        lengths: tokens of each window.
        overlap: tokens that neighbouring windows share.
        cut: `truncated_at`, and of the second text `truncated_at_b`: where reading stopped, in code points,
            or where it began if the model cuts on the left; empty if the whole text was read.
        request, place: the request, until the text is answered, and the text's number in it.
        next_window: the number of the next window that a batch takes.
        outputs: the model's outputs of each window, of which `missing` are not computed yet.
        value: the row of `predict`, or the vector of an encoder, float32 (width,).
        scores: float32 (labels,), a number for each of the model's `labels`, if it has any.
    """

    text: str
    second: str | None
    tokens: list[ndarray]
    segments: list[ndarray]
    characters: list[ndarray]
    overlap: int | None = None
    cut: dict[str, int] = field(default_factory=dict)
    request: Any = field(default=None, repr=False)
    place: int = 0
    next_window: int = 0
    value: Any = None
    scores: ndarray | None = None

    def __post_init__(self) -> None:
        self.lengths = [len(window) for window in self.tokens]
        self.missing = len(self.lengths)
        self.outputs: list[Any] = [None] * self.missing


class QueuedWindow(NamedTuple):
    """Window number `place` of a text."""

    text: QueuedText
    place: int

    @property
    def request(self) -> Any:
        """The request that the text belongs to."""
        return self.text.request

    @property
    def length(self) -> int:
        """The number of tokens."""
        return self.text.lengths[self.place]


QueuedCall = tuple[Callable[[], Any], Future[Any]]
"""A function that a computing thread calls, and the future of its result."""
Line = list[tuple[float, int, QueuedRequest]]
"""A heap of requests that wait for a batch, by turn and number."""


class RequestQueue:
    """Requests between the server's loop, the threads that tokenize and those that compute.

    Attributes:
        max_requests: the most requests that are accepted and not over.
        max_tokens: the most tokens of these requests, without the largest one.
        speed: tokens a second of the slowest model.
        closed: whether no request is accepted any more.
    """

    def __init__(
        self,
        max_requests: int,
        report_over: Callable[[list[QueuedRequest]], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.max_requests, self.max_tokens, self.speed = max_requests, 1 << 62, 1e9
        self.closed = False
        self.clock = clock
        self._report_over = report_over  # called with requests that are over, in any thread
        self._stopped: Exception | None = None
        self._work = 0.0  # seconds of all windows that were handed out to compute
        self._lock = threading.RLock()
        self._to_compute = threading.Condition(self._lock)
        self._to_read = threading.Condition(self._lock)
        self._count = 0
        self._open: dict[int, QueuedRequest] = {}
        self._unread = deque[QueuedRequest]()
        # By model, and by whether texts are single: a batch mixes neither.
        self._ready: dict[tuple[Any, bool], Line] = {}
        self._running = Counter[Any]()
        self._calls: deque[QueuedCall] = deque()

    @property
    def requests(self) -> int:
        """The number of requests that are accepted and not over."""
        return len(self._open)

    @property
    def tokens(self) -> int:
        """The tokens of these requests."""
        with self._lock:
            return sum(request.tokens for request in self._open.values())

    def refuse_if_full(self, tokens: int = 0) -> None:
        """Refuse a request of so many tokens if the queue is full. If no other request is open, it never is.

        Raises:
            RefusedError: 503 if the queue is closed, 429 if it is full.
        """
        if self.closed:
            raise RefusedError(503, "the server is draining; ask another one")
        with self._lock:
            sizes = [request.tokens for request in self._open.values()]
        if not sizes:
            return
        total = sum(sizes) - max(sizes) + tokens
        if len(sizes) >= self.max_requests or total > self.max_tokens:
            seconds = max(1, min(60, round(total / self.speed)))
            raise RefusedError(429, f"the queue is full; wait {seconds} s", seconds)

    def admit(self, request: QueuedRequest) -> None:
        """Accept a request, or refuse it as `refuse_if_full` does."""
        with self._lock:
            self.refuse_if_full(request.tokens)
            request.number, request.arrived, request.turn = self._count, self.clock(), self._work
            self._count += 1
            self._open[request.number] = request
            self._unread.append(request)
            self._to_read.notify()

    def take_texts(self) -> list[UnreadText]:
        """Return the texts to tokenize next, of at most `SLICE_CHARACTERS`, or one that is longer."""
        texts, characters = list[UnreadText](), 0
        line = self._unread
        while line:
            request = line[0]
            if request.is_over:
                line.popleft()
                continue
            place = request.next_text
            second = None if request.second is None else request.second[place]
            text = UnreadText(request, place, request.texts[place], second)
            characters += len(text.text) + len(text.second or "")
            if texts and characters > SLICE_CHARACTERS:
                if texts[-1].request is request:  # the next slice begins with another request
                    line.rotate(-1)
                break
            texts.append(text)
            request.next_text += 1
            if request.next_text == len(request.texts):
                line.popleft()
        return texts

    def add_tokenized(self, texts: Sequence[QueuedText]) -> None:
        """Let texts that are tokenized wait for a batch."""
        with self._lock:
            for text in texts:
                request = text.request
                if request.is_over:
                    continue
                request.tokens += sum(text.lengths) - request.estimate
                request.ready.append(text)
                if len(request.ready) == 1:  # else it stands in its line already
                    line = self._ready.setdefault((request.model, request.second is None), [])
                    heappush(line, (request.turn, request.number, request))
            self._to_compute.notify_all()

    def take_batch(self) -> list[QueuedWindow]:
        """Return the windows to compute next; `end_batch` must follow.

        They are of one model, all of single texts or all of pairs, within its budget; or one longer window.
        """
        batch = list[QueuedWindow]()
        while not batch:
            # A model that computes on all its workers waits, whoever has the first turn.
            kinds = [kind for kind in self._ready if self._running[kind[0]] < kind[0].workers]
            if not kinds:
                return batch
            kind = min(kinds, key=lambda each: self._ready[each][0])
            batch = self._fill_batch(self._ready[kind], kind[0])
            if not self._ready[kind]:
                del self._ready[kind]
        self._running[batch[0].request.model] += 1
        return batch

    def _fill_batch(self, line: Line, model: Any) -> list[QueuedWindow]:
        """Take windows by turn until the next one does not fit. Requests that are over leave the line."""
        batch, budget = list[QueuedWindow](), model.budget
        while line:
            request = line[0][-1]
            if request.is_over:
                heappop(line)
                continue
            text = request.ready[0]
            window = QueuedWindow(text, text.next_window)
            if batch and window.length > budget:
                break
            budget -= window.length
            batch.append(window)
            text.next_window += 1
            if text.next_window == len(text.lengths):
                request.ready.popleft()
                request.waiting -= 1
            if request.began is None:
                request.began = self.clock()
            seconds = window.length / model.speed
            # A window computed before its turn, as nobody else waited, costs the request nothing later.
            request.turn = min(request.turn, self._work) + STRETCH * seconds
            self._work += seconds
            if request.ready:
                heapreplace(line, (request.turn, request.number, request))
            else:
                heappop(line)
        return batch

    def end_batch(self, model: Any) -> None:
        """Free the worker that computed a batch of a model, whatever became of the batch."""
        with self._lock:
            self._running[model] -= 1
            self._running += Counter()  # drops counts of 0, which would keep models in memory after a reload
            self._to_compute.notify()

    def store_outputs(self, batch: Sequence[QueuedWindow], outputs: Sequence[Any]) -> list[QueuedText]:
        """Store each window's output. Return the texts that have all theirs, of requests not over."""
        complete = []
        with self._lock:
            for (text, place), output in zip(batch, outputs, strict=True):
                text.outputs[place] = output
                text.missing -= 1
                if not text.missing and not text.request.is_over:
                    complete.append(text)
        return complete

    def complete(self, texts: Sequence[QueuedText]) -> None:
        """Store texts that are answered, and end the requests whose last ones they are."""
        finished = []
        with self._lock:
            for text in texts:
                request = text.request
                request.results[text.place] = text
                request.unanswered -= 1
                text.request = None  # in a cycle, both would keep the connection in memory
                if not request.unanswered and not request.is_over:
                    finished.append(self._end(request, None))
        self._report_over(finished)

    def fail(self, requests: Sequence[QueuedRequest], error: Exception) -> None:
        """End requests that cannot be answered."""
        with self._lock:
            failed = [self._end(request, error) for request in requests if not request.is_over]
        self._report_over(failed)

    def expire(self) -> None:
        """End the requests that wait beyond their deadline, or whose client has left."""
        now = self.clock()
        with self._lock:
            requests = list(self._open.values())
        self.fail([request for request in requests if request.has_left()], LeftError())
        # One that is being computed, and waits for nothing, ends soon.
        late = [request for request in requests if request.waiting and request.deadline <= now]
        self.fail(late, RefusedError(504, "the deadline passed while the request waited"))

    def call(self, function: Callable[[], Any]) -> Future[Any]:
        """Have a computing thread call a function, and return its result, or the error of `stop`."""
        future: Future[Any] = Future()
        with self._lock:
            self._calls.append((function, future))
            self._end_calls()
            self._to_compute.notify()
        return future

    def wait_for_texts(self) -> list[UnreadText] | None:
        """Return `take_texts` as soon as there are some; None after `stop`."""
        with self._lock:
            while self._stopped is None:
                texts = self.take_texts()
                if texts:
                    return texts
                self._to_read.wait()
        return None

    def wait_for_batch(self) -> list[QueuedWindow] | QueuedCall | None:
        """Return `take_batch`, or a function to call, as soon as there is one; None after `stop`."""
        with self._lock:
            while self._stopped is None:
                if self._calls:
                    return self._calls.popleft()
                batch = self.take_batch()
                if batch:
                    return batch
                self._to_compute.wait()
        return None

    def stop(self, error: Exception) -> None:
        """Accept and hand out nothing more, and end all requests with an error."""
        with self._lock:
            self.closed, self._stopped = True, error
            self._end_calls()
            self._to_read.notify()
            self._to_compute.notify_all()
        self.fail(list(self._open.values()), error)

    def _end_calls(self) -> None:
        while self._calls and self._stopped is not None:
            self._calls.popleft()[1].set_exception(self._stopped)

    def _end(self, request: QueuedRequest, error: Exception | None) -> QueuedRequest:
        request.is_over, request.error = True, error
        # The request stays in its line until its turn; its texts need not stay in memory.
        request.texts, request.second = [], None
        request.ready.clear()
        del self._open[request.number]
        return request
