"""The queue in front of the engine: what is accepted, whose turn it is, and what a batch holds.

A request (`QueuedRequest`) arrives. Its texts are tokenized in slices, those of all requests in turn, and
computed in batches, which hold windows of one model's texts up to its token budget. A thread that is free
takes what has the earliest turn: nothing waits for a slice or a batch to fill.

Turns count the work that was handed out before, in seconds of the model's speed. The first turn of a request
is its arrival; after each window, its next is `STRETCH` times as long later as that takes to compute. So
short requests pass long ones, which have a window for each `STRETCH` of others at least, and all of them
while nobody else waits. A request is over once: answered, failed, late, or left by its client. What is
left of its work is not done.
"""

import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from heapq import heappop, heappush, heapreplace
from typing import Any, NamedTuple

import numpy as np

STRETCH = 4
"""Times slower than it could be that a request is computed where others wait."""
SLICE_CHARACTERS = 8192
"""Characters of texts that are tokenized in one call; a longer text has a call of its own."""


class RefusedError(Exception):
    """Why a request gets no answer, in one line.

    Attributes:
        status: as of HTTP.
        wait: seconds after which it may come again, if it may.
        kind: the type of the error; empty: that of the status.
    """

    def __init__(self, status: int, message: str, wait: int | None = None, *, kind: str = "") -> None:
        super().__init__(" ".join(message.split()))
        self.status, self.wait, self.kind = status, wait, kind


class LeftError(Exception):
    """The client has left."""


