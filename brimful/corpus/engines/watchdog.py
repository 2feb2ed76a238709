"""A limit on the CPU time of one document, even inside a C call that never returns.

A parser that hangs holds the interpreter's lock, so no Python thread or signal handler could interrupt it.
The kernel can: an interval timer (ITIMER_PROF) ends the process, and `faulthandler`, which needs no lock,
first writes the stack into the watchdog's file. The next attempt at the task finds the stack, learns from the
same file which document it was, lists that document as hostile and skips it. A process that died of another
cause (kill -9, power) leaves no stack: then no document is to blame, and the output is the same as without
the kill.

The timer counts the CPU time of this process, not the clock: a busy machine, Ctrl-Z or a slow disk make no
document hostile. So a document that only waits has no limit; nor has any on a system without such timers.
"""

import faulthandler
import mmap
import os
import signal
import struct
from hashlib import blake2b
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from brimful.base.errors import BrimfulError
from brimful.base.storage import cannot_write, read_json, write_json

MAX_HOSTILE_DOCUMENTS = 100

# The file begins with this state: key, input, record. A stack follows if the timer ended the process.
_KEY_BYTES = 32
_DOCUMENT = struct.Struct("<QQ")
_STATE = struct.Struct(f"<{_KEY_BYTES}sQQ")

Document = tuple[int, int]


def explained(path: Path) -> int:
    """How many deaths of the task with this watchdog file have a known cause, which it will avoid.

    This is the argument `explained` of `Engine.run`. Call it only while no process works on the task.
    """
    return len(_settle(path, None))


class Watchdog:
    """Ends this process when a document takes too long, and skips documents that took too long before.

        with Watchdog(path, seconds, key) as watchdog:
            for record, raw in read_documents(...):
                if watchdog.begin(input, record):
                    continue  # hostile: count it
                ...  # what may hang
                watchdog.end()

    The task must run in a process of its own (see `Engine`), because a process has only one timer. Leave the
    block before the output is committed: then a kill leaves the file only if the task will run again.

    Args:
        path: the file, of this task alone, such as text/.watch-part-00000; removed at the end. The list of
            hostile documents, PATH.json, stays.
        seconds: CPU seconds of this process that a document may take, as long as no other thread works.
        key: a hash of the inputs and settings that decide the documents and their cost. Documents found
            under another key, or with other `seconds`, are forgotten.

    Attributes:
        hostile: the (input, record) of documents that took too long, now or in an earlier attempt.

    Raises:
        BrimfulError: more than 100 documents of this task are hostile; the file cannot be written.
    """

    hostile: set[Document]

    def __init__(self, path: Path, seconds: float, key: str) -> None:
        self._path, self._seconds = path, seconds
        self._key = blake2b(f"{seconds} {key}".encode(), digest_size=_KEY_BYTES).digest()

    def __enter__(self) -> Self:
        if signal.getitimer(signal.ITIMER_PROF)[0]:
            raise RuntimeError("another Watchdog is at work in this process")
        self.hostile = _settle(self._path, self._key)
        if len(self.hostile) > MAX_HOSTILE_DOCUMENTS:
            raise BrimfulError(
                f"more than {MAX_HOSTILE_DOCUMENTS} documents took over {self._seconds:g} s of CPU time each:"
                f" see {_list(self._path)}; allow them more, or leave that input out"
            )
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._path.unlink(missing_ok=True)  # not written over: another process may have it mapped still
            self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
            os.write(self._file, _STATE.pack(self._key, 0, 0))
            self._state = mmap.mmap(self._file, _STATE.size)
        except OSError as error:
            raise cannot_write(self._path, error) from error
        faulthandler.register(signal.SIGPROF, self._file, all_threads=False, chain=True)
        return self

    def begin(self, input: int, record: int) -> bool:
        """Start the timer for a document; returns True if it is hostile and must be skipped."""
        if (input, record) in self.hostile:
            return True
        _DOCUMENT.pack_into(self._state, _KEY_BYTES, input, record)
        _set_timer(self._seconds)
        return False

    def end(self) -> None:
        """Stop the timer: the work that follows, such as reading the next record, belongs to no document."""
        _set_timer(0)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _set_timer(0)
        faulthandler.unregister(signal.SIGPROF)
        self._state.close()
        os.close(self._file)
        self._path.unlink(missing_ok=True)


def _set_timer(seconds: float) -> None:
    signal.setitimer(signal.ITIMER_PROF, seconds)


def _list(path: Path) -> Path:
    return path.with_name(path.name + ".json")


def _settle(path: Path, key: bytes | None) -> set[Document]:
    """Add what the last attempt left to the list; returns the hostile documents.

    With `key`, entries that were found under another key do not count.
    """
    known: dict[str, Any] = read_json(_list(path)) if _list(path).exists() else {}
    left = path.read_bytes() if path.exists() else b""
    if len(left) > _STATE.size:  # a stack follows: the timer ended the process
        found_under, input, record = _STATE.unpack_from(left)
        if known.get("key") != found_under.hex():
            known = {"key": found_under.hex(), "hostile": []}
        if [input, record] not in known["hostile"]:
            known["hostile"] = sorted([*known["hostile"], [input, record]])
            write_json(_list(path), known)
        path.unlink(missing_ok=True)
    if key is not None and known.get("key") != key.hex():
        return set()
    return {(input, record) for input, record in known.get("hostile", [])}
