"""Limit the CPU time of one document, even inside a C call that never returns.

A parser that hangs holds the interpreter's lock, so no Python thread or signal handler could interrupt it.
The kernel can: an interval timer (ITIMER_PROF) ends the process, and `faulthandler`, which needs no lock,
first writes the stack into the watchdog's file. The next attempt at the task finds the stack, learns from the
same file which document it was, lists that document as hostile and skips it. A process that died of another
cause (kill -9, power) leaves no stack. Then no document is to blame, and the output is the same as without
the kill.

The timer counts the CPU time of this process, not the clock: a busy machine, Ctrl-Z or a slow disk make no
document hostile. So a document that only waits has no limit.
"""

import faulthandler
import mmap
import os
import signal
import struct
from pathlib import Path
from typing import Self

from brimful.base.errors import BrimfulError
from brimful.base.storage import make_write_error, read_json, write_json

MAX_HOSTILE_DOCUMENTS = 100

# The file begins with the document in work: input, record. A stack follows if the timer ended the process.
_DOCUMENT = struct.Struct("<QQ")


def hostile_documents(path: Path) -> list[list[int]]:
    """Return the [input, record] of documents that took too long in earlier attempts at a task.

    Call it only while no process works on the task.

    Args:
        path: the watchdog file of the task.
    """
    list_path = path.with_name(path.name + ".json")
    documents: list[list[int]] = read_json(list_path) if list_path.exists() else []
    state = path.read_bytes() if path.exists() else b""
    if len(state) > _DOCUMENT.size:  # a stack follows: the timer ended the process
        document = list(_DOCUMENT.unpack_from(state))
        if document not in documents:
            documents.append(document)
            write_json(list_path, documents)
        path.unlink(missing_ok=True)
    return documents


class Watchdog:
    """Ends this process when a document takes too long, and skips documents that took too long before.

        with Watchdog(path, seconds) as watchdog:
            for record, raw in read_documents(...):
                if watchdog.begin(input, record):
                    continue  # hostile: count it
                ...  # what may hang
                watchdog.end()

    The task must run in a process of its own (see `Engine`), because a process has only one timer. Leave the
    block before the output is committed: then a kill leaves the file only if the task will run again.

    Args:
        path: the watchdog file, which no other task and no other settings share; removed at the end. The
            list of hostile documents, PATH.json, stays as long as the task keeps its settings: see
            `Preparation`.
        seconds: CPU seconds of this process that a document may take, as long as no other thread works.

    Raises:
        BrimfulError: more than 100 documents of this task are hostile; the file cannot be written.
    """

    def __init__(self, path: Path, seconds: float) -> None:
        self._path, self._seconds = path, seconds
        self.hostile: list[list[int]] = []

    def __enter__(self) -> Self:
        self.hostile = hostile_documents(self._path)
        if len(self.hostile) > MAX_HOSTILE_DOCUMENTS:
            raise BrimfulError(
                f"more than {MAX_HOSTILE_DOCUMENTS} documents took over {self._seconds:g} s of CPU time each:"
                f" see {self._path}.json; allow them more, or leave that input out"
            )
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._path.unlink(missing_ok=True)  # not written over: another process may have it mapped still
            self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
            os.write(self._file, bytes(_DOCUMENT.size))
            self._state = mmap.mmap(self._file, _DOCUMENT.size)
        except OSError as error:
            raise make_write_error(self._path, error) from error
        faulthandler.register(signal.SIGPROF, self._file, all_threads=False, chain=True)
        return self

    def begin(self, input: int, record: int) -> bool:
        """Start the timer for a document; return True if it is hostile and must be skipped."""
        if [input, record] in self.hostile:
            return True
        _DOCUMENT.pack_into(self._state, 0, input, record)
        _set_timer(self._seconds)
        return False

    def end(self) -> None:
        """Stop the timer: the work that follows, such as reading the next record, belongs to no document."""
        _set_timer(0)

    def __exit__(self, *_: object) -> None:
        _set_timer(0)
        faulthandler.unregister(signal.SIGPROF)
        self._state.close()
        os.close(self._file)
        self._path.unlink(missing_ok=True)


def _set_timer(seconds: float) -> None:
    signal.setitimer(signal.ITIMER_PROF, seconds)