@dataclass(eq=False, slots=True)
class QueuedRequest:
    """A request on its way.

    Attributes:
        model: that answers it; `budget` is the most tokens of a batch of its, `workers` the most batches
            that are computed at the same time, and `speed` the tokens a second of all.
        overlap: of windows; None: texts are cut, or refused if `reject`.
        tokens: of all texts; of those that are not tokenized yet, what is expected.
        deadline: by the queue's clock.
        has_left: whether its client has.
        read: texts that are tokenized, or are now; `ready` are those that wait for a batch.
        waiting, left: texts of which windows wait for a batch or a tokenizer, and that are not answered.
        turn: of the next window, in the time of the queue's work.
        results: the texts, each once it is answered.
        arrived, began: by the queue's clock, the latter when its first window was taken.
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
    expected: int = field(init=False)
    read: int = field(default=0, init=False)
    ready: "deque[QueuedText]" = field(default_factory=deque, init=False)
    waiting: int = field(init=False)
    left: int = field(init=False)
    turn: float = field(default=0.0, init=False)
    is_over: bool = field(default=False, init=False)
    results: list[Any] = field(init=False)
    error: Exception | None = field(default=None, init=False)
    arrived: float = field(default=0.0, init=False)
    began: float | None = field(default=None, init=False)
    future: Any = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.left = self.waiting = len(self.texts)
        self.results = [None] * len(self.texts)
        self.expected = -(-self.tokens // max(1, len(self.texts)))
        self.tokens = self.expected * len(self.texts)


class UnreadText(NamedTuple):
    """Text number `place` of a request, or pair, to tokenize."""

    request: QueuedRequest
    place: int
    text: str
    second: str | None


@dataclass(eq=False, slots=True)
class QueuedText:
    """A text or pair that is tokenized, and its answer.

    Attributes:
        tokens, segments, characters: of each of its windows, as in `data.examples.Examples`; `lengths` are
            the windows' tokens.
        overlap: tokens that they share.
        cut: `truncated_at`, and of the second text `truncated_at_b`: where reading stopped, in code points,
            or where it began if the model cuts on the left; empty if all was read.
        request, place: whose text it is, until it is answered, and its number there.
        taken: windows that batches have.
        outputs: of each window; `missing` are not computed.
        value: the row of `predict`, or of an encoder the vector, float32 (width,).
        scores: where the model is `scored`, a number for each label, float32 (labels,).
    """

    text: str
    second: str | None
    tokens: list[np.ndarray]
    segments: list[np.ndarray]
    characters: list[np.ndarray]
    overlap: int | None = None
    cut: dict[str, int] = field(default_factory=dict)
    request: Any = field(default=None, repr=False)
    place: int = 0
    taken: int = 0
    lengths: list[int] = field(init=False)
    outputs: list[Any] = field(init=False)
    missing: int = field(init=False)
    value: Any = field(default=None, init=False)
    scores: np.ndarray | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.lengths = [len(window) for window in self.tokens]
        self.missing = len(self.lengths)
        self.outputs = [None] * self.missing


class QueuedWindow(NamedTuple):
    """Window number `place` of a text."""

    text: QueuedText
    place: int

    @property
    def request(self) -> QueuedRequest:
        """Whose text it is."""
        found: QueuedRequest = self.text.request
        return found

    @property
    def length(self) -> int:
        """Its tokens."""
        return self.text.lengths[self.place]


class RequestQueue:
    """Requests between the server's loop, the threads that tokenize and those that compute.

    Attributes:
        most_requests, most_tokens: that are accepted and not over, the tokens without those of the largest
            request, which holds up no others.
        speed: tokens a second of the slowest model.
        closed: whether no request is accepted any more.
    """

    def __init__(
        self,
        most_requests: int,
        over: Callable[[list[QueuedRequest]], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """
        Args:
            over: takes the requests that are over, in any thread.
        """
        self.most_requests, self.most_tokens, self.speed = most_requests, 1 << 62, 1e9
        self.closed = False
        self._stopped: Exception | None = None
        self.clock, self._over = clock, over
        self._work = 0.0  # the seconds of what was handed out to compute
        self._lock = threading.RLock()
        self._to_compute = threading.Condition(self._lock)
        self._to_read = threading.Condition(self._lock)
        self._count = 0
        self._open: dict[int, QueuedRequest] = {}
        self._unread = deque[QueuedRequest]()
        self._ready: dict[Any, list[tuple[float, int, QueuedRequest]]] = {}
        self._running = Counter[Any]()
        self._calls: deque[tuple[Callable[[], Any], Future[Any]]] = deque()

    @property
    def requests(self) -> int:
        """Those that are accepted and not over."""
        return len(self._open)

    @property
    def tokens(self) -> int:
        """Theirs."""
        with self._lock:
            return sum(request.tokens for request in self._open.values())

    def refuse_if_full(self, tokens: int = 0) -> None:
        """Refuse a request of so many tokens if there is no room; the only request always has it.

        Raises:
            RefusedError: 503 if the queue is closed, 429 if it is full.
        """
        if self.closed:
            raise RefusedError(503, "the server is draining; ask another one")
        with self._lock:
            sizes = [request.tokens for request in self._open.values()]
        wanted = sum(sizes) - max(sizes, default=0) + tokens
        if len(sizes) >= self.most_requests or (sizes and wanted > self.most_tokens):
            seconds = max(1, min(60, round(wanted / self.speed)))
            raise RefusedError(429, f"the queue is full; wait {seconds} s", seconds)

    def admit(self, request: QueuedRequest) -> None:
        """Accept a request, or refuse it as `refuse_if_full`."""
        with self._lock:
            self.refuse_if_full(request.tokens)
            request.number, request.arrived, request.turn = self._count, self.clock(), self._work
            self._count += 1
            self._open[request.number] = request
            self._unread.append(request)
            self._to_read.notify()

    def texts_to_read(self) -> list[UnreadText]:
        """The texts to tokenize next, of one request after the other: at most `SLICE_CHARACTERS`, or one text
        that has more."""
        texts, characters = list[UnreadText](), 0
        line = self._unread
        while line:
            request = line[0]
            if request.is_over:
                line.popleft()
                continue
            place = request.read
            second = None if request.second is None else request.second[place]
            text = UnreadText(request, place, request.texts[place], second)
            characters += len(text.text) + len(text.second or "")
            if texts and characters > SLICE_CHARACTERS:
                if texts[-1].request is request:  # the next slice is another one's
                    line.rotate(-1)
                break
            texts.append(text)
            request.read += 1
            if request.read == len(request.texts):
                line.popleft()
        return texts

    def put(self, texts: Sequence[QueuedText]) -> None:
        """Texts that are tokenized."""
        with self._lock:
            for text in texts:
                request: QueuedRequest = text.request
                if request.is_over:
                    continue
                request.tokens += sum(text.lengths) - request.expected
                request.ready.append(text)
                if len(request.ready) == 1:
                    line = self._ready.setdefault((request.model, request.second is None), [])
                    heappush(line, (request.turn, request.number, request))
            self._to_compute.notify_all()

    def batch(self) -> list[QueuedWindow]:
        """The windows to compute next: of one model, all of single texts or all of pairs, within its budget;
        or one longer window alone. After it, `computed` has to be told."""
        found = list[QueuedWindow]()
        while not found:
            kinds = [kind for kind in self._ready if self._running[kind[0]] < kind[0].workers]
            if not kinds:
                return []
            kind = min(kinds, key=lambda one: self._ready[one][0])
            line, model = self._ready[kind], kind[0]
            room = model.budget
            while line:
                request = line[0][-1]
                if request.is_over:
                    heappop(line)
                    continue
                window = QueuedWindow(request.ready[0], request.ready[0].taken)
                if found and window.length > room:
                    break
                room -= window.length
                found.append(window)
                self._take(line, window.length / model.speed)
            if not line:
                del self._ready[kind]
        self._running[found[0].request.model] += 1
        return found

    def computed(self, model: Any) -> None:
        """A batch of a model is over, whatever became of it."""
        with self._lock:
            self._running[model] -= 1
            self._running += Counter()  # a reload replaces models, and keys of 0 keep the old ones in memory
            self._to_compute.notify()

    def keep(self, batch: Sequence[QueuedWindow], outputs: Sequence[Any]) -> list[QueuedText]:
        """What was computed for windows.

        Returns:
            the texts that have all their outputs now, of requests that are not over.
        """
        with self._lock:
            for (text, place), output in zip(batch, outputs, strict=True):
                text.outputs[place] = output
                text.missing -= 1
            texts = dict.fromkeys(text for text, _ in batch)
            return [text for text in texts if not text.missing and not text.request.is_over]

    def complete(self, texts: Sequence[QueuedText]) -> None:
        """Texts that are answered."""
        with self._lock:
            requests = dict.fromkeys(text.request for text in texts)
            for text in texts:
                text.request.results[text.place] = text
                text.request.left -= 1
                text.request = None  # in a circle, both would keep the connection in memory
            over = [self._end(each, None) for each in requests if not each.left and not each.is_over]
        self._over(over)

    def fail(self, requests: Sequence[QueuedRequest], error: Exception) -> None:
        """End requests that cannot be answered."""
        with self._lock:
            over = [self._end(request, error) for request in requests if not request.is_over]
        self._over(over)

    def expire(self) -> None:
        """End the requests that wait beyond their deadline, or whose client has left."""
        now = self.clock()
        with self._lock:
            requests = list(self._open.values())
        self.fail([each for each in requests if each.has_left()], LeftError())
        late = [each for each in requests if each.waiting and each.deadline <= now]
        self.fail(late, RefusedError(504, "the deadline passed while the request waited"))

    def call(self, function: Callable[[], Any]) -> Future[Any]:
        """Have a computing thread call a function between two batches.

        Returns:
            a future of its result, or of the error that `stop` was given.
        """
        future: Future[Any] = Future()
        with self._lock:
            self._calls.append((function, future))
            self._end_calls()
            self._to_compute.notify()
        return future

    def wait_for_texts(self) -> list[UnreadText] | None:
        """`texts_to_read`, once there are some; None after `stop`."""
        with self._lock:
            while self._stopped is None:
                if texts := self.texts_to_read():
                    return texts
                self._to_read.wait()
        return None

    def wait_for_batch(self) -> list[QueuedWindow] | tuple[Callable[[], Any], Future[Any]] | None:
        """`batch`, or a function to call, once there is one; None after `stop`."""
        with self._lock:
            while self._stopped is None:
                if self._calls:
                    return self._calls.popleft()
                if found := self.batch():
                    return found
                self._to_compute.wait()
        return None

    def stop(self, error: Exception) -> None:
        """Accept and hand out nothing more, and end what is left with an error."""
        with self._lock:
            self.closed, self._stopped = True, error
            self._end_calls()
            self._to_read.notify()
            self._to_compute.notify_all()
        self.fail(list(self._open.values()), error)

    def _end_calls(self) -> None:
        while self._calls and self._stopped is not None:
            self._calls.popleft()[1].set_exception(self._stopped)

    def _take(self, line: list[tuple[float, int, QueuedRequest]], cost: float) -> None:
        """Count the next window of the first request in a line as taken, and give it its next turn. What came
        before its turn costs a request nothing later."""
        request = line[0][-1]
        text = request.ready[0]
        text.taken += 1
        if text.taken == len(text.lengths):
            request.ready.popleft()
            request.waiting -= 1
        if request.began is None:
            request.began = self.clock()
        request.turn = min(request.turn, self._work) + STRETCH * cost
        self._work += cost
        if request.ready:
            heapreplace(line, (request.turn, request.number, request))
        else:
            heappop(line)

    def _end(self, request: QueuedRequest, error: Exception | None) -> QueuedRequest:
        request.is_over, request.error = True, error
        request.texts, request.second = [], None  # its place in the line stays, and its texts would
        request.ready.clear()
        del self._open[request.number]
        return request
