"""The queue, without threads: slices and batches within budgets, whose turn it is, nothing lost, nothing
answered twice."""

import json
from collections import Counter
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brimful.serving.queue import (
    LONG,
    STRETCH,
    LeftError,
    QueuedRequest,
    RefusedError,
    RequestQueue,
    TextsToRead,
    Windows,
)

REQUESTS, TOKENS, SECONDS = 6, 60, 5


@dataclass(eq=False)
class Budgeted:
    """A model, as far as the queue knows it."""

    budget: int
    workers: int = 1
    pace: float = 10.0


@dataclass
class Tokenized:
    """A text, as far as the queue knows it."""

    lengths: list[int]


class Simulation:
    """A queue whose clock, clients and engine the test moves."""

    def __init__(self) -> None:
        self.now = 0.0
        self.over: list[QueuedRequest] = []
        self.queue = RequestQueue(REQUESTS, self.over.extend, clock=lambda: self.now)
        self.queue.most_tokens = TOKENS
        self.models = Budgeted(10), Budgeted(25, workers=2)
        self.jobs: list[QueuedRequest] = []
        self.gone: set[int] = set()
        self.reading: list[TextsToRead] = []
        self.read_texts: list[tuple[int, int]] = []
        self.taken: list[tuple[int, int, int]] = []
        self.computing: list[list[Windows]] = []

    def arrive(self, model: int, texts: list[list[int]], paired: bool = False, long: bool = False) -> bool:
        """A job; `texts` are the lengths of windows."""
        number, written = len(self.jobs), [repr(each).ljust(LONG + 1 if long else 1) for each in texts]
        beside = self.queue.tokens - max((job.tokens for job in self.jobs if not job.is_over), default=0)
        queue, expected = self.queue, 3 * len(texts)
        is_full = queue.requests > 0 and beside + expected > queue.most_tokens
        is_full = is_full or queue.requests == queue.most_requests
        job = QueuedRequest(self.models[model], written, written if paired else None, tokens=expected)
        job.deadline, job.has_left = self.now + SECONDS, lambda: number in self.gone
        if is_full:
            with pytest.raises(RefusedError) as refused:
                self.queue.admit(job)
            assert refused.value.status == 429
            assert refused.value.wait is not None
        else:
            self.queue.admit(job)
            self.jobs.append(job)
        return not is_full

    def read(self, long: bool = False) -> None:
        """Hand texts out to be tokenized."""
        parts = self.queue.texts_to_read(long=long)
        characters = [sum(map(len, (*part.texts, *(part.second or ())))) for part in parts]
        assert sum(characters) <= LONG or sum(len(part.texts) for part in parts) == 1
        assert not parts or long == any(size > LONG for size in characters)
        assert not any(part.job.is_over for part in parts)
        self.reading += parts

    def put(self) -> None:
        """Have tokenized the first of what was handed out."""
        if self.reading:
            part = self.reading.pop(0)
            self.read_texts += [(part.job.number, part.first + i) for i in range(len(part.texts))]
            self.queue.put(part, [Tokenized(json.loads(text)) for text in part.texts])

    def take(self) -> list[Windows]:
        batch = self.queue.batch()
        if batch:
            (model,) = {part.job.model for part in batch}
            assert len({part.job.second is None for part in batch}) == 1
            windows = [(part.job.number, part.text.place, i) for part in batch for i in range(*part[1:])]
            assert sum(part.length for part in batch) <= model.budget or len(windows) == 1
            assert not any(part.job.is_over for part in batch)
            self.taken += windows
            self.computing.append(batch)
            assert sum(each[0].job.model is model for each in self.computing) <= model.workers
        return batch

    def compute(self) -> None:
        if self.computing:
            batch = self.computing.pop(0)
            outputs = [(part.job.number, part.text.place, i) for part in batch for i in range(*part[1:])]
            whole = self.queue.keep(batch, outputs, 0.5)
            for text in whole:
                count = range(len(text.reading.lengths))
                assert text.outputs == [(text.job.number, text.place, i) for i in count]
            self.queue.complete(whole, [(text.job.number, text.place) for text in whole])
            self.queue.computed(batch[0].job.model)

    def leave(self, number: int) -> None:
        self.gone.add(number)

    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.queue.expire()

    def read_all(self) -> None:
        """Tokenize what is wanted, and compute nothing."""
        for long in (False, True):
            self.read(long) if self.queue._unread[long] else None
        while self.reading:
            self.put()

    def finish(self) -> None:
        """Do all that is left."""
        while self.queue.requests or self.computing:
            self.read_all()
            self.take()
            self.compute()
        assert self.take() == []  # what is left in lines is of jobs that are over
        assert (self.queue.requests, self.queue.tokens, self.queue._ready_tokens) == (0, 0, 0)


