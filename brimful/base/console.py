"""Messages, warnings and progress: to stderr in a command, else to `logging` and `warnings`."""

import logging
import math
import os
import shlex
import sys
import time
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from brimful.base.errors import BrimfulWarning
from brimful.base.types import Advance

SECONDS_BETWEEN_LINES = 10.0
WARNING = "warning: "


def escape_controls(text: str) -> str:
    """Make text of a corpus safe for a terminal: control characters and bidi overrides become escapes."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def quote_for_shell(path: str) -> str:
    """Quote a file name for a shell command, even if the name is not UTF-8."""
    if path.isprintable():
        return shlex.quote(path)
    return "$'\\x" + os.fsencode(path).hex(" ").replace(" ", "\\x") + "'"


def pluralise(number: int, noun: str) -> str:
    """Write a number with a noun: 1 row, 1,000 rows."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


_printing: list[set[str]] = []
"""The printed warnings of each open `print_messages`: a stack, since one command may call another."""


@contextmanager
def print_messages() -> Iterator[None]:
    """A context in which messages, warnings and progress are lines on stderr, as on a command line.

    Each warning is printed once. Outside, messages and progress go to the logger `brimful` at INFO, and
    warnings to `warnings`, so that a Python caller can decide what happens to them.
    """
    _printing.append(set())
    try:
        yield
    finally:
        _printing.pop()


def is_printing() -> bool:
    """Whether messages are printed, as by a command, and not logged."""
    return bool(_printing)


def say(message: str) -> None:
    """Say one line to the user. The text may come from a corpus, so control characters become escapes."""
    text = "\n".join(map(escape_controls, message.split("\n")))
    if not _printing:
        logging.getLogger("brimful").info("%s", text)
        return
    # The colour comes after the escapes, since it consists of control characters.
    if message.startswith(WARNING) and _on_terminal() and "NO_COLOR" not in os.environ:
        text = f"\x1b[33m{text}\x1b[0m"
    print(text, file=sys.stderr)


def _on_terminal() -> bool:
    return sys.stderr.isatty() and os.environ.get("TERM") not in ("dumb", "unknown")


_recording: list[list[str]] = []


@contextmanager
def record_warnings() -> Iterator[list[str]]:
    """Collect the lines of `warn`, which then go nowhere else."""
    lines: list[str] = []
    _recording.append(lines)
    try:
        yield lines
    finally:
        _recording.pop()


def warn(message: str) -> None:
    """Say one line that the user should notice."""
    if _recording:
        _recording[-1].append(message)
    elif not _printing:
        warnings.warn(escape_controls(message), BrimfulWarning, stacklevel=_level_of_caller())
    elif message not in _printing[-1]:
        _printing[-1].add(message)
        say(WARNING + message)


def _level_of_caller() -> int:
    """The stack level, from `warn`, of the code that called Brimful, even with torch's frames in between."""
    level_of_caller = 1
    for level, (frame, _) in enumerate(traceback.walk_stack(sys._getframe(1)), 2):
        if frame.f_globals.get("__name__", "").partition(".")[0] == "brimful":
            level_of_caller = level
    return level_of_caller


@contextmanager
def show_progress(title: str, total: int, *, done: int = 0, visible: bool = True) -> Iterator[Advance]:
    """Show a progress bar on a terminal; elsewhere (a log file, CI) say a line every ten seconds.

    Args:
        done: the number of steps before a resume.
        visible: False on ranks that print nothing.
    """
    if not visible:
        yield lambda steps=1, note="", limit=math.inf: None
        return
    if _on_terminal():
        from brimful.base.terminal import progress_bar  # rich takes a tenth of a second in each process

        with progress_bar(title, total, done) as advance:
            yield advance
        return
    started = printed = time.monotonic()
    before, latest = done, ""

    def advance_line(steps: int = 1, note: str = "", limit: float = math.inf) -> None:
        nonlocal printed, done, latest
        done += steps
        latest = note or latest
        now = time.monotonic()
        if now - printed < SECONDS_BETWEEN_LINES or done == before:
            return
        printed = now
        seconds_left = (now - started) * (total - done) / (done - before)  # at the speed so far
        bound = "at most " if limit < seconds_left else ""
        remaining = f"{bound}{min(limit, seconds_left):.0f} s left"
        say(f"{title}: {done:,} of {total:,}, {now - started:.0f} s, {remaining} {latest}".rstrip())

    yield advance_line
    say(f"{title}: {done:,} of {total:,} in {time.monotonic() - started:.1f} s")
