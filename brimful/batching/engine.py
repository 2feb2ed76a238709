"""The threads behind the queue: one tokenizes the next batches beside those that compute."""

import threading
import time
from collections.abc import Callable
from itertools import groupby, islice
from typing import Any

from brimful.batching.model import BatchModel
from brimful.batching.queue import Queue, QueuedRequest, QueuedText, RefusedError
from brimful.console import say
from brimful.errors import BrimfulError, is_out_of_memory


class BatchEngine:
    """The threads.

    Attributes:
        lost: why one of them has ended, which none should; empty while they run.
    """

    def __init__(self, queue: Queue, computed: Callable[[list[QueuedText], float | None], None]) -> None:
        """
        Args:
            computed: takes each batch, and the seconds that it took; None: it failed.
        """
        self.queue, self.lost, self._computed, self._workers = queue, "", computed, 0
        threading.Thread(target=self._run, args=(self._tokenize,), daemon=True).start()
        self.employ(1)

    def employ(self, workers: int) -> None:
        """Have at least `workers` threads that compute. Batches beside each other, each with its part of the
        cores, take less of them than one after the other with all, which wait for each other."""
        for _ in range(self._workers, workers):
            self._workers += 1
            threading.Thread(target=self._run, args=(self._compute,), daemon=True).start()

    def call(self, function: Callable[[], Any]) -> Any:
        """What a function returns that a computing thread calls between two batches."""
        return self.queue.call(function).result()

    def _run(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:
            self.lost = f"the engine has stopped ({type(error).__name__}); start the server again"
            say(f"serve: {self.lost}")
            self.queue.stop(RefusedError(500, self.lost))

    def _tokenize(self) -> None:
        while (jobs := self.queue.wait_for_jobs()) is not None:
            jobs.sort(key=lambda job: (id(job.model), job.overlap or -1, job.second is None))
            for _, alike in groupby(jobs, lambda job: (id(job.model), job.overlap, job.second is None)):
                self._read(list(alike))

    def _read(self, jobs: list[QueuedRequest]) -> None:
        """Tokenize jobs; if that fails, each by itself, so that none fails for another."""
        model, started = jobs[0].model, time.monotonic()
        texts = [text for job in jobs for text in job.texts]
        second = [text for job in jobs for text in job.second or ()] or None
        try:
            readings = iter(model.read(texts, second, jobs[0].overlap))
        except BaseException as error:  # a panic of the tokenizer is no Exception
            if len(jobs) == 1:
                is_ours = isinstance(error, BrimfulError)
                self.queue.fail(jobs, RefusedError(422, str(error)) if is_ours else _failure(model, error))
            for job in jobs[len(jobs) == 1 :]:
                self._read([job])
            return
        seconds, found = time.monotonic() - started, list[QueuedText]()
        for job in jobs:
            job.tokenizing = seconds
            mine = enumerate(islice(readings, len(job.texts)))
            rows = [QueuedText(job, place, reading) for place, reading in mine]
            if job.reject and (cut := [row.place for row in rows if row.reading.cut]):
                most = f"more tokens than the {model.served.max_length:,} that {model.name} reads"
                which = f"text {cut[0] + 1}" if len(rows) > 1 else "the text"
                self.queue.fail([job], RefusedError(422, f"{which} has {most}"))
            found += rows
        model.learn([row.reading for row in found])
        self.queue.put(found)

    def _compute(self) -> None:
        while (batch := self.queue.wait_for_batch()) is not None:
            if callable(batch):
                batch()
            else:
                self._answer(batch)
                self.queue.computed(batch[0].job.model)

    def _answer(self, rows: list[QueuedText]) -> None:
        """Compute a batch; if that fails, each of its requests by itself."""
        model, started = rows[0].job.model, time.monotonic()
        try:
            results = model.answers([row.reading for row in rows])
        except Exception as error:
            self._computed(rows, None)
            jobs = list(dict.fromkeys(row.job for row in rows))
            if len(jobs) == 1:
                self.queue.fail(jobs, _failure(model, error))
            for job in jobs[len(jobs) == 1 :]:
                self._answer([row for row in rows if row.job is job])
            return
        seconds = time.monotonic() - started
        self.queue.complete(rows, results, seconds)
        self._computed(rows, seconds)


def _failure(model: BatchModel, error: BaseException) -> RefusedError:
    """The answer to a request that failed in the model; a line says so, without its texts."""
    why = str(error) if isinstance(error, BrimfulError) else f"{type(error).__name__} in the model"
    why = "out of memory; send fewer or shorter texts" if is_out_of_memory(error) else why
    say(f"serve: {model.name}: {why}")
    return RefusedError(500, f"{model.name}: {why}")