STEPS = st.one_of(
    st.tuples(
        st.just("arrive"),
        st.integers(0, 1),
        st.lists(st.lists(st.integers(0, 30), min_size=1, max_size=4), min_size=1, max_size=6),
        st.booleans(),
        st.booleans(),
    ),
    st.tuples(st.just("read"), st.booleans()),
    st.tuples(st.sampled_from(["put", "take", "compute"])),
    st.tuples(st.just("leave"), st.integers(0, 10)),
    st.tuples(st.just("wait"), st.integers(0, 4)),
)


@given(st.lists(STEPS, max_size=60))
def test_every_job_is_over_once_and_right(steps: list[tuple]) -> None:
    world = Simulation()
    for name, *values in steps:
        if name == "read" and not world.queue._unread[values[0]]:
            continue
        getattr(world, name)(*values)
    world.gone.clear()
    world.finish()
    assert Counter(map(id, world.over)) == Counter(map(id, world.jobs))
    for job in world.jobs:
        if job.error is None:
            assert job.results == [(job.number, place) for place in range(len(job.results))]
        else:
            assert isinstance(job.error, LeftError | RefusedError)
    assert len(set(world.taken)) == len(world.taken)
    assert len(set(world.read_texts)) == len(world.read_texts)


@given(st.lists(st.tuples(st.integers(0, 1), st.integers(1, 30)), min_size=1, max_size=REQUESTS))
def test_the_oldest_text_has_its_turn_and_batches_are_as_full_as_its_model_allows(
    jobs: list[tuple[int, int]],
) -> None:
    world = Simulation()
    world.queue.most_tokens = 10**6
    for model, length in jobs:
        world.arrive(model, [[length]])
    while world.queue.requests:
        world.read_all()
        waiting = [text for line in world.queue._ready.values() for *_, text in line]
        batch = world.take()
        assert batch[0].job.number == min(text.job.number for text in waiting)
        left = [text for text in waiting if not text.taken and text.job.model is batch[0].job.model]
        if left:
            oldest = min(left, key=lambda text: text.job.number)
            assert sum(part.length for part in batch) + sum(oldest.reading.lengths) > oldest.job.model.budget
        world.compute()


def test_short_jobs_pass_a_long_one_which_goes_on_beside_them() -> None:
    """A batch takes a second. Of a text of 200 windows and a short text each second, half of what can be
    computed is wanted by the short ones at first, all of it later."""
    world = Simulation()
    world.queue.most_requests = world.queue.most_tokens = 10**6
    world.arrive(0, [[10] * 200], long=True)
    world.jobs[0].deadline = float("inf")
    world.read_all()
    waits, long = [], 0
    for second in range(80):
        if second >= 40 or second % 2:
            assert world.arrive(0, [[10]])
        world.read_all()
        (part,) = world.take()
        long += part.job.number == 0
        world.now += 1
        if part.job.number:
            waits.append(world.now - part.job.arrived)
        world.compute()
        if second == 39:
            assert long == 20
            assert max(waits) <= 2  # the batch that is being computed, and its own
    assert long == 20 + 40 // (STRETCH + 1)


def test_texts_of_long_jobs_are_tokenized_in_slices_between_which_short_ones_pass() -> None:
    world = Simulation()
    world.queue.most_tokens = 10**6
    world.arrive(0, [[3]] * 1000)
    world.read_all()
    first = len(world.read_texts)
    assert 1 <= first <= 4  # of three tokens, for a batch of ten
    world.arrive(0, [[3]])
    world.read_all()
    assert world.read_texts[first] == (1, 0)
    world.leave(0)
    world.read_all()
    assert isinstance(world.jobs[0].error, LeftError)
    assert len(world.read_texts) < 12  # and none after the client has left


