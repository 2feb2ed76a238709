"""The queue, without threads: batches within budgets, first come first served, nothing lost, nothing answered
twice."""

from collections import Counter
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brimful.batching.queue import LeftError, Queue, QueuedRequest, QueuedText, RefusedError

REQUESTS, TOKENS, SECONDS = 6, 60, 5


@dataclass(eq=False)
class Budgeted:
    """A model, as far as the queue knows it."""

    budget: int
    workers: int = 1


@dataclass
class Tokenized:
    """A text, as far as the queue knows it."""

    length: int


class Simulation:
    """A queue whose clock, clients and engine the test moves."""

    def __init__(self) -> None:
        self.now = 0.0
        self.over: list[QueuedRequest] = []
        self.queue = Queue(REQUESTS, self.over.extend, clock=lambda: self.now)
        self.queue.most_tokens = TOKENS
        self.models = Budgeted(10), Budgeted(25, workers=2)
        self.jobs: list[QueuedRequest] = []
        self.gone: set[int] = set()
        self.taken: list[QueuedText] = []
        self.computing: list[list[QueuedText]] = []

    def arrive(self, model: int, lengths: list[int], paired: bool) -> None:
        number, texts = len(self.jobs), [str(length) for length in lengths]
        expected = 3 * len(texts)
        is_full = self.queue.requests == REQUESTS or (
            self.queue.requests > 0 and self.queue.tokens + expected > TOKENS
        )
        job = QueuedRequest(self.models[model], texts, texts if paired else None, tokens=expected)
        job.deadline, job.has_left = self.now + SECONDS, lambda: number in self.gone
        if is_full:
            with pytest.raises(RefusedError) as refused:
                self.queue.admit(job)
            assert refused.value.status == 429
            assert refused.value.wait is not None
        else:
            self.queue.admit(job)
            self.jobs.append(job)

    def read(self) -> None:
        jobs = self.queue.jobs()
        assert [job.number for job in jobs] == sorted(job.number for job in jobs)
        self.queue.put(
            [
                QueuedText(job, place, Tokenized(int(text)))
                for job in jobs
                for place, text in enumerate(job.texts)
            ]
        )

    def take(self) -> None:
        batch = self.queue.batch()
        if not batch:
            return
        (model,) = {row.job.model for row in batch}
        assert len({row.job.second is None for row in batch}) == 1
        assert sum(row.length for row in batch) <= model.budget or len(batch) == 1
        assert not any(row.job.is_over for row in batch)
        self.taken += batch
        self.computing.append(batch)
        assert sum(each[0].job.model is model for each in self.computing) <= model.workers

    def compute(self) -> None:
        if self.computing:
            batch = self.computing.pop(0)
            self.queue.complete(batch, [(row.job.number, row.place) for row in batch], 0.5)
            self.queue.computed(batch[0].job.model)

    def leave(self, number: int) -> None:
        self.gone.add(number)

    def wait(self, seconds: int) -> None:
        self.now += seconds
        self.queue.expire()


STEPS = st.one_of(
    st.tuples(
        st.just("arrive"),
        st.integers(0, 1),
        st.lists(st.integers(0, 30), min_size=1, max_size=6),
        st.booleans(),
    ),
    st.tuples(st.sampled_from(["read", "take", "compute"])),
    st.tuples(st.just("leave"), st.integers(0, 10)),
    st.tuples(st.just("wait"), st.integers(0, 4)),
)


@given(st.lists(STEPS, max_size=60))
def test_every_job_is_over_once_and_right(steps: list[tuple]) -> None:
    world = Simulation()
    for name, *values in steps:
        getattr(world, name)(*values)
    world.gone.clear()
    for _ in range(200):
        world.read()
        world.take()
        world.compute()
    assert Counter(map(id, world.over)) == Counter(map(id, world.jobs))
    for job in world.jobs:
        if job.error is None:
            assert job.results == [(job.number, place) for place in range(len(job.texts))]
        else:
            assert isinstance(job.error, LeftError | RefusedError)
    assert (world.queue.requests, world.queue.tokens) == (0, 0)
    for model in world.models:
        for paired in (False, True):
            turns = [
                (row.job.number, row.place)
                for row in world.taken
                if row.job.model is model and (row.job.second is not None) == paired
            ]
            assert turns == sorted(set(turns))


@given(st.lists(st.tuples(st.integers(0, 1), st.integers(1, 30)), min_size=1, max_size=REQUESTS))
def test_the_oldest_text_has_its_turn_and_batches_are_as_full_as_its_model_allows(
    jobs: list[tuple[int, int]],
) -> None:
    world = Simulation()
    world.queue.most_tokens = 10**6
    for model, length in jobs:
        world.arrive(model, [length], False)
    while world.queue.requests:
        world.read()
        waiting = [row for line in world.queue._ready.values() for row in line]
        world.take()
        (batch,) = world.computing
        assert batch[0].job.number == min(row.job.number for row in waiting)
        left = [row for row in waiting if row not in batch and row.job.model is batch[0].job.model]
        if left:
            assert sum(row.length for row in batch) + left[0].length > batch[0].job.model.budget
        world.compute()


def test_a_closed_queue_accepts_nothing_and_ends_what_it_has() -> None:
    world = Simulation()
    world.arrive(0, [3], False)
    world.queue.closed = True
    with pytest.raises(RefusedError) as refused:
        world.queue.admit(QueuedRequest(world.models[0], ["a"]))
    assert refused.value.status == 503
    world.read()
    world.take()
    world.compute()
    assert [job.results for job in world.over] == [[(0, 0)]]


def test_a_stopped_queue_ends_what_it_has_and_hands_out_nothing() -> None:
    world = Simulation()
    world.arrive(0, [3, 4], False)
    world.read()
    world.queue.stop(RefusedError(500, "lost"))
    assert [str(job.error) for job in world.over] == ["lost"]
    assert world.queue.wait_for_batch() is None
    assert world.queue.wait_for_jobs() is None


def test_a_job_that_was_left_before_its_turn_keeps_no_texts() -> None:
    world = Simulation()
    world.arrive(0, [3], False)
    world.arrive(0, [4], False)
    first, second = world.jobs
    world.gone.add(second.number)
    world.queue.expire()
    assert isinstance(second.error, LeftError)
    assert (first.texts, second.texts) == (["3"], [])
    world.read()
    world.gone.add(first.number)
    world.queue.expire()
    assert first.texts == ["3"]  # it is being read


def test_the_largest_job_is_accepted_alone() -> None:
    world = Simulation()
    world.arrive(0, [1] * 100, False)
    assert len(world.jobs) == 1
    world.arrive(0, [1], False)
    assert len(world.jobs) == 1


def test_a_late_job_that_is_being_computed_is_answered() -> None:
    world = Simulation()
    world.arrive(0, [9, 9], False)
    world.arrive(0, [9], False)
    world.read()
    world.read()
    world.take()
    world.wait(SECONDS)
    late, other = world.jobs
    assert [getattr(job.error, "status", None) for job in (late, other)] == [504, 504]  # rows of both wait
    world = Simulation()
    world.arrive(0, [9], False)
    world.read()
    world.take()
    world.wait(SECONDS)
    world.compute()
    assert world.over[0].error is None
