"""A task under a watchdog, some of whose documents hang."""

import os
import re
import signal
import time
from pathlib import Path

from brimful.base.storage import atomic_file
from brimful.corpus.engines.watchdog import Watchdog

Task = tuple[str, int, float]  # path of the output, documents, seconds


def watch_path(task: Task) -> Path:
    out = Path(task[0])
    return out.with_name(f".watch-{out.name}")


def hang() -> None:
    """A C call that holds the interpreter's lock for longer than anyone lives."""
    re.match(r"(a+)+$", "a" * 60 + "b")


def watch(task: Task) -> list[tuple[int, int]]:
    """Write a line for each document; what files beside the output say makes a document or a gap go wrong."""
    out, documents, seconds = Path(task[0]), task[1], task[2]

    def told(what: str, record: int) -> bool:
        return (out.parent / f"{out.name}.{what}.{record}").exists()

    with atomic_file(out) as temporary, open(temporary, "w") as lines:
        with Watchdog(watch_path(task), seconds) as watchdog:
            for record in range(documents):
                if watchdog.begin(7, record):
                    lines.write(f"{record} hostile\n")
                    continue
                if told("hang", record):
                    hang()
                if told("kill", record):
                    (out.parent / f"{out.name}.kill.{record}").unlink()
                    os.kill(os.getpid(), signal.SIGKILL)
                if told("wait", record):
                    time.sleep(2 * seconds)
                lines.write(f"{record}\n")
                watchdog.end()
                if told("gap", record):
                    burn(3 * seconds)
        return sorted((input, record) for input, record in watchdog.hostile)


def burn(seconds: float) -> None:
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass


def lines(*hostile: int) -> str:
    return "".join(f"{record} hostile\n" if record in hostile else f"{record}\n" for record in range(6))
