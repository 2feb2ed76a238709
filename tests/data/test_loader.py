"""Prefetching changes nothing: not the order, not where an error shows, and no thread outlives it."""

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

import numpy as np
import pytest
import torch

from brimful.base.types import Cursor
from brimful.data.batch import PackedBatch, pack
from brimful.data.loader import Update, prefetch

CPU = torch.device("cpu")
DEPTHS = [0, 1, 2, 7]


class BrokenError(Exception):
    """What a stream may raise."""


class Counting:
    """A stream whose update n is two micro-batches, n and -n; broken at `broken`, slow if asked."""

    def __init__(self, broken: int | None = None, seconds: float = 0.0) -> None:
        self.broken, self.seconds = broken, seconds
        self.taken: list[int] = []

    def start(self) -> Cursor:
        return {"n": 0}

    def take(self, cursor: Cursor) -> tuple[list[PackedBatch], Cursor]:
        n = cursor["n"]
        self.taken.append(n)
        time.sleep(self.seconds)
        if n == self.broken:
            raise BrokenError(n)
        return [pack([np.array([token])], max_length=1, pad=0) for token in (n, -n)], {"n": n + 1}

    def tokens_by_source(self, cursor: Cursor) -> dict[str, int]:
        return {"counting": 2 * cursor["n"]}


def normalizers_of(batch: PackedBatch) -> dict[str, float]:
    return {"token": float(batch.tokens[0])}


def read(stream: Counting, start: int, updates: int, depth: int) -> Iterator[Update]:
    return prefetch(stream, {"n": start}, updates, normalizers=normalizers_of, device=CPU, depth=depth)


def numbers(updates: Iterator[Update]) -> list[tuple[list[int], list[float], int]]:
    return [
        (
            [int(batch.tokens[0]) for batch in update.batches],
            [sums["token"] for sums in update.normalizers],
            update.cursor["n"],
        )
        for update in updates
    ]


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "prefetch"]


def eventually(reached: Callable[[], bool]) -> bool:
    ends = time.monotonic() + 30
    while not reached() and time.monotonic() < ends:
        time.sleep(0.005)
    return reached()


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("updates", [0, 1, 2, 50])
@pytest.mark.parametrize("seconds", [0.0, 0.001])
def test_order_weights_and_cursors(depth: int, updates: int, seconds: float) -> None:
    found = numbers(read(Counting(seconds=seconds), 3, updates, depth))
    assert found == [([n, -n], [n, -n], n + 1) for n in range(3, 3 + updates)]
    assert not threads()


@pytest.mark.parametrize("depth", DEPTHS)
def test_a_resumed_loader_goes_on(depth: int) -> None:
    whole = numbers(read(Counting(), 0, 20, depth))
    begun = read(Counting(), 0, 20, depth)
    first = [next(begun) for _ in range(8)]
    begun.close()  # what was made ahead is thrown away
    assert numbers(iter(first)) + numbers(read(Counting(), first[-1].cursor["n"], 12, depth)) == whole


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("broken", [0, 1, 7])
def test_an_error_shows_at_its_update(depth: int, broken: int) -> None:
    seen = []

    def run() -> None:
        for update in read(Counting(broken), 0, 20, depth):
            seen.append(int(update.batches[0].tokens[0]))

    with pytest.raises(BrokenError, match=str(broken)):
        run()
    assert seen == list(range(broken))
    assert eventually(lambda: not threads())


def test_an_error_of_the_weights_shows_too() -> None:
    def broken(batch: PackedBatch) -> dict[str, float]:
        raise BrokenError("weights")

    updates = prefetch(Counting(), {"n": 0}, 3, normalizers=broken, device=CPU)
    with pytest.raises(BrokenError, match="weights"):
        next(updates)


@pytest.mark.parametrize("depth", DEPTHS)
def test_an_early_stop_ends_the_thread(depth: int) -> None:
    stream = Counting()
    updates = read(stream, 0, 1_000_000, depth)
    next(updates)
    updates.close()
    assert not threads()
    assert len(stream.taken) <= 1 + depth


def test_an_error_of_the_caller_ends_the_thread() -> None:
    def run() -> None:
        for _ in read(Counting(), 0, 1_000_000, 2):
            raise BrokenError

    with pytest.raises(BrokenError):
        run()
    assert eventually(lambda: not threads())


@pytest.mark.parametrize("depth", DEPTHS)
def test_updates_are_made_ahead_as_many_as_asked(depth: int) -> None:
    """`depth` of them beside the one in use: no fewer, and never more."""
    stream = Counting()
    with closing(read(stream, 0, 1000, depth)) as updates:
        for used in range(1, 6):
            next(updates)
            assert eventually(lambda used=used: len(stream.taken) == used + depth)
            time.sleep(0.01)
            assert stream.taken == list(range(used + depth))


def test_no_update_is_made_beyond_the_last() -> None:
    stream = Counting()
    assert len(list(read(stream, 5, 3, 7))) == 3
    assert stream.taken == [5, 6, 7]


class Timed(Counting):
    """Its updates take 40 seconds each by a clock that stands still otherwise."""

    now = 0.0

    def take(self, cursor: Cursor) -> tuple[list[PackedBatch], Cursor]:
        self.now += 40.0
        return super().take(cursor)


