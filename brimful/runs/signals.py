"""Requests to stop, as a flag that a loop looks at: Ctrl-C, SIGTERM, and SLURM's SIGUSR1.

An exception that a signal raises in the middle of an update may get lost in a callback, or leave weights that
are half updated. A flag waits for the end of the update. Whoever presses Ctrl-C twice does not wait.
"""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from brimful.console import say
from brimful.errors import BrimfulError

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)


class StoppedError(BrimfulError):
    """A run stopped as it was asked to. Exits as a shell reports the signal: with 128 + its number."""

    def __init__(self, message: str, number: int) -> None:
        super().__init__(message)
        self.exit_code = 128 + number


class StopRequest:
    """What was asked for.

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

    def error(self, step: int, saved: Path | None) -> StoppedError:
        """What says that a run stopped after an update, and where its checkpoint is. It may have been another
        rank that was asked."""
        number = self.number or signal.SIGTERM
        rest = "nothing of it is saved" if saved is None else f"go on with --resume {saved}"
        return StoppedError(f"stopped by {signal.Signals(number).name} at step {step}; {rest}", number)


@contextmanager
def stop_request() -> Iterator[StopRequest]:
    """Within it these signals only leave a request, if this is the main thread; others get no signals.

    Within another, it is that other's: what comes at the very end of the inner one is not lost to the outer.
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
