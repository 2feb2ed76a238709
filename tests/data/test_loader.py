"""Prefetching changes nothing: not the order, not where an error shows, and no thread outlives it."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
import torch

from brimful.base.types import Cursor
from brimful.data.batch import PackedBatch, pack
from brimful.data.loader import Update, prefetch

CPU = torch.device("cpu")
of_all_depths = pytest.mark.parametrize("depth", [0, 1, 2, 7])


class BrokenError(Exception):
    """What a stream may raise."""


class Counting:
    """A stream whose update n is two micro-batches, n and -n; broken at `broken`."""

    def __init__(self, broken: int | None = None) -> None:
        self.broken = broken
        self.taken: list[int] = []

    def start(self) -> Cursor:
        return {"n": 0}

    def take(self, cursor: Cursor) -> tuple[list[PackedBatch], Cursor]:
        n = cursor["n"]
        self.taken.append(n)
        if n == self.broken:
            raise BrokenError(n)
        return [pack([np.array([token])], max_length=1, pad=0) for token in (n, -n)], {"n": n + 1}

    def tokens_by_source(self, cursor: Cursor) -> dict[str, int]:
        return {"counting": 2 * cursor["n"]}


def normalizers_of(batch: PackedBatch) -> dict[str, float]:
    return {"token": float(batch.tokens[0])}


def read(stream: Counting, start: int, updates: int, depth: int) -> Iterator[Update]:
    return prefetch(stream, {"n": start}, updates, normalizers=normalizers_of, device=CPU, depth=depth)


def numbers(update: Update) -> tuple[list[int], list[float], int]:
    tokens = [int(batch.tokens[0]) for batch in update.batches]
    return tokens, [sums["token"] for sums in update.normalizers], update.cursor["n"]


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("prefetch")]


def eventually(reached: Callable[[], bool]) -> bool:
    ends = time.monotonic() + 30
    while not reached() and time.monotonic() < ends:
        time.sleep(0.005)
    return reached()


@of_all_depths
@pytest.mark.parametrize("updates", [0, 1, 20])
def test_order_weights_and_cursors(depth, updates):
    stream = Counting()
    found = list(map(numbers, read(stream, 3, updates, depth)))
    assert found == [([n, -n], [n, -n], n + 1) for n in range(3, 3 + updates)]
    assert stream.taken == list(range(3, 3 + updates))  # none beyond the last
    assert not threads()


@pytest.mark.parametrize(("depth", "broken"), [(0, 1), (1, 0), (2, 7)])
def test_an_error_shows_at_its_update(depth, broken):
    updates = read(Counting(broken), 0, 20, depth)
    for n in range(broken):
        assert int(next(updates).batches[0].tokens[0]) == n
    with pytest.raises(BrokenError, match=str(broken)):
        next(updates)
    assert eventually(lambda: not threads())
    with pytest.raises(TypeError):  # as does one of the normalizers
        next(prefetch(Counting(), {"n": 0}, 3, normalizers=int, device=CPU, depth=depth))


@of_all_depths
def test_updates_are_made_ahead_as_many_as_asked(depth):
    """`depth` of them beside the one in use: no fewer, and never more; an early stop ends the thread."""
    stream = Counting()
    with closing(read(stream, 0, 1000, depth)) as updates:
        for used in range(1, 6):
            next(updates)
            assert eventually(lambda used=used: len(stream.taken) == used + depth)
            time.sleep(0.01)
            assert stream.taken == list(range(used + depth))
    assert not threads()


class Timed(Counting):
    """Its updates take 40 seconds each by a clock that stands still otherwise."""

    now = 0.0

    def take(self, cursor: Cursor) -> tuple[list[PackedBatch], Cursor]:
        self.now += 40.0
        return super().take(cursor)


@of_all_depths
def test_waiting_is_measured(depth, monkeypatch):
    """One that was made meanwhile costs no wait."""
    stream = Timed()
    monkeypatch.setattr("brimful.data.loader.time.perf_counter", lambda: stream.now)
    updates = 1 + max(depth, 1)
    with closing(read(stream, 0, updates, depth)) as found:
        first = next(found).waited
        assert 40.0 <= first <= 40.0 * (1 + depth)
        assert eventually(lambda: len(stream.taken) == 1 + depth)
        assert [update.waited for update in found] == [0.0 if depth else 40.0] * (updates - 1)


# CUDA, without it: fakes that write down what is done, and where


class FakeStream:
    """A stream of a device that logs events; `here` is the stream that each thread is on."""

    log: ClassVar[list[tuple[str, ...]]] = []
    here = threading.local()

    def __init__(self, device: object) -> None:
        self.name, self.events = f"side of {device}", 0

    @classmethod
    def note(cls, *what: str) -> None:
        cls.log.append((getattr(cls.here, "stream", "main"), *what))

    @contextmanager
    def use(self) -> Iterator[None]:
        self.here.stream = self.name
        yield
        self.here.stream = "main"

    def record_event(self) -> str:
        self.note("record", self.name)
        self.events += 1
        return f"event {self.events}"

    def wait_event(self, event: str) -> None:
        self.note("wait", event)


@dataclass
class FakeTensor:
    name: str
    kind: str = "host"

    def pin_memory(self) -> "FakeTensor":
        assert self.kind == "host"
        return FakeTensor(self.name, "pinned")

    def to(self, device: torch.device, *, non_blocking: bool) -> "FakeTensor":
        assert (self.kind, non_blocking) == ("pinned", True)
        FakeStream.note("copy", self.name)
        return FakeTensor(self.name, device.type)

    def record_stream(self, stream: FakeStream) -> None:
        assert self.kind == "cuda"
        FakeStream.note("keep", self.name)


class FakeBatch(list[FakeTensor]):
    """As much of a PackedBatch as the loader knows."""

    def map(self, change: Callable[[FakeTensor], FakeTensor]) -> "FakeBatch":
        return FakeBatch(map(change, self))


@pytest.mark.parametrize("depth", [0, 2])
def test_the_order_of_copies(depth, monkeypatch):
    """Each tensor is pinned and copied on the side stream; the event comes after the last copy of the update;
    the caller's stream waits for it, and then says of each tensor that it uses it."""
    monkeypatch.setattr(FakeStream, "log", [])
    main = FakeStream("main")
    monkeypatch.setattr(torch.cuda, "Stream", FakeStream)
    monkeypatch.setattr(torch.cuda, "stream", FakeStream.use)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: main)

    def take(cursor: Cursor) -> tuple[list[FakeBatch], Cursor]:
        n = cursor["n"]
        return [FakeBatch(FakeTensor(f"{n}{b}{t}") for t in "xy") for b in "ab"], {"n": n + 1}

    def on_host(batch: FakeBatch) -> dict[str, float]:
        assert {tensor.kind for tensor in batch} == {"host"}
        return {"sum": 1.0}

    stream, device, side = Counting(), torch.device("cuda:1"), "side of cuda:1"
    monkeypatch.setattr(stream, "take", take)
    updates = prefetch(stream, {"n": 0}, 3, normalizers=on_host, device=device, depth=depth)
    for n, update in enumerate(updates):
        found = [(tensor.name, tensor.kind) for batch in update.batches for tensor in batch]
        names = [f"{n}{b}{t}" for b in "ab" for t in "xy"]
        assert found == [(name, "cuda") for name in names]
        assert update.normalizers == [{"sum": 1.0}] * 2
        log = list(FakeStream.log)
        record = [i for i, entry in enumerate(log) if entry == (side, "record", side)][n]
        wait = log.index(("main", "wait", f"event {n + 1}"))
        for name in names:
            assert log.index((side, "copy", name)) < record < wait < log.index(("main", "keep", name))
    assert sum(entry[1] == "copy" for entry in FakeStream.log) == 12
