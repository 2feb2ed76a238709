"""Runs command lines in forked children with limits; the parent has imported the package once."""

import faulthandler
import os
import pickle
import resource
import select
import shlex
import signal
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from brimful.corpus.engines import local_pool

SECONDS = 60
"""Of a processor; five times as many by the clock, since other programs may run."""
MEMORY = 4 << 30
"""Address space over the parent's."""
FILE_SIZE = 1 << 30
CRASHED = 70
"""Exit code of a child that ended with an exception."""


@dataclass(frozen=True)
class Run:
    """What a command line did.

    Attributes:
        code: its exit code; negative for a signal; None where time ran out.
        seconds: of the clock.
        memory: bytes of the largest resident set.
    """

    code: int | None
    out: str
    error: str
    seconds: float
    memory: int


class InlinePool(local_pool.LocalPool):
    """The workers of `prepare`, in this process: a new interpreter for each case would take seconds."""

    def start(self, number: int, function: Callable[[Any], Any], task: Any) -> None:
        self._busy[number] = pickle.loads(local_pool.attempt(pickle.dumps((function, task))))

    def wait(self) -> list[tuple[int, Any]]:
        ended = list(self._busy.items())
        self.stop()
        return ended

    def stop(self) -> None:
        self._busy.clear()


def prepare_parent() -> None:
    """Set this process up so that what it forks is quick: no threads, no fsync, workers inline."""
    os.environ |= {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false", "COLUMNS": "200"}
    import torch

    torch.set_num_threads(1)
    os.fsync = lambda descriptor: None  # type: ignore[assignment]
    local_pool.LocalPool = InlinePool  # type: ignore[assignment, misc]


def call(line: str) -> int:
    """Run a command line here; `NAME=value` before it sets the environment."""
    from brimful.cli.main import main

    words = shlex.split(line)
    while "=" in words[0]:
        name, _, value = words.pop(0).partition("=")
        os.environ[name] = value
    return main(words)


def _set_limits() -> None:
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    limits = {
        resource.RLIMIT_AS: used + MEMORY,
        resource.RLIMIT_FSIZE: FILE_SIZE,
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_CPU: SECONDS,
    }
    for kind, value in limits.items():
        hard = resource.getrlimit(kind)[1]
        resource.setrlimit(kind, (value if hard == resource.RLIM_INFINITY else min(value, hard), hard))


def _child(line: str, folder: Path, said: Path, killed_at: str | None) -> None:
    code = CRASHED
    try:
        os.setsid()
        for name, stream in (("out", 1), ("error", 2)):
            descriptor = os.open(said / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            os.dup2(descriptor, stream)
        sys.stdout, sys.stderr = (os.fdopen(stream, "w", closefd=False) for stream in (1, 2))  # not pytest's
        os.chdir(folder)
        _set_limits()
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        faulthandler.enable(file=2)
        faulthandler.register(signal.SIGXCPU, file=2, chain=True)
        faulthandler.dump_traceback_later(5 * SECONDS - 1, file=2)
        if killed_at:
            _die_at(killed_at)
        code = call(line)
    except BaseException:
        traceback.print_exc()
    finally:
        with suppress(BaseException):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _die_at(place: str) -> None:
    """End this process at once when a file or folder `place` has got its name."""
    rename = os.replace

    def replace(old: Any, new: Any, **options: Any) -> None:
        rename(old, new, **options)
        if Path(new).match(place):
            os._exit(137)

    os.replace = replace


def run(line: str, folder: Path, said: Path, *, killed_at: str | None = None) -> Run:
    """Run a command line in a child.

    Args:
        folder: where it runs.
        said: folder for its output.
        killed_at: end the child without a word as soon as this path is in place.
    """
    started = time.monotonic()
    sys.stdout.flush()
    sys.stderr.flush()
    process = os.fork()
    if process == 0:
        _child(line, folder, said, killed_at)
    with open(os.pidfd_open(process), "rb", buffering=0, closefd=True) as watched:
        ended = select.select([watched], [], [], 5 * SECONDS)[0]
    with suppress(ProcessLookupError):  # and whatever it has started
        os.killpg(process, signal.SIGKILL)
    _, status, used = os.wait4(process, 0)
    texts = [(said / name).read_bytes().decode("utf-8", "replace") for name in ("out", "error")]
    code = os.waitstatus_to_exitcode(status) if ended else None
    return Run(code, texts[0], texts[1], time.monotonic() - started, used.ru_maxrss * 1024)
