"""Runs tasks in a pool of processes on this machine, or on a Ray cluster.

A task is a pure function of its arguments and commits its output atomically. So an engine may run tasks in
any order, run one twice, and kill one at any time: the output is the same.
"""

from collections import Counter, deque
from collections.abc import Callable, Sequence
from typing import Any, Literal, Protocol, Self, TypeVar

from brimful.base.console import progress, warn
from brimful.base.errors import BrimfulError
from brimful.base.system import usable_cores
from brimful.corpus.engines.outcomes import DiedError, LostError, Outcome

MOST_LOSSES = 3
"""A task during which this many machines were lost is not tried again: it may be what ends them."""

T = TypeVar("T")
R = TypeVar("R")


class Backend(Protocol):
    """Runs single tasks, which it knows by their numbers."""

    slots: int

    def start(self, number: int, function: Callable[[Any], Any], task: Any) -> None: ...
    def wait(self) -> list[tuple[int, Outcome]]: ...
    def stop(self) -> None: ...
    def close(self) -> None: ...


class Engine:
    """Runs tasks; a context manager, whose worker processes serve several `run` calls and end with it.

    Tasks always run in other processes: a task that hangs or dies disturbs no other.

    Args:
        engine: processes on this machine, or a running Ray cluster.
        workers: how many tasks run at once; 0 means one for each core (with ray, each CPU of the cluster).
    """

    def __init__(self, engine: Literal["local", "ray"] = "local", workers: int = 0) -> None:
        self._engine, self._workers = engine, workers
        self._backend: Backend | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._backend is not None:
            self._backend.close()
            self._backend = None

    def run(
        self,
        function: Callable[[T], R],
        tasks: Sequence[T],
        title: str,
        name: Callable[[T], str] = str,
        explained: Callable[[T], int] = lambda task: 0,
    ) -> list[R]:
        """Run `function` on every task and return the results in the order of the tasks.

        A task whose worker process dies is tried once more after the others, alone, in case memory was short.
        A task whose machine is lost is tried again, with others beside it. An exception of a task is raised
        here unchanged. In each case no task is running when this returns.

        Args:
            function: can be imported by name in another process.
            title: the text of the progress bar.
            name: the name of a task in messages.
            explained: how many causes of death a task has found and will avoid. A death that adds one does
                not count against the task: see brimful.corpus.engines.watchdog.

        Raises:
            BrimfulError: two workers died on the same task, three machines were lost during the same task, or
                workers cannot start.
        """
        if not tasks:
            return []
        backend = self._backend = self._backend or _backend(self._engine, self._workers)
        waiting, alone = deque(range(len(tasks))), deque[int]()
        known = [explained(task) for task in tasks]
        died, losses = set[int](), Counter[int]()
        results: dict[int, R] = {}
        running = 0
        try:
            with progress(title, len(tasks)) as advance:
                while len(results) < len(tasks):
                    if not running and not waiting:
                        waiting.append(alone.popleft())
                    while waiting and running < backend.slots:
                        number = waiting.popleft()
                        backend.start(number, function, tasks[number])
                        running += 1
                    for number, (value, error) in backend.wait():
                        task, running = tasks[number], running - 1
                        if error is None:
                            results[number] = value
                            advance(1, name(task))
                        elif isinstance(error, LostError):
                            losses[number] += 1
                            _note_loss(name(task), losses[number])
                            waiting.appendleft(number)
                        elif not isinstance(error, DiedError):
                            raise error
                        elif (found := explained(task)) > known[number]:
                            known[number] = found
                            waiting.appendleft(number)
                        else:
                            _note_death(name(task), error, number in died)
                            died.add(number)
                            alone.append(number)
        finally:
            backend.stop()
        return [results[number] for number in range(len(tasks))]


def _backend(engine: str, workers: int) -> Backend:
    if engine == "ray":
        from brimful.corpus.engines.ray_engine import RayCluster

        return RayCluster(workers)
    from brimful.corpus.engines.local_pool import LocalPool

    return LocalPool(workers or usable_cores())


def _note_death(name: str, how: DiedError, again: bool) -> None:
    if again:
        raise BrimfulError(
            f"a worker process {how} while it worked on {name}, and so did one before it; run again with"
            " workers=1 or without that input: what is finished is kept"
        )
    warn(f"a worker process {how} while it worked on {name}; trying again after the others")


def _note_loss(name: str, losses: int) -> None:
    if losses >= MOST_LOSSES:
        raise BrimfulError(
            f"{MOST_LOSSES} machines were lost while they worked on {name}; run again without that input, or"
            " on machines with more memory: what is finished is kept"
        )
    warn(f"a machine was lost while it worked on {name}; trying again")
