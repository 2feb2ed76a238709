"""A client in a process of its own, for `bench.serve`: an open loop with Poisson arrivals, or a closed one.

In an open loop each request has its time, whatever the server does. Its latency counts from that time, so
that no waiting is hidden. Requests are bytes before the clock starts; answers are compared after it stops.
"""

import asyncio
import gc
import json
import time
from array import array
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bench.common.turns import serve
from bench.serve.requests import BROKEN, GONE, GOOD, LEAVES, broken, good

MOST_CONNECTIONS = 1000
PAUSE = 0.05
"""Seconds after a refusal in a closed loop."""
PATIENCE = 60.0
"""Seconds without any outcome after which the rest of the requests are given up."""


@dataclass(slots=True)
class Request:
    """A request: its kind, its number among those of the kind, and when it is due and was sent."""

    kind: str
    number: int
    payload: bytes
    due: float
    sent: float = 0.0


class Connection(asyncio.Protocol):
    """A connection that carries one request at a time."""

    def __init__(self, load: "Load") -> None:
        self.load = load
        self.request: Request | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def send(self, request: Request) -> None:
        self.request, self.read = request, b""
        request.sent = time.monotonic()
        self.transport.write(request.payload)

    def data_received(self, data: bytes) -> None:
        self.read += data
        head, found, body = self.read.partition(b"\r\n\r\n")
        if not found or self.request is None:
            return
        head = head.lower()
        length = head.partition(b"content-length:")[2].partition(b"\r\n")[0]
        if len(body) < int(length):
            return
        request, self.request = self.request, None
        if b"connection: close" in head or self.transport.get_write_buffer_size():
            self.transport.abort()
        else:
            self.load.idle.append(self)
        self.load.ended(request, head[9:12].decode(), body)

    def connection_lost(self, error: Exception | None) -> None:
        self.load.open -= 1
        if self in self.load.idle:
            self.load.idle.remove(self)
        if self.request is not None:
            self.load.ended(self.request, "lost")


