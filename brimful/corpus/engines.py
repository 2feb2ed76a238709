"""Where tasks run: here, or in a pool of local processes.

A task is a pure function of its arguments that commits its output atomically, so an engine owns no
correctness: it may run a task twice, in any order, and kill it at any time.
"""

import os
import signal
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import connection, get_context, parent_process
from typing import TypeVar

from brimful.console import Advance, progress, warn
from brimful.errors import BrimfulError

T = TypeVar("T")
R = TypeVar("R")


def available_cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _die_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os._exit(1)


def _prepare_worker() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C: die at once and without a traceback
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # one process a core already
    threading.Thread(target=_die_with_parent, daemon=True).start()


def _pool(workers: int) -> ProcessPoolExecutor:
    return ProcessPoolExecutor(workers, mp_context=get_context("spawn"), initializer=_prepare_worker)


def run_tasks(
    function: Callable[[T], R], tasks: Sequence[T], workers: int, title: str, name: Callable[[T], str] = str
) -> list[R]:
    """Run `function` on every task and return the results in the order of the tasks.

    Args:
        function: importable by name, since worker processes are spawned.
        workers: processes; with one, everything runs in this process.
        title: what the progress bar says.
        name: what to call a task in an error message.

    Raises:
        BrimfulError: a worker was killed twice on the same task; the message names the task.
    """
    with progress(title, len(tasks)) as advance:
        if workers <= 1 or len(tasks) <= 1:
            results = []
            for task in tasks:
                results.append(function(task))
                advance(1, name(task))
            return results
        done: dict[int, R] = {}
        while len(done) < len(tasks):
            suspects = _run_in_pool(function, tasks, done, min(workers, len(tasks)), advance, name)
            if suspects:
                named = " or ".join(name(tasks[number]) for number in suspects)
                warn(f"a worker process was killed while it worked on {named}; trying again")
            for number in suspects:  # each alone, so that the guilty one can be named, or fits into memory
                if _run_in_pool(function, tasks, done, 1, advance, name, only=number):
                    raise BrimfulError(
                        f"a worker process was killed twice on {name(tasks[number])}, perhaps for lack of "
                        "memory; run again with workers=1 or without that input: what is finished is kept. "
                        "(A Python script that uses workers needs `if __name__ == '__main__':` around it.)"
                    )
        return [done[number] for number in range(len(tasks))]


def _run_in_pool(
    function: Callable[[T], R],
    tasks: Sequence[T],
    done: dict[int, R],
    workers: int,
    advance: Advance,
    name: Callable[[T], str],
    only: int | None = None,
) -> list[int]:
    """Run what is not `done` yet; return the tasks in flight when a worker died, none if all went well."""
    waiting = [n for n in range(len(tasks)) if n not in done] if only is None else [only]
    waiting.reverse()
    running: dict[Future[R], int] = {}
    pool = _pool(workers)
    try:
        while waiting or running:
            while waiting and len(running) < workers:
                number = waiting.pop()
                running[pool.submit(function, tasks[number])] = number
            finished, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in finished:
                number = running[future]
                done[number] = future.result()
                del running[future]
                advance(1, name(tasks[number]))
    except BrokenProcessPool:
        return sorted(running.values())
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
    return []
