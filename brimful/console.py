"""Messages and progress on stderr while a command runs, in one style."""

import math
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from brimful.types import Advance

SECONDS_BETWEEN_LINES = 10.0
_YELLOW = "\x1b[33m"


def visible(text: str) -> str:
    """Text of a corpus, safe for a terminal: control characters and bidi overrides become escapes."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def counted(number: int, noun: str) -> str:
    """1 row, 1,000 rows."""
    return f"{number:,} {noun}" + ("s" if number != 1 else "")


def say(message: str, style: str = "") -> None:
    """Print one line for the user. The text may come from a corpus, so control characters become escapes.

    Args:
        style: is put before it on a terminal with colours.
    """
    text = "\n".join(map(visible, message.split("\n")))
    if style and _on_terminal() and "NO_COLOR" not in os.environ:
        text = f"{style}{text}\x1b[0m"
    print(text, file=sys.stderr)


def _on_terminal() -> bool:
    return sys.stderr.isatty() and os.environ.get("TERM") not in ("dumb", "unknown")


_recording: list[list[str]] = []


@contextmanager
def recorded_warnings() -> Iterator[list[str]]:
    """Collect the lines of `warn` instead of printing them."""
    lines: list[str] = []
    _recording.append(lines)
    try:
        yield lines
    finally:
        _recording.pop()


def warn(message: str) -> None:
    """Print one line that the user should notice."""
    if _recording:
        _recording[-1].append(message)
        return
    say(f"warning: {message}", _YELLOW)


@contextmanager
def progress(title: str, total: int, *, done: int = 0, shown: bool = True) -> Iterator[Advance]:
    """A progress bar on a terminal; elsewhere (a log file, CI) a line every ten seconds, with the last note.

    Args:
        done: steps that were done before, as in a resumed run.
        shown: False on ranks that print nothing.
    """
    if not shown:
        yield lambda steps=1, note="", limit=math.inf: None
        return
    if _on_terminal():
        from brimful.terminal import progress_bar  # rich takes a tenth of a second in each process

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
        if now - printed >= SECONDS_BETWEEN_LINES and done > before:
            printed = now
            left = min((now - started) * (total - done) / (done - before), limit)
            times = f"{now - started:.0f} s, {left:.0f} s left"
            print(f"{title}: {done:,} of {total:,}, {times} {latest}".rstrip(), file=sys.stderr)

    yield advance_line
    print(f"{title}: {done:,} of {total:,} in {time.monotonic() - started:.1f} s", file=sys.stderr)