class Load:
    """Requests that are sent to a server, and what became of them.

    Attributes:
        next: called with each outcome.
        answers: the different bodies of good answers, each with the number of its request.
        losses: of requests that got no answer, when they were sent (time.monotonic).
    """

    def __init__(self, host: str, port: int) -> None:
        self.address = host, port
        self.idle: list[Connection] = []
        self.waiting: deque[Request] = deque()
        self.tasks: set[asyncio.Task[None]] = set()
        self.open = self.pending = 0
        self.outcomes: Counter[tuple[str, str]] = Counter()
        self.latencies, self.late = array("d"), array("d")
        self.losses: list[float] = []
        self.answers: set[tuple[int, bytes]] = set()
        self.started = self.last = self.last_good = time.monotonic()
        self.next: Callable[[str], None] = lambda outcome: None

    def dispatch(self, request: Request) -> None:
        """Send a request on a connection that is idle or new; beyond `MOST_CONNECTIONS` it waits for one."""
        self.pending += 1
        if request.kind in LEAVES:
            self._start(self._leave(request))
        elif self.idle:
            self.idle.pop().send(request)
        elif self.open < MOST_CONNECTIONS:
            self.open += 1
            self._start(self._connect(request))
        else:
            self.waiting.append(request)

    def ended(self, request: Request, outcome: str, body: bytes = b"") -> None:
        """Note what became of a request."""
        self.pending -= 1
        self.last = time.monotonic()
        self.outcomes[request.kind, outcome] += 1
        if request.kind == GOOD and outcome == "200":
            self.last_good = self.last
            self.latencies.append(self.last - request.due)
            self.answers.add((request.number, body))
        elif outcome == "lost":
            self.losses.append(request.sent)
        self.late.append(request.sent - request.due)
        if self.waiting and (self.idle or self.open < MOST_CONNECTIONS):
            self.pending -= 1
            self.dispatch(self.waiting.popleft())
        self.next(outcome)

    async def over(self) -> None:
        """Wait until each request has an outcome; without any for `PATIENCE`, the rest is unanswered."""
        while self.pending and time.monotonic() < self.last + PATIENCE:
            await asyncio.sleep(0.02)
        if self.pending:
            self.outcomes[GOOD, "unanswered"] += self.pending

    def summary(self, batch: int, cpu: float) -> dict[str, Any]:
        """What became of the requests; latencies in milliseconds."""
        outcomes: dict[str, dict[str, int]] = {}
        for (kind, outcome), count in sorted(self.outcomes.items()):
            outcomes.setdefault(kind, {})[outcome] = count
        seconds = self.last_good - self.started
        texts = batch * len(self.latencies)
        marks = [50, 99] if self.latencies else []
        found = {f"p{mark}_ms": 1000 * float(np.percentile(self.latencies, mark)) for mark in marks}
        return {
            "outcomes": outcomes,
            "requests": len(self.late),
            "texts": texts,
            "texts_per_second": texts / seconds if seconds else 0.0,
            **found,
            "late_p99_ms": 1000 * float(np.percentile(self.late, 99)) if self.late else 0.0,
            "client_cpu_seconds": cpu,
            "client_share_of_a_core": cpu / (self.last - self.started),
            "losses": self.losses[:1000],
        }

    def _start(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def _connect(self, request: Request) -> None:
        try:
            loop = asyncio.get_running_loop()
            _, connection = await loop.create_connection(lambda: Connection(self), *self.address)
        except OSError:
            self.open -= 1
            request.sent = time.monotonic()
            self.ended(request, "refused")
        else:
            connection.send(request)

    async def _leave(self, request: Request) -> None:
        request.sent = time.monotonic()
        try:
            _, writer = await asyncio.open_connection(*self.address)
        except OSError:
            self.ended(request, "refused")
            return
        writer.write(request.payload)
        await asyncio.sleep(LEAVES[request.kind])
        writer.transport.abort()
        self.ended(request, GONE)


class State:
    """What `setup` leaves, and the answers since the last `check`."""

    address: tuple[str, int]
    good: list[tuple[list[int], bytes]]
    broken: dict[str, bytes]
    batch: int
    answers: set[tuple[int, bytes]]


def setup(address: list[Any], texts: str, batch: int, seed: int) -> dict[str, Any]:
    """Make the requests of `batch` texts each from a JSON file of texts, for the server at (host, port)."""
    found = json.loads(Path(texts).read_text(encoding="utf-8"))
    State.address, State.batch = (address[0], address[1]), batch
    State.good, State.broken, State.answers = good(found, batch, seed), broken(found[0]), set()
    gc.freeze()
    return {"requests": len(State.good)}


def closed(connections: int, duration: float, seed: int, most: int = 10**9) -> dict[str, Any]:
    """Send the next request when one is answered, `connections` at a time; at most `most` requests. After a
    refusal it waits a moment."""
    numbers = np.random.default_rng(seed).integers(len(State.good), size=1 << 16).tolist()

    async def run(load: Load) -> None:
        sent = 0

        def again() -> None:
            load.pending -= 1
            send()

        def send(outcome: str = "200") -> None:
            nonlocal sent
            if outcome != "200":
                load.pending += 1  # a request is still to come
                asyncio.get_running_loop().call_later(PAUSE, again)
            elif sent < most and time.monotonic() < load.started + duration:
                number = numbers[sent % len(numbers)]
                sent += 1
                load.dispatch(Request(GOOD, number, State.good[number][1], time.monotonic()))

        load.next = send
        for _ in range(connections):
            send()

    return _measured(run)


def opened(rate: float, duration: float, seed: int, broken: float = 0.0) -> dict[str, Any]:
    """Send `rate` requests a second, a share `broken` of them broken, at random times."""
    random = np.random.default_rng(seed)
    times = np.cumsum(random.exponential(1 / rate, int(1.2 * rate * duration) + 100))
    times = times[times < duration]
    numbers = random.integers(len(State.good), size=len(times)).tolist()
    names = [GOOD, *BROKEN]
    shares = [1 - broken, *(broken * share for share, _ in BROKEN.values())]
    kinds = random.choice(len(names), p=shares, size=len(times)).tolist()

    async def run(load: Load) -> None:
        for place, (after, kind, number) in enumerate(zip(times.tolist(), kinds, numbers, strict=True)):
            due = load.started + after
            if (left := due - time.monotonic()) > 0:
                await asyncio.sleep(left)
            elif place % 8 == 0:
                await asyncio.sleep(0)  # answers are read, even if the client is late
            payload = State.broken[names[kind]] if kind else State.good[number][1]
            load.dispatch(Request(names[kind], number, payload, due))

    return _measured(run)


def _measured(run: Callable[[Load], Any]) -> dict[str, Any]:
    async def whole() -> dict[str, Any]:
        cpu, load = time.process_time(), Load(*State.address)
        await run(load)
        await load.over()
        cpu = time.process_time() - cpu
        State.answers |= load.answers
        for connection in load.idle:
            connection.transport.abort()
        return load.summary(State.batch, cpu)

    return asyncio.run(whole())


def check(expected: list[str], tolerance: float) -> dict[str, Any]:
    """Compare the answers since the last check with what `predict` writes: the score of its label. Of several
    files, as of a model before and after a reload, an answer may be as any of them."""
    files = [Path(file).read_text(encoding="utf-8").splitlines() for file in expected]
    predicted = [[json.loads(line) for line in lines] for lines in zip(*files, strict=True)]
    apart, same = [], 0
    for number, body in State.answers:
        for text, result in zip(State.good[number][0], json.loads(body)["results"], strict=True):
            scores, rows = result["scores"], predicted[text]
            apart.append(min(abs(scores[row["prediction"]] - row["probability"]) for row in rows))
            same += result["prediction"] in {row["prediction"] for row in rows}
    State.answers = set()
    wrong = sum(not value <= tolerance for value in apart)
    return {"compared": len(apart), "same_label": same, "wrong": wrong, "furthest": max(apart)}


if __name__ == "__main__":
    serve({"setup": setup, "closed": closed, "opened": opened, "check": check})
