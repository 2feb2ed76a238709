"""Prefetching changes neither the order nor where an error shows, and its thread ends with it."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock, call

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
    """Exactly `depth` of them are ready besides the one in use. An early stop ends the thread."""
    stream = Counting()
    with closing(read(stream, 0, 1000, depth)) as updates:
        for used in range(1, 6):
            next(updates)
            assert eventually(lambda used=used: len(stream.taken) == used + depth)
            time.sleep(0.01)
            assert stream.taken == list(range(used + depth))
    assert not threads()


class Timed(Counting):
    """A stream whose updates take 40 seconds each, by a clock that otherwise stands still."""

    now = 0.0

    def take(self, cursor: Cursor) -> tuple[list[PackedBatch], Cursor]:
        self.now += 40.0
        return super().take(cursor)


@of_all_depths
def test_waiting_is_measured(depth, monkeypatch):
    """An update that was made during the one before costs no wait."""
    stream = Timed()
    monkeypatch.setattr("brimful.data.loader.time.perf_counter", lambda: stream.now)
    updates = 1 + max(depth, 1)
    with closing(read(stream, 0, updates, depth)) as found:
        first = next(found).waited
        assert 40.0 <= first <= 40.0 * (1 + depth)
        assert eventually(lambda: len(stream.taken) == 1 + depth)
        assert [update.waited for update in found] == [0.0 if depth else 40.0] * (updates - 1)


# CUDA, without it: what is called is written down, in order


class FakeBatch(list[Any]):
    """As much of a PackedBatch as the loader knows."""

    def map(self, change: Callable[[Any], Any]) -> "FakeBatch":
        return FakeBatch(map(change, self))


def test_the_order_of_copies(monkeypatch):
    """Each tensor is pinned and copied in a stream of the loader. After the last copy of an update comes an
    event. The caller's stream waits for the event, and then says of each tensor that it uses it."""
    log, device = MagicMock(), torch.device("cuda:1")
    for name in ("Stream", "stream", "current_stream"):
        monkeypatch.setattr(torch.cuda, name, getattr(log, name))
    side, main = log.Stream.return_value, log.current_stream.return_value
    names = [[f"{tensor}_{n}_{batch}" for batch in (0, 1) for tensor in "xy"] for n in range(3)]

    def take(cursor: Cursor) -> tuple[list[FakeBatch], Cursor]:
        tensors = [getattr(log, name) for name in names[cursor["n"]]]
        return [FakeBatch(tensors[:2]), FakeBatch(tensors[2:])], {"n": cursor["n"] + 1}

    settings = {"normalizers": log.normalizers, "device": device, "depth": 0}
    updates = prefetch(SimpleNamespace(take=take), {"n": 0}, 3, **settings)
    for n, update in enumerate(updates):
        tensors, copies, keeps = [getattr(log, name) for name in names[n]], [], []
        for name in names[n]:
            pinned = getattr(call, name).pin_memory()
            copies += [pinned, pinned.to(device, non_blocking=True)]
            keeps += [call.current_stream(device), pinned.to().record_stream(main)]
        assert log.mock_calls == [
            *([] if n else [call.Stream(device)]),
            *(call.normalizers(part) for part in (tensors[:2], tensors[2:])),
            call.stream(side),
            call.stream().__enter__(),
            *copies,
            call.Stream().record_event(),
            call.stream().__exit__(None, None, None),
            call.current_stream(device),
            call.current_stream().wait_event(side.record_event.return_value),
            *keeps,
        ]
        on_device = [tensor.pin_memory().to() for tensor in tensors]
        assert update.batches == [on_device[:2], on_device[2:]]
        assert update.normalizers == [log.normalizers()] * 2
        log.reset_mock()
