"""Models behind one queue and one engine, for callers on an asyncio loop."""

import asyncio
from collections.abc import Callable, Sequence

from brimful.batching.engine import BatchEngine, Part
from brimful.batching.model import BatchModel
from brimful.batching.queue import QueuedRequest, RefusedError, RequestQueue

QUEUED = 0.25
"""Part of the deadline in which the slowest model computes what is accepted: in time even where refusals, and
other processes, leave the engine a third of the speed that it was measured with."""


class Service:
    """What all requests share.

    Attributes:
        models: by name; empty until they are loaded.
    """

    def __init__(
        self,
        most_requests: int,
        most_tokens: int | None,
        deadline: float,
        computed: Callable[[Sequence[Part], float | None], None],
    ) -> None:
        """
        Args:
            most_requests, most_tokens: that are accepted and not answered yet; None: as many tokens as the
                slowest model reads in `QUEUED` of the deadline.
            deadline: seconds that a request may wait.
            computed: as of `BatchEngine`.
        """
        self.models: dict[str, BatchModel] = {}
        self.queue = RequestQueue(most_requests, self._over)
        self.engine = BatchEngine(self.queue, computed)
        self._most_tokens, self._deadline = most_tokens, deadline
        self._loop: asyncio.AbstractEventLoop | None = None

    def use(self, models: dict[str, BatchModel]) -> None:
        """Answer with these models from now on; requests that are accepted keep theirs."""
        queue, most = self.queue, self._most_tokens
        queue.speed = min(model.speed for model in models.values())
        queue.most_tokens = int(queue.speed * self._deadline * QUEUED) if most is None else most
        self.models = models
        self.engine.employ(max(model.workers for model in models.values()))

    @property
    def state(self) -> str:
        """ready, loading, draining, or why the engine has stopped."""
        if self.engine.lost:
            return self.engine.lost
        return "draining" if self.queue.closed else "ready" if self.models else "loading"

    def refuse_if_busy(self) -> None:
        """Refuse a request before it is read.

        Raises:
            RefusedError: 429 or 503.
        """
        self.queue.refuse_if_full()
        if not self.models:
            raise RefusedError(503, "the server is loading", 1)

    def model(self, name: str | None) -> BatchModel:
        """The model that a request means.

        Raises:
            RefusedError: it is not served, or the request must say which.
        """
        if name is None and len(self.models) == 1:
            return next(iter(self.models.values()))
        known = ", ".join(self.models)
        if name is None:
            raise RefusedError(422, f"several models are served; name one as model: {known}")
        if name not in self.models:
            raise RefusedError(404, f"no model is called {name!r:.100}; served: {known}")
        return self.models[name]

    async def finish(self, job: QueuedRequest) -> None:
        """Wait until a job is over.

        Raises:
            RefusedError, LeftError: why it has no results.
        """
        if job.texts:
            self._loop = asyncio.get_running_loop()
            job.future, job.deadline = self._loop.create_future(), self.queue.clock() + self._deadline
            self.queue.admit(job)
            await job.future
            job.queued = max(0.0, self.queue.clock() - job.arrived - job.tokenizing - job.computing)
            if job.error is not None:
                raise job.error

    def _over(self, jobs: list[QueuedRequest]) -> None:
        if jobs and self._loop is not None:
            self._loop.call_soon_threadsafe(_wake, jobs)


def _wake(jobs: list[QueuedRequest]) -> None:
    for job in jobs:
        if not job.future.done():
            job.future.set_result(None)