def test_short_jobs_pass_one_whose_texts_take_longer_to_tokenize_than_to_compute() -> None:
    world = Simulation()
    world.queue.most_tokens = 10**6
    world.models[0].pace = 1e6
    assert world.arrive(0, [[1]] * 400)
    for _ in range(15):
        world.read()
        world.wait(0.25)  # in which a thread tokenizes
        assert world.arrive(0, [[1]])
        world.put()
        world.read()
        assert world.reading[0].job is world.jobs[-1]
        world.wait(0.01)
        while world.reading:
            world.put()
        while world.take():
            world.compute()


def test_a_text_that_takes_long_to_tokenize_has_a_line_of_its_own() -> None:
    world = Simulation()
    world.queue.most_tokens = 10**6
    world.arrive(0, [[3]] * 40, long=True)
    world.arrive(1, [[3]] * 5)
    world.read(long=True)
    (part,) = world.reading
    assert (part.job, len(part.texts)) == (world.jobs[0], 1)
    world.read()
    assert world.reading[1].job is world.jobs[1]
    world.wait(SECONDS)
    assert [job.error.status for job in world.over] == [504, 504]  # type: ignore[union-attr]
    assert world.queue.texts_to_read(long=True) == world.queue.texts_to_read() == []


def test_what_is_late_is_not_computed_on() -> None:
    world = Simulation()
    world.arrive(0, [[10] * 50])
    world.read_all()
    for _ in range(3):
        world.take()
        world.compute()
    world.wait(SECONDS)
    assert world.take() == []
    assert len(world.taken) == 3
    assert (world.queue.requests, world.queue.tokens, world.queue._ready_tokens) == (0, 0, 0)


def test_the_largest_job_takes_no_room_from_others_but_from_one_as_large() -> None:
    world = Simulation()
    assert world.arrive(0, [[1]] * 1000)
    assert not world.arrive(0, [[1]] * 1000)
    assert world.arrive(0, [[1]] * 10)
    assert world.arrive(0, [[1]] * 10)
    assert not world.arrive(0, [[1]])
    world.wait(SECONDS)
    assert world.arrive(0, [[1]])


def test_a_closed_queue_accepts_nothing_and_ends_what_it_has() -> None:
    world = Simulation()
    world.arrive(0, [[3]])
    world.queue.closed = True
    with pytest.raises(RefusedError) as refused:
        world.queue.admit(QueuedRequest(world.models[0], ["a"]))
    assert refused.value.status == 503
    world.read_all()
    world.take()
    world.compute()
    assert [job.results for job in world.over] == [[(0, 0)]]


def test_a_stopped_queue_ends_what_it_has_and_hands_out_nothing() -> None:
    world = Simulation()
    world.arrive(0, [[3], [4]])
    world.read_all()
    world.queue.stop(RefusedError(500, "lost"))
    assert [str(job.error) for job in world.over] == ["lost"]
    assert world.queue.wait_for_batch() is None
    assert world.queue.wait_for_texts() is None


def test_a_job_that_was_left_before_its_turn_keeps_no_texts() -> None:
    world = Simulation()
    world.arrive(0, [[3]])
    world.arrive(0, [[4]])
    first, second = world.jobs
    world.gone.add(second.number)
    world.queue.expire()
    assert isinstance(second.error, LeftError)
    assert (first.texts, second.texts) == (["[3]"], [])


def test_a_late_job_that_is_being_computed_is_answered() -> None:
    world = Simulation()
    world.arrive(0, [[9], [9]])
    world.arrive(0, [[9]])
    world.read_all()
    world.read_all()
    world.take()
    world.wait(SECONDS)
    late, other = world.jobs
    assert [getattr(job.error, "status", None) for job in (late, other)] == [504, 504]  # rows of both wait
    world = Simulation()
    world.arrive(0, [[9]])
    world.read_all()
    world.take()
    world.wait(SECONDS)
    world.compute()
    assert world.over[0].error is None
