"""Run tasks in a pool of processes on this machine.

A task is a pure function of its arguments and commits its output atomically. So an engine may run tasks in
any order, run one twice, and kill one at any time: the output is the same.
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Self, TypeVar

from brimful.base.console import show_progress, warn
from brimful.base.errors import BrimfulError
from brimful.base.machine import count_cores
from brimful.corpus.engines import local_pool
from brimful.corpus.engines.local_pool import DiedError

T = TypeVar("T")
R = TypeVar("R")


class Engine:
    """Runs tasks; a context manager, whose worker processes serve several `run` calls and end with it.

    Tasks always run in other processes: a task that hangs or dies disturbs no other.

    Args:
        workers: how many tasks run at once; 0 means one for each core.
    """

    def __init__(self, workers: int = 0) -> None:
        self._pool = local_pool.LocalPool(workers or count_cores())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.close()

    def run(
        self,
        function: Callable[[T], R],
        tasks: Sequence[T],
        title: str,
        name: Callable[[T], str] = str,
        count_causes: Callable[[T], int] = lambda task: 0,
    ) -> list[R]:
        """Run `function` on every task and return the results in the order of the tasks.

        A task whose worker process dies is tried once more after the others, alone, in case memory was short.
        An exception of a task is raised here unchanged. No task is running when this returns or raises.

        Args:
            function: a function that another process can import by name.
            title: the text of the progress bar.
            name: returns the name of a task in messages.
            count_causes: returns how many causes of death a task has noted and will avoid. A death that adds
                one does not count against the task: see brimful.corpus.engines.watchdog.

        Raises:
            BrimfulError: two workers died on the same task, or workers cannot start.
        """
        if not tasks:
            return []
        pool = self._pool
        # Tasks are known by their index. Those that died run last, one at a time.
        waiting = deque(range(len(tasks)))
        died, last = set[int](), deque[int]()
        causes_before = [count_causes(task) for task in tasks]
        results: dict[int, R] = {}
        running = 0
        try:
            with show_progress(title, len(tasks)) as advance:
                while len(results) < len(tasks):
                    if not running and not waiting:
                        waiting.append(last.popleft())
                    while waiting and running < pool.slots:
                        number = waiting.popleft()
                        pool.start(number, function, tasks[number])
                        running += 1
                    for number, (value, error) in pool.wait():
                        task, running = tasks[number], running - 1
                        if error is None:
                            results[number] = value
                            advance(1, name(task))
                        elif not isinstance(error, DiedError):
                            raise error
                        elif (causes := count_causes(task)) > causes_before[number]:
                            causes_before[number] = causes
                            waiting.appendleft(number)
                        else:
                            _report_death(name(task), error, is_second=number in died)
                            died.add(number)
                            last.append(number)
        finally:
            pool.stop()
        return [results[number] for number in range(len(tasks))]


def _report_death(name: str, error: DiedError, *, is_second: bool) -> None:
    if is_second:
        raise BrimfulError(
            f"a worker process {error} while it worked on {name}, and so did one before it; run again with"
            " workers=1 or without that input: finished work is kept"
        )
    warn(f"a worker process {error} while it worked on {name}; trying again after the others")
