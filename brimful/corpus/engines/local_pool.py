"""A pool of processes on this machine; if one dies, the others go on.

A worker is a new interpreter. It is not a fork, because the caller may have threads, and not a
`multiprocessing` child, which would import the caller's script again. So no script needs
`if __name__ == "__main__":`, and notebooks and `python -c` work. One socket connects a worker with its
caller. When it closes, because the caller closed the pool or was killed, the worker ends too.
"""

import os
import pickle
import select
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable
from contextlib import nullcontext, suppress
from multiprocessing import connection
from socket import socketpair
from typing import Any

from brimful.base.console import is_printing, print_messages
from brimful.base.errors import BrimfulError

PROGRAM = """
import sys
sys.path[:] = {path!r}
from multiprocessing.connection import Connection
from brimful.corpus.engines.local_pool import serve
pipe = Connection({descriptor})
serve(pipe, {printing})
"""
# There is one process for each core already, so libraries need no threads.
ENVIRONMENT = {"TOKENIZERS_PARALLELISM": "false", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
READY = b""
Outcome = tuple[Any, Exception | None]
"""The result of a task and None; or None and what the task raised, or `DiedError`."""


class DiedError(Exception):
    """The process that ran a task ended; the text completes the sentence "a worker process ..."."""


def attempt(packed: bytes) -> bytes:
    """Run a pickled task and return its pickled Outcome, even if the task raises."""
    try:
        function, task = pickle.loads(packed)
        return pickle.dumps((function(task), None))
    except BrimfulError as error:
        return pickle.dumps((None, error))
    except Exception as error:
        where = f"in a worker process:\n{''.join(traceback.format_exception(error)).rstrip()}"
        error.add_note(where)  # a traceback cannot be pickled
        try:
            failed = pickle.dumps((None, error))
            pickle.loads(failed)
        except Exception:  # some exceptions cannot be pickled, such as those with required arguments
            plain = RuntimeError(f"{type(error).__name__}: {error}")
            plain.add_note(where)
            failed = pickle.dumps((None, plain))
        return failed


def _die_with_parent(descriptor: int) -> None:
    poll = select.poll()
    poll.register(descriptor, 0)  # reports only that the other end closed
    poll.poll()
    os._exit(1)


def serve(pipe: connection.Connection, printing: bool) -> None:
    """Answer each pickled task with its pickled Outcome until the pool closes: the loop of a worker.

    Args:
        printing: whether the caller prints its messages, as a command line does.
    """
    threading.Thread(target=_die_with_parent, args=[pipe.fileno()], daemon=True).start()
    with print_messages() if printing else nullcontext(), suppress(EOFError, OSError):
        pipe.send_bytes(READY)
        while True:
            pipe.send_bytes(attempt(pipe.recv_bytes()))


class _Worker:
    """One process and its task."""

    def __init__(self) -> None:
        ours, theirs = socketpair()
        # A worker keeps Ctrl-C blocked: the caller ends the worker, so the worker prints nothing.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            with theirs:
                program = PROGRAM.format(path=sys.path, descriptor=theirs.fileno(), printing=is_printing())
                self._process = subprocess.Popen(
                    [sys.executable, "-P", "-c", program],
                    pass_fds=[theirs.fileno()],
                    stdin=subprocess.DEVNULL,
                    env={**os.environ, **ENVIRONMENT},
                )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        self.pipe = connection.Connection(ours.detach())
        self.number = -1
        self._ready = False

    def is_alive(self) -> bool:
        """Whether an idle worker lives. It sends nothing, so readable data means that it ended."""
        return self._process.poll() is None and not self.pipe.poll()

    def start(self, number: int, packed: bytes) -> None:
        self.number = number
        with suppress(OSError):  # if it is dead already, `receive` reports it
            self.pipe.send_bytes(packed)

    def receive(self) -> Outcome | None:
        """Return the outcome that the worker sent; None if it only says that it is ready."""
        try:
            message = self.pipe.recv_bytes()
        except (EOFError, OSError):
            code = self.kill()
        else:
            self._ready = True
            outcome: Outcome | None = None if message == READY else pickle.loads(message)
            return outcome
        if code >= 0 and not self._ready:
            raise BrimfulError(f"worker processes cannot start (exit code {code}; their messages are above)")
        if code >= 0:
            return None, DiedError(f"left with exit code {code}")
        reason = ", perhaps for lack of memory" if -code == signal.SIGKILL else ""
        return None, DiedError(f"was killed by signal {-code} ({signal.strsignal(-code)}){reason}")

    def kill(self) -> int:
        """End the process if it is still running; return its exit code, negative for a signal."""
        self._process.kill()
        self.pipe.close()
        return self._process.wait()


class LocalPool:
    """Up to `slots` workers, each started when it is first needed and kept for later tasks."""

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self._idle: list[_Worker] = []
        self._busy: dict[Any, _Worker] = {}

    def start(self, number: int, function: Callable[[Any], Any], task: Any) -> None:
        """Run a task in a free worker. Call it only while fewer than `slots` tasks are running.

        Args:
            function: a function that the worker can import by name.
        """
        packed = pickle.dumps((function, task))
        while self._idle and not self._idle[-1].is_alive():
            self._idle.pop().kill()  # it was killed while idle: no task is to blame
        worker = self._idle.pop() if self._idle else _Worker()
        self._busy[worker.pipe] = worker
        worker.start(number, packed)

    def wait(self) -> list[tuple[int, Outcome]]:
        """Wait for a message from workers; return (number, outcome) of each task that ended, if any."""
        ended = []
        for pipe in connection.wait(list(self._busy)):
            worker = self._busy[pipe]
            outcome = worker.receive()
            if outcome is None:
                continue
            del self._busy[pipe]
            if not isinstance(outcome[1], DiedError):
                self._idle.append(worker)
            ended.append((worker.number, outcome))
        return ended

    def stop(self) -> None:
        """End the running tasks."""
        while self._busy:
            self._busy.popitem()[1].kill()

    def close(self) -> None:
        """End all workers."""
        self.stop()
        while self._idle:
            self._idle.pop().kill()