@pytest.mark.parametrize("depth", DEPTHS)
def test_waiting_is_measured(depth: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that was made meanwhile costs no wait."""
    stream = Timed()
    monkeypatch.setattr("brimful.data.loader.time.perf_counter", lambda: stream.now)
    updates = 1 + max(depth, 1)
    with closing(read(stream, 0, updates, depth)) as found:
        first = next(found).waited
        assert 40.0 <= first <= 40.0 * (1 + depth)
        assert eventually(lambda: len(stream.taken) == 1 + depth)
        assert [update.waited for update in found] == [0.0 if depth else 40.0] * (updates - 1)


@pytest.mark.parametrize("depth", [0, 2])
def test_threads_take_turns_sooner_while_one_makes_updates(depth: int) -> None:
    before = sys.getswitchinterval()
    with closing(read(Counting(), 0, 4, depth)) as updates:
        next(updates)
        assert (sys.getswitchinterval() < before) == (depth > 0)
    assert sys.getswitchinterval() == before


# CUDA, without it: fakes that write down what is done, and where


class Recorder:
    """Stands for torch.cuda: knows the stream that each thread is on, and keeps a log."""

    def __init__(self) -> None:
        self.log: list[tuple[Any, ...]] = []
        self.place = threading.local()

    def note(self, *what: Any) -> None:
        self.log.append((getattr(self.place, "stream", "main"), *what))

    def stream(self, device: torch.device) -> "FakeStream":
        return FakeStream(self, f"side of {device}")

    @contextmanager
    def using(self, stream: "FakeStream") -> Iterator[None]:
        self.place.stream = stream.name
        yield
        self.place.stream = "main"


class FakeStream:
    def __init__(self, recorder: Recorder, name: str) -> None:
        self.recorder, self.name = recorder, name
        self.events = 0

    def record_event(self) -> str:
        self.recorder.note("record", self.name)
        self.events += 1
        return f"event {self.events}"

    def wait_event(self, event: str) -> None:
        self.recorder.note("wait", event)


class FakeTensor:
    def __init__(self, recorder: Recorder, name: str, kind: str = "host") -> None:
        self.recorder, self.name, self.kind = recorder, name, kind

    def pin_memory(self) -> "FakeTensor":
        assert self.kind == "host"
        return FakeTensor(self.recorder, self.name, "pinned")

    def to(self, device: torch.device, *, non_blocking: bool) -> "FakeTensor":
        assert self.kind == "pinned"
        assert non_blocking
        self.recorder.note("copy", self.name)
        return FakeTensor(self.recorder, self.name, device.type)

    def record_stream(self, stream: FakeStream) -> None:
        assert self.kind == "cuda"
        self.recorder.note("keep", self.name, stream.name)


class FakeBatch:
    """As much of a PackedBatch as the loader knows."""

    def __init__(self, tensors: list[FakeTensor]) -> None:
        self.tensors = tensors

    def map(self, change: Callable[[FakeTensor], FakeTensor]) -> "FakeBatch":
        return FakeBatch([change(tensor) for tensor in self.tensors])


@pytest.mark.parametrize("depth", [0, 2])
def test_the_order_of_copies(depth: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each tensor is pinned and copied on the side stream; the event comes after the last copy of the update;
    the caller's stream waits for it, and then says of each tensor that it uses it."""
    recorder = Recorder()
    main = FakeStream(recorder, "main")
    monkeypatch.setattr(torch.cuda, "Stream", recorder.stream)
    monkeypatch.setattr(torch.cuda, "stream", recorder.using)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: main)

    class Stream(Counting):
        def take(self, cursor: Cursor) -> tuple[list[Any], Cursor]:
            n = cursor["n"]
            batches = [FakeBatch([FakeTensor(recorder, f"{n}{b}{t}") for t in "xy"]) for b in "ab"]
            return batches, {"n": n + 1}

    def on_host(batch: Any) -> dict[str, float]:
        assert {tensor.kind for tensor in batch.tensors} == {"host"}
        return {"sum": 1.0}

    updates = prefetch(Stream(), {"n": 0}, 3, normalizers=on_host, device=torch.device("cuda:1"), depth=depth)
    for n, update in enumerate(updates):
        tensors: list[Any] = [tensor for batch in update.batches for tensor in batch.tensors]  # type: ignore[attr-defined]
        names = [f"{n}{b}{t}" for b in "ab" for t in "xy"]
        assert [tensor.name for tensor in tensors] == names
        assert {tensor.kind for tensor in tensors} == {"cuda"}
        assert update.normalizers == [{"sum": 1.0}] * 2
        log = list(recorder.log)
        side, event = "side of cuda:1", ("main", "wait", f"event {n + 1}")
        records = [i for i, entry in enumerate(log) if entry == (side, "record", side)]
        waits = log.index(event)
        for name in names:
            assert log.index((side, "copy", name)) < records[n] < waits
            assert waits < log.index(("main", "keep", name, "main"))
    assert sum(entry[1] == "copy" for entry in recorder.log) == 12
