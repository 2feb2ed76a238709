"""The queue, without threads: slices and batches within budgets, whose turn it is, nothing lost, nothing
answered twice."""

import json
from collections import Counter
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from brimful.serving.queue import (
    SLICE_CHARACTERS,
    STRETCH,
    LeftError,
    QueuedRequest,
    QueuedText,
    QueuedWindow,
    RefusedError,
    RequestQueue,
    UnreadText,
)

REQUESTS, TOKENS, SECONDS = 6, 60, 5


@dataclass(eq=False)
class Budgeted:
    """A model, as far as the queue knows it."""

    budget: int
    workers: int = 1
    speed: float = 10.0


def tokenized(unread: UnreadText) -> QueuedText:
    """A text of which each window has the length that it says."""
    windows = [np.zeros(length) for length in json.loads(unread.text)]
    return QueuedText(unread.text, None, windows, windows, [], request=unread.request, place=unread.place)


class Simulation:
    """A queue whose clock, clients and engine the test moves."""

    def __init__(self) -> None:
        self.now = 0.0
        self.over: list[QueuedRequest] = []
        self.queue = RequestQueue(REQUESTS, self.over.extend, clock=lambda: self.now)
        self.queue.max_tokens = TOKENS
        self.models = Budgeted(10), Budgeted(25, workers=2)
        self.requests: list[QueuedRequest] = []
        self.gone: set[int] = set()
        self.reading: list[UnreadText] = []
        self.read_texts: list[tuple[int, int]] = []
        self.taken: list[tuple[int, int, int]] = []
        self.computing: list[list[QueuedWindow]] = []

    def arrive(self, model: int, texts: list[list[int]], paired: bool = False, size: int = 1) -> bool:
        """A request; `texts` are the lengths of windows, and `size` the least characters of each."""
        number, written = len(self.requests), [repr(each).ljust(size) for each in texts]
        largest = max((request.tokens for request in self.requests if not request.is_over), default=0)
        queue, expected = self.queue, 3 * len(texts)
        is_full = queue.requests > 0 and queue.tokens - largest + expected > queue.max_tokens
        is_full = is_full or queue.requests == queue.max_requests
        request = QueuedRequest(self.models[model], written, written if paired else None, tokens=expected)
        request.deadline, request.has_left = self.now + SECONDS, lambda: number in self.gone
        if is_full:
            with pytest.raises(RefusedError) as refused:
                self.queue.admit(request)
            assert refused.value.status == 429
            assert refused.value.wait is not None
        else:
            self.queue.admit(request)
            self.requests.append(request)
        return not is_full

    def read(self) -> None:
        """Hand texts out to be tokenized."""
        found = self.queue.take_texts()
        sizes = [len(each.text) + len(each.second or "") for each in found]
        assert sum(sizes) <= SLICE_CHARACTERS or len(found) == 1
        assert not any(each.request.is_over for each in found)
        self.reading += found

    def put(self) -> None:
        """Have tokenized the first of what was handed out."""
        if self.reading:
            unread = self.reading.pop(0)
            self.read_texts.append((unread.request.number, unread.place))
            self.queue.add_tokenized([tokenized(unread)])

    def take(self) -> list[QueuedWindow]:
        batch, running = self.queue.take_batch(), Counter(each[0].request.model for each in self.computing)
        if not batch:  # else an engine would wait in vain
            assert not any(each.ready and running[each.model] < each.model.workers for each in self.requests)
            return batch
        (model,) = {window.request.model for window in batch}
        assert len({window.request.second is None for window in batch}) == 1
        assert sum(window.length for window in batch) <= model.budget or len(batch) == 1
        assert not any(window.request.is_over for window in batch)
        assert running[model] < model.workers
        self.taken += self.names(batch)
        self.computing.append(batch)
        return batch

    def names(self, batch: list[QueuedWindow]) -> list[tuple[int, int, int]]:
        return [(window.request.number, window.text.place, window.place) for window in batch]

    def compute(self) -> None:
        if self.computing:
            batch = self.computing.pop(0)
            model = batch[0].request.model
            whole = self.queue.store_outputs(batch, self.names(batch))
            for text in whole:
                count = range(len(text.lengths))
                assert text.outputs == [(text.request.number, text.place, place) for place in count]
            self.queue.complete(whole)
            self.queue.end_batch(model)

    def leave(self, number: int) -> None:
        self.gone.add(number)
        self.queue.expire()

    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.queue.expire()

    def read_all(self) -> None:
        """Tokenize all that waits, and compute nothing."""
        while self.queue._unread:
            self.read()
        while self.reading:
            self.put()

    def finish(self) -> None:
        """Do all that is left."""
        while self.queue.requests or self.computing:
            self.read_all()
            self.take()
            self.compute()
        assert self.take() == []  # what is left in lines is of requests that are over
        assert (self.queue.requests, self.queue.tokens, self.queue._running) == (0, 0, {})


