"""Requests to stop, as a flag that a loop checks: Ctrl-C, SIGTERM, and SLURM's SIGUSR1.

An exception that a signal raises in the middle of an update may get lost in a callback, or leave parameters
half updated. A flag waits for the end of the update. A second Ctrl-C does not wait. Before a run has started
(`catch_start_signals`) there is nothing to wait for.
"""

import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import Any

from brimful.base.console import say
from brimful.base.environment import rank_and_size
from brimful.base.errors import BrimfulError

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)


class StoppedError(BrimfulError):
    """A run was stopped by a signal. The exit code is 128 + the signal's number, as in a shell.

    Attributes:
        number: of the signal.
        where: how far the run was: "at step 5".
        is_saved: whether the run can be resumed from there.
    """

    def __init__(self, number: int, where: str, rest: str = "", *, is_saved: bool = True) -> None:
        """
        Args:
            rest: what to do; a run says it, and no training in it.
        """
        super().__init__(f"stopped by {signal.Signals(number).name} {where}{rest and f'; {rest}'}")
        self.number = number
        self.where = where
        self.is_saved = is_saved
        self.exit_code = 128 + number

    def resumed_by(self, command: str) -> "StoppedError":
        """The same, saying which command goes on; or that nothing was saved."""
        rest = f"continue with {command}" if self.is_saved else "nothing was saved"
        return StoppedError(self.number, self.where, rest, is_saved=self.is_saved)


class StopRequest:
    """The request.

    Attributes:
        number: the signal that came, or 0.
    """

    number = 0

    def _come(self, number: int, frame: FrameType | None) -> None:
        if self.number and number == signal.SIGINT:
            raise KeyboardInterrupt
        if number == signal.SIGINT:
            say("stopping after this update; Ctrl-C again stops at once")
        self.number = number

    def votes(self) -> dict[str, float]:
        """1 for the signal that came, 0 for the others, by name: what ranks sum for `choose_signal`."""
        return {each.name: float(each == self.number) for each in SIGNALS}


def choose_signal(votes: Mapping[str, float]) -> int:
    """The number of the signal that came to any rank, the same on all ranks; 0 if none came.

    Args:
        votes: sums over ranks, by name. Of several signals, the first in SIGNALS wins.
    """
    return next((int(each) for each in SIGNALS if votes[each.name]), 0)


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
    before = {number: signal.signal(number, request._come) for number in SIGNALS}
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Start:
    """The start of a run.

    Attributes:
        rest: what a signal leaves, or what goes on.
    """

    rest = "nothing was written"

    def __init__(self) -> None:
        self._came = 0
        self._before: dict[int, Any] = {}

    def _come(self, number: int, frame: FrameType | None) -> None:
        self._came = number
        raise KeyboardInterrupt

    def _begin(self) -> None:
        """Heed the signals that nobody heeds. torchrun sends SIGTERM to ranks that have lost
        another one, which say that instead."""
        if threading.current_thread() is not threading.main_thread():
            return
        alone = rank_and_size()[1] == 1
        for number in (signal.SIGINT, signal.SIGTERM) if alone else (signal.SIGINT,):
            if signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler):
                self._before[number] = signal.signal(number, self._come)

    def _end(self) -> None:
        """Signals do what they did before."""
        while self._before:
            signal.signal(*self._before.popitem())

    def over(self) -> None:
        """The run has started: signals do what they did before.

        Raises:
            KeyboardInterrupt: a signal came, and an import or a callback swallowed it.
        """
        self._end()
        if self._came:
            raise KeyboardInterrupt


@contextmanager
def catch_start_signals() -> Iterator[Start]:
    """A context in which SIGINT and SIGTERM end the process with a line, until `over` is called.

    Raises:
        StoppedError: a signal came, whatever became of it: an import may make another error of it, or none.
    """
    start = Start()
    start._begin()
    try:
        yield start
    except BaseException:
        if not start._came:
            raise
    finally:
        start._end()
    if start._came:
        raise StoppedError(start._came, "before the run had started", start.rest)
