"""Prefetching changes nothing: not the order, not where an error shows, and no thread outlives it."""

import threading
import time

import numpy as np
import pytest

from brimful.data.batch import PackedBatch, pack
from brimful.data.loader import prefetch
from brimful.data.rows import Cursor


class BrokenError(Exception):
    """What a stream may raise."""


class Counting:
    """A stream whose update n is one sequence of the token n; broken at `broken`, slow if asked."""

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
        return [pack([np.array([n])], max_length=1, pad=0)], {"n": n + 1}


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "prefetch"]


def numbers(stream: Counting, start: int, updates: int) -> list[tuple[int, int]]:
    loader = prefetch(stream, {"n": start}, updates)
    return [(int(batches[0].tokens[0]), cursor["n"]) for batches, cursor in loader]


@pytest.mark.parametrize("updates", [0, 1, 2, 50])
@pytest.mark.parametrize("seconds", [0.0, 0.002])
def test_order_and_cursors(updates: int, seconds: float) -> None:
    assert numbers(Counting(seconds=seconds), 3, updates) == [(n, n + 1) for n in range(3, 3 + updates)]
    assert not threads()


def test_a_resumed_loader_goes_on() -> None:
    whole = numbers(Counting(), 0, 20)
    *_, (_, cursor) = prefetch(Counting(), {"n": 0}, 8)
    assert whole[:8] + numbers(Counting(), cursor["n"], 12) == whole


@pytest.mark.parametrize("broken", [0, 1, 7])
def test_an_error_shows_at_its_update(broken: int) -> None:
    seen = []

    def read() -> None:
        for batches, _ in prefetch(Counting(broken), {"n": 0}, 20):
            seen.append(int(batches[0].tokens[0]))

    with pytest.raises(BrokenError, match=str(broken)):
        read()
    assert seen == list(range(broken))
    assert not threads()


def test_an_early_stop_ends_the_thread() -> None:
    stream = Counting()
    updates = prefetch(stream, {"n": 0}, 1_000_000)
    next(updates)
    updates.close()
    assert not threads()
    assert len(stream.taken) < 10
    before = len(stream.taken)
    time.sleep(0.02)
    assert len(stream.taken) == before


def test_an_error_of_the_reader_ends_the_thread() -> None:
    def read() -> None:
        for _ in prefetch(Counting(), {"n": 0}, 1_000_000):
            raise BrokenError

    with pytest.raises(BrokenError):
        read()
    ends = time.monotonic() + 5
    while threads() and time.monotonic() < ends:
        time.sleep(0.01)
    assert not threads()


def test_updates_are_made_ahead_but_not_without_bound() -> None:
    stream = Counting()
    updates = prefetch(stream, {"n": 0}, 1000)
    next(updates)
    ends = time.monotonic() + 5
    while len(stream.taken) < 3 and time.monotonic() < ends:
        time.sleep(0.01)
    time.sleep(0.05)
    assert 3 <= len(stream.taken) <= 5
    updates.close()
