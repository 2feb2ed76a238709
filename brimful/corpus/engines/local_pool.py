"""A pool of processes on this machine, in which the death of one disturbs no other.

A worker is a new interpreter, not a fork (the caller may have threads) and not a `multiprocessing` child
(which would import the caller's script again): so no script needs `if __name__ == "__main__":`, and
notebooks and `python -c` work. Its only tie is a socket. When that closes, because the caller closed the pool
or was killed, the worker is gone too.
"""

import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from multiprocessing import connection
from socket import socketpair
from typing import Any

from brimful.corpus.engines.outcomes import Died, Outcome, attempt, pack, unpack
from brimful.errors import BrimfulError

PROGRAM = """
import sys
from multiprocessing.connection import Connection
tie = Connection(int(sys.argv[1]))
sys.path[:] = tie.recv()
from brimful.corpus.engines.local_pool import serve
serve(tie)
"""
# One process a core already: libraries need no threads of their own.
ENVIRONMENT = {"TOKENIZERS_PARALLELISM": "false", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
READY = b""


def _die_with_parent(descriptor: int) -> None:
    poll = select.poll()
    poll.register(descriptor, 0)  # nothing but the other end's closing
    poll.poll()
    os._exit(1)


def serve(tie: connection.Connection) -> None:
    """What a worker does: answer each packed task with its packed Outcome until the pool is closed."""
    threading.Thread(target=_die_with_parent, args=[tie.fileno()], daemon=True).start()
    tie.send_bytes(READY)
    with suppress(EOFError, OSError):
        while True:
            tie.send_bytes(attempt(tie.recv_bytes()))


class _Worker:
    """One process and the task it has."""

    def __init__(self) -> None:
        ours, theirs = socketpair()
        # A worker is born with Ctrl-C blocked and keeps it so: the caller ends it, and it prints nothing.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            with theirs:
                self._process = subprocess.Popen(
                    [sys.executable, "-P", "-c", PROGRAM, str(theirs.fileno())],
                    pass_fds=[theirs.fileno()],
                    stdin=subprocess.DEVNULL,
                    env={**os.environ, **ENVIRONMENT},
                )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        self.tie = connection.Connection(ours.detach())
        self.number = -1
        self._ready = False
        with suppress(OSError):  # dead already: `answer` will tell
            self.tie.send(sys.path)

    def start(self, number: int, packed: bytes) -> None:
        self.number = number
        with suppress(OSError):
            self.tie.send_bytes(packed)

    def lives(self) -> bool:
        """Of an idle worker, which says nothing: what can be read from it is its end."""
        return self._process.poll() is None and not self.tie.poll()

    def answer(self) -> Outcome | None:
        """What came over the tie: None if only that the worker is ready."""
        try:
            message = self.tie.recv_bytes()
        except (EOFError, OSError):
            return Died(self._how_it_died())
        if message == READY:
            self._ready = True
            return None
        return unpack(message)

    def _how_it_died(self) -> str:
        code = self.kill()
        if code >= 0:
            if not self._ready:
                raise BrimfulError(
                    f"worker processes cannot start (exit code {code}; what they say is above)"
                )
            return f"left with exit code {code}"
        reason = ", perhaps for lack of memory" if -code == signal.SIGKILL else ""
        return f"was killed by signal {-code} ({signal.strsignal(-code)}){reason}"

    def kill(self) -> int:
        """End the process, if it has not ended by itself; returns its exit code, negative for a signal."""
        self._process.kill()
        self.tie.close()
        return self._process.wait()


class LocalPool:
    """At most `slots` workers, started when they are first needed and kept for the tasks that follow."""

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self._idle: list[_Worker] = []
        self._busy: dict[connection.Connection, _Worker] = {}

    def start(self, number: int, function: Callable[[Any], Any], task: Any) -> None:
        """Run a task in a free worker; there must be one."""
        packed = pack(function, task)
        while self._idle and not self._idle[-1].lives():
            self._idle.pop().kill()  # killed while it had nothing to do: no task is to blame
        worker = self._idle.pop() if self._idle else _Worker()
        self._busy[worker.tie] = worker
        worker.start(number, packed)

    def wait(self) -> list[tuple[int, Outcome]]:
        """Wait until a task has ended; returns (number, outcome) of each that has."""
        ended: list[tuple[int, Outcome]] = []
        while not ended:
            for tie in connection.wait(list(self._busy)):
                assert isinstance(tie, connection.Connection)
                worker = self._busy[tie]
                outcome = worker.answer()
                if outcome is None:
                    continue
                del self._busy[tie]
                if not isinstance(outcome, Died):
                    self._idle.append(worker)
                ended.append((worker.number, outcome))
        return ended

    def stop(self) -> None:
        """End the tasks that run."""
        while self._busy:
            self._busy.popitem()[1].kill()

    def close(self) -> None:
        """End all workers."""
        self.stop()
        while self._idle:
            self._idle.pop().kill()
