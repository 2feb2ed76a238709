"""Runs tasks in a pool of processes on this machine, or on a Ray cluster.

A task is a pure function of its arguments and commits its output atomically. So an engine may run tasks in
any order, run one twice, and kill one at any time: the output is the same.
"""

from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, Self, TypeVar

from brimful.base.console import progress, warn
from brimful.base.errors import BrimfulError
from brimful.base.system import usable_cores
from brimful.corpus.engines.outcomes import Died, Done, Failed, Lost, Outcome

MOST_LOSSES = 3
"""A task during which this many machines were lost is not tried again: it may be what ends them."""

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True, kw_only=True)
class EngineConfig:
    """Where tasks run; the output does not depend on it."""

    engine: Literal["local", "ray"] = "local"
    """A pool of processes on this machine, or a running Ray cluster: at RAY_ADDRESS, or the one of this
    machine."""
    workers: int = 0
    """How many tasks run at once; 0 means one for each core (with ray, each CPU of the cluster)."""


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

    Raises:
        BrimfulError: a negative number of workers.
    """

    def __init__(self, config: EngineConfig) -> None:
        if config.workers < 0:
            raise BrimfulError(f"workers={config.workers}: workers must be 0 or more")
        self._config = config
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

        A task whose worker process dies is tried once more, alone, in case memory was short. A task whose
        machine is lost is tried again, with others beside it. An exception of a task is raised here
        unchanged. In each case no task is running when this returns.

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
        if function.__module__ == "__main__":
            raise BrimfulError(
                f"{function.__qualname__} is defined in the script that was started, which worker processes "
                "cannot import; move it to a module"
            )
        if not tasks:
            return []
        if self._backend is None:
            self._backend = _backend(self._config)
        return _Run(self._backend, function, tasks, name, explained).results(title)


def _backend(config: EngineConfig) -> Backend:
    if config.engine == "ray":
        from brimful.corpus.engines.ray_engine import RayCluster

        return RayCluster(config.workers)
    from brimful.corpus.engines.local_pool import LocalPool

    return LocalPool(config.workers or usable_cores())


@dataclass
class _Run:
    """The state of one `Engine.run`: which tasks are waiting, running and done."""

    backend: Backend
    function: Callable[[Any], Any]
    tasks: Sequence[Any]
    name: Callable[[Any], str]
    explained: Callable[[Any], int]

    def __post_init__(self) -> None:
        self.waiting = deque(range(len(self.tasks)))
        self.retries: deque[int] = deque()
        self.running: set[int] = set()
        self.done: dict[int, Any] = {}
        self.deaths: Counter[int] = Counter()
        self.losses: Counter[int] = Counter()
        self.explanations: dict[int, int] = {}

    def results(self, title: str) -> list[Any]:
        try:
            with progress(title, len(self.tasks)) as advance:
                while len(self.done) < len(self.tasks):
                    self._fill()
                    for number, outcome in self.backend.wait():
                        self.running.discard(number)
                        match outcome:
                            case Done(value):
                                self.done[number] = value
                                advance(1, self.name(self.tasks[number]))
                            case Failed(error):
                                raise error
                            case Died(how):
                                self._note_death(number, how)
                            case Lost():
                                self._note_loss(number)
        finally:
            if self.running:
                self.backend.stop()
        return [self.done[number] for number in range(len(self.tasks))]

    def _fill(self) -> None:
        """Start waiting tasks. A task on which a worker died runs alone."""
        if self.retries or any(self.deaths[number] for number in self.running):
            if not self.running:
                self._start(self.retries.popleft())
            return
        while self.waiting and len(self.running) < self.backend.slots:
            self._start(self.waiting.popleft())

    def _start(self, number: int) -> None:
        self.explanations.setdefault(number, self.explained(self.tasks[number]))
        self.backend.start(number, self.function, self.tasks[number])
        self.running.add(number)

    def _note_death(self, number: int, how: str) -> None:
        task = self.tasks[number]
        if (explained := self.explained(task)) > self.explanations[number]:
            self.explanations[number] = explained
            self.waiting.appendleft(number)
            return
        self.deaths[number] += 1
        if self.deaths[number] > 1:
            raise BrimfulError(
                f"a worker process {how} while it worked on {self.name(task)}, and so did one before it; run "
                "again with workers=1 or without that input: what is finished is kept"
            )
        warn(f"a worker process {how} while it worked on {self.name(task)}; trying again")
        self.retries.append(number)

    def _note_loss(self, number: int) -> None:
        self.losses[number] += 1
        name = self.name(self.tasks[number])
        if self.losses[number] >= MOST_LOSSES:
            raise BrimfulError(
                f"{MOST_LOSSES} machines were lost while they worked on {name}; run again without that input,"
                " or on machines with more memory: what is finished is kept"
            )
        warn(f"a machine was lost while it worked on {name}; trying again")
        self.waiting.appendleft(number)
