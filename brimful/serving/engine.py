"""The two threads behind the queue: one tokenizes the next batches beside the one that computes."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from itertools import groupby
from typing import Any

from brimful.console import say
from brimful.errors import BrimfulError, is_out_of_memory
from brimful.serving.bodies import RefusedError
from brimful.serving.metrics import Metrics
from brimful.serving.queue import Job, Queue, Row


class Engine:
    """The threads.

    Attributes:
        lost: why one of them has ended, which none should; None: they run.
    """

    def __init__(self, queue: Queue, metrics: Metrics) -> None:
        self.queue, self.metrics = queue, metrics
        self.lost: str | None = None
        for name, work in (("tokenize", self._tokenize), ("compute", self._compute)):
            threading.Thread(target=self._run, args=(work,), name=name, daemon=True).start()

    def call(self, function: Callable[[], Any]) -> Any:
        """What a function returns that the computing thread calls between two batches."""
        future: Future[Any] = Future()

        def run() -> None:
            try:
                future.set_result(function())
            except Exception as error:
                future.set_exception(error)

        self.queue.call(run)
        return future.result()

    def _run(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:
            self.lost = f"the engine has stopped ({type(error).__name__}); start the server again"
            say(f"serve: {self.lost}")
            self.queue.stop(RefusedError(500, self.lost))

    def _tokenize(self) -> None:
        while (jobs := self.queue.wait_for_jobs()) is not None:
            jobs.sort(key=lambda job: (id(job.model), -1 if job.overlap is None else job.overlap, job.number))
            for _, group in groupby(jobs, key=lambda job: (id(job.model), job.overlap)):
                self._tokenize_alike(list(group))

    def _tokenize_alike(self, jobs: list[Job]) -> None:
        started = time.monotonic()
        try:
            rows, refused = jobs[0].model.rows(jobs)
        except Exception as error:
            self.queue.fail(jobs, _failure(jobs[0], error))
            return
        seconds = time.monotonic() - started
        for job in jobs:
            job.tokenizing = seconds
        for job, refusal in refused:
            self.queue.fail([job], refusal)
        self.queue.put(rows)

    def _compute(self) -> None:
        while (batch := self.queue.wait_for_batch()) is not None:
            if callable(batch):
                batch()
            else:
                self._answer(batch)

    def _answer(self, rows: list[Row]) -> None:
        """Compute a batch; if that fails, each of its requests by itself, so that none fails for another."""
        model = rows[0].job.model
        started = time.monotonic()
        try:
            results = model.answers(rows)
        except Exception as error:
            jobs = list({id(row.job): row.job for row in rows}.values())
            self.metrics.failures.labels(model.name).inc()
            if len(jobs) == 1:
                self.queue.fail(jobs, _failure(jobs[0], error))
            else:
                for job in jobs:
                    self._answer([row for row in rows if row.job is job])
            return
        seconds = time.monotonic() - started
        tokens = sum(row.length for row in rows)
        self.metrics.batches.labels(model.name).inc()
        self.metrics.texts.labels(model.name).inc(len(rows))
        self.metrics.tokens.labels(model.name).inc(tokens)
        self.metrics.batch_seconds.observe(seconds)
        self.metrics.batch_tokens.observe(tokens)
        self.queue.complete(rows, results, seconds)


def _failure(job: Job, error: Exception) -> RefusedError:
    """The answer to a request that the model could not compute; a line says so, without its texts."""
    if is_out_of_memory(error):
        why = "out of memory; send fewer or shorter texts"
    elif isinstance(error, BrimfulError):
        why = str(error)
    else:
        why = f"{type(error).__name__} in the model"
    say(f"serve: {job.model.name}: {why}")
    return RefusedError(500, f"{job.model.name}: {why}")
