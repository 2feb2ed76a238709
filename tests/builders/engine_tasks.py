"""Tasks for engines: they work, fail, hang, or end their process."""

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

from brimful.base.errors import BrimfulError
from brimful.corpus.engines.engine import Engine

Task = tuple[int, str]  # number, a folder for marks


ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[1]), *sys.path])}


def local(workers: int = 2) -> Engine:
    return Engine(workers=workers)


def square(task: Task) -> int:
    return task[0] ** 2


def count_attempts(task: Task) -> int:
    """Leaves a mark; returns how many there are of this task now."""
    marks = Path(task[1])
    (marks / f"{task[0]}-{os.getpid()}-{time.monotonic_ns()}").touch()
    return len(list(marks.glob(f"{task[0]}-*")))


def die_once(task: Task) -> int:
    if task[0] == 2 and count_attempts(task) == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return task[0] ** 2


def die_always(task: Task) -> int:
    count_attempts(task)
    if task[0] == 2:
        os.kill(os.getpid(), signal.SIGSEGV)
    return task[0]


def work_beside_a_death(task: Task) -> int:
    """Task 0 begins before task 1 dies and ends after."""
    attempts = count_attempts(task)
    if task[0] == 1 and attempts == 1:
        wait_for(lambda: any(Path(task[1]).glob("0-*")))
        os.kill(os.getpid(), signal.SIGKILL)
    if task[0] == 0:
        wait_for(lambda: any(Path(task[1]).glob("1-*")))
        time.sleep(0.3)
    return attempts


def leave(task: Task) -> int:
    sys.exit(3)


def fail(task: Task) -> int:
    if task[0] == 1:
        raise BrimfulError("the line for the user")
    if task[0] > 1:
        Path(task[1], f"started-{os.getpid()}").touch()
        time.sleep(100)
    return 0


class OddError(Exception):
    def __init__(self, first: int, second: int) -> None:
        super().__init__(f"{first} and {second}")


def fail_oddly(task: Task) -> int:
    raise OddError(1, 2)


def unpicklable(task: Task) -> object:
    return lambda: 0


def identity(task: Task) -> int:
    time.sleep(0.05)
    return os.getpid()


def settings(task: Task) -> tuple[str, list[str]]:
    return os.getcwd(), sys.path


def mark_and_sleep(task: Task) -> None:
    Path(task[1], f"{os.getpid()}").touch()
    time.sleep(100)


def tasks(folder: Path, count: int = 4) -> list[Task]:
    return [(number, str(folder)) for number in range(count)]


def wait_for(what: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not what():
        assert time.monotonic() < deadline, "it does not come about"
        time.sleep(0.01)


def gone(process: int) -> bool:
    """Whether a process has ended; one that only waits to be collected has."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return True
