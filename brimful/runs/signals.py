"""Requests to stop, as a flag that a loop checks: Ctrl-C, SIGTERM, and SLURM's SIGUSR1.

If a signal raised an exception in the middle of an update, the exception might get lost in a callback, or
leave parameters half updated. A flag takes effect at the end of the update; a second Ctrl-C takes effect at
once. Before a run has started (`catch_start_signals`), all signals take effect at once.
"""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from brimful.base.console import say
from brimful.base.environment import rank_and_size
from brimful.base.errors import BrimfulError
from brimful.base.types import Numbers

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)


class StoppedError(BrimfulError):
    """A run was stopped by a signal. The exit code is 128 + the signal's number, as in a shell.

    Args:
        number: the number of the signal.
        where: the progress of the run: "at step 5".
        remedy: the end of the message, which says how to continue.
        is_saved: whether the run can be resumed from there.
    """

    def __init__(self, number: int, where: str, remedy: str = "", *, is_saved: bool = True) -> None:
        message = f"stopped by {signal.Signals(number).name} {where}"
        if remedy:
            message += f"; {remedy}"
        super().__init__(message)
        self.number = number
        self.where = where
        self.is_saved = is_saved
        self.exit_code = 128 + number

    def with_remedy(self, remedy: str) -> "StoppedError":
        """Return the error with a remedy, or with the news that nothing was saved."""
        if not self.is_saved:
            remedy = "nothing was saved"
        return StoppedError(self.number, self.where, remedy, is_saved=self.is_saved)


class StopRequest:
    """A request to stop, which handlers of signals make."""

    number = 0  # the signal that came, or 0

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.number and number == signal.SIGINT:
            raise KeyboardInterrupt
        if number == signal.SIGINT:
            say("stopping after this update; Ctrl-C again stops at once")
        self.number = number

    def votes(self) -> Numbers:
        """Return 1 for the signal that came and 0 for the others, by name; `choose_signal` takes sums."""
        return {each.name: float(each == self.number) for each in SIGNALS}


def choose_signal(votes: Numbers) -> int:
    """Return the number of the signal that has votes of any rank, the first in SIGNALS; 0 without votes."""
    for each in SIGNALS:
        if votes[each.name]:
            return int(each)
    return 0


@contextmanager
def catch_stop_signals() -> Iterator[StopRequest]:
    """A context in which these signals only leave a request. It works in the main thread only.

    Inside another such context it yields the outer request, so a signal at the very end of the inner context
    is not lost to the outer one.
    """
    request = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield request
        return
    outer = getattr(signal.getsignal(signal.SIGTERM), "__self__", None)
    if isinstance(outer, StopRequest):
        yield outer
        return
    before = {number: signal.signal(number, request._handle) for number in SIGNALS}
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class RunStart:
    """The start of a run, in which a signal ends the process at once.

    Attributes:
        remedy: the end of the message of a signal: how to go on.
    """

    remedy = "nothing was written"

    def __init__(self) -> None:
        """Handle the signals that have no handler of the caller's yet."""
        self.number = 0
        self._before: dict[int, Any] = {}
        if threading.current_thread() is not threading.main_thread():
            return
        numbers = [signal.SIGINT]
        if rank_and_size()[1] == 1:
            # Not with several ranks: if one fails, torchrun sends SIGTERM to the others, which report the
            # failure instead.
            numbers.append(signal.SIGTERM)
        for number in numbers:
            if signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler):
                self._before[number] = signal.signal(number, self._handle)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self.number = number
        raise KeyboardInterrupt

    def restore(self) -> None:
        """Give the signals the handlers that they had before."""
        while self._before:
            signal.signal(*self._before.popitem())

    def end(self) -> None:
        """End the start: the run handles its signals from here on.

        Raises:
            KeyboardInterrupt: a signal came, and an import or a callback swallowed it.
        """
        self.restore()
        if self.number:
            raise KeyboardInterrupt


@contextmanager
def catch_start_signals() -> Iterator[RunStart]:
    """A context in which SIGINT and SIGTERM end the process with a line, until `RunStart.end` is called.

    Raises:
        StoppedError: a signal came. An import may have turned its KeyboardInterrupt into another error, or
            have swallowed it.
    """
    start = RunStart()
    try:
        yield start
    except BaseException:
        if not start.number:
            raise
    finally:
        start.restore()
    if start.number:
        raise StoppedError(start.number, "before the run had started", start.remedy)