STEPS = st.one_of(
    st.tuples(
        st.just("arrive"),
        st.integers(0, 1),
        st.lists(st.lists(st.integers(0, 30), min_size=1, max_size=4), min_size=1, max_size=6),
        st.booleans(),
        st.sampled_from([1, SLICE_CHARACTERS + 1]),
    ),
    st.tuples(st.sampled_from(["read", "put", "take", "compute"])),
    st.tuples(st.just("leave"), st.integers(0, 10)),
    st.tuples(st.just("wait"), st.integers(0, 4)),
)


@given(st.lists(STEPS, max_size=60))
@example([("arrive", 0, [[1]] * 1000), ("arrive", 0, [[1]] * 20), ("arrive", 0, [[1]])])
def test_every_request_is_over_once_and_right(steps):
    world = Simulation()
    for name, *values in steps:
        getattr(world, name)(*values)
    world.gone.clear()
    world.finish()
    assert Counter(map(id, world.over)) == Counter(map(id, world.requests))
    for request in world.requests:
        if request.error is None:
            assert [text.place for text in request.results] == list(range(len(request.results)))
            assert not any(text.missing for text in request.results)
        else:
            assert isinstance(request.error, LeftError | RefusedError)
    assert len(set(world.taken)) == len(world.taken)
    assert len(set(world.read_texts)) == len(world.read_texts)


@given(st.lists(st.tuples(st.integers(0, 1), st.integers(1, 30)), min_size=1, max_size=REQUESTS))
def test_the_oldest_text_has_its_turn_and_batches_are_as_full_as_its_model_allows(requests):
    world = Simulation()
    world.queue.max_tokens = 10**6
    for model, length in requests:
        world.arrive(model, [[length]])
    world.read_all()
    while world.queue.requests:
        waiting = [request.ready[0] for line in world.queue._ready.values() for *_, request in line]
        batch = world.take()
        assert batch[0].request.number == min(text.request.number for text in waiting)
        left = [
            text for text in waiting if not text.next_window and text.request.model is batch[0].request.model
        ]
        if left:
            oldest = min(left, key=lambda text: text.request.number)
            budget = oldest.request.model.budget
            assert sum(window.length for window in batch) + sum(oldest.lengths) > budget
        world.compute()


def test_short_requests_pass_a_long_one_which_goes_on_beside_them():
    """A batch takes a second. Of a text of 200 windows and a short text each second, half of what can be
    computed is wanted by the short ones at first, all of it later."""
    world = Simulation()
    world.queue.max_requests = world.queue.max_tokens = 10**6
    world.arrive(0, [[10] * 200], size=SLICE_CHARACTERS + 1)
    world.requests[0].deadline = float("inf")
    world.read_all()
    waits, long = [], 0
    for second in range(80):
        if second >= 40 or second % 2:
            assert world.arrive(0, [[10]])
        world.read_all()
        (window,) = world.take()
        long += window.request.number == 0
        world.now += 1
        if window.request.number:
            waits.append(world.now - window.request.arrived)
        world.compute()
        if second == 39:
            assert long == 20
            assert max(waits) <= 2  # the batch that is being computed, and its own
    assert long == 20 + 40 // (STRETCH + 1)


@pytest.mark.parametrize(("texts", "size"), [(10_000, 3), (40, SLICE_CHARACTERS + 1)])
def test_texts_of_long_requests_are_tokenized_in_slices_between_which_short_ones_pass(texts, size):
    world = Simulation()
    world.queue.max_tokens = 10**6
    world.arrive(0, [[3]] * texts, size=size)
    world.read()
    first = len(world.reading)
    assert first == max(1, SLICE_CHARACTERS // size)
    world.arrive(0, [[3]])
    world.read()
    world.read()
    assert world.requests[1] in [each.request for each in world.reading[first:]]
    world.leave(0)
    known = len(world.reading)
    world.read()
    assert isinstance(world.requests[0].error, LeftError)
    assert len(world.reading) == known  # none after the client has left


def test_a_late_request_that_is_being_computed_is_answered():
    world = Simulation()
    world.arrive(0, [[9]])
    world.arrive(1, [[9], [9], [9]])  # the third waits
    world.read_all()
    assert [len(world.take()), len(world.take())] == [1, 2]
    world.wait(SECONDS)
    world.compute()
    assert [getattr(request.error, "status", None) for request in world.requests] == [None, 504]
    assert world.requests[0].is_over
