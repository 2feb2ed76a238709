"""Messages and progress on stderr while a command runs, in one style."""

import math
import sys
import textwrap
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console, RenderableType
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    Task,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text

SECONDS_BETWEEN_LINES = 10.0

console = Console(stderr=True, highlight=False, emoji=False, soft_wrap=True)


class _Output(Console):
    def on_broken_pipe(self) -> None:
        raise  # the command line handles it; rich would exit with 1


def output_console() -> Console:
    """A console on stdout, for tables that a person reads."""
    return _Output(highlight=False, soft_wrap=True)


def visible(text: str) -> str:
    """Text of a corpus, safe for a terminal: control characters and bidi overrides become escapes."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def counted(number: int, noun: str) -> str:
    """1 row, 1,000 rows."""
    return f"{number:,} {noun}" + ("s" if number != 1 else "")


def say(message: str) -> None:
    """Print one line for the user, without markup: the text may come from a corpus."""
    console.print(message, markup=False)


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
    console.print(f"warning: {message}", style="yellow", markup=False)


class Advance(Protocol):
    """Report that `steps` more are done.

    Args:
        note: is shown below the bar.
        limit: the time left is shown as at most this many seconds.
    """

    def __call__(self, steps: int = 1, note: str = "", limit: float = math.inf) -> None: ...


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
    if console.is_terminal:
        with _bar() as bar:
            task = bar.add_task(title, total=total, completed=done, note="", limit=math.inf)

            def advance(steps: int = 1, note: str = "", limit: float = math.inf) -> None:
                bar.update(task, advance=steps, limit=limit)
                if note:
                    bar.update(task, note=note)

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


class _TimeLeft(TimeRemainingColumn):
    """The time left at the bar's speed, or until the limit if that is sooner."""

    def render(self, task: Task) -> Text:
        limit = task.fields["limit"]
        if task.finished or limit >= (task.time_remaining or math.inf):
            return super().render(task).append(" left")
        minutes, seconds = divmod(int(limit), 60)
        hours, minutes = divmod(minutes, 60)
        return Text(f"{hours:d}:{minutes:02d}:{seconds:02d} left", "progress.remaining")


class _WithNotes(Progress):
    """Notes stand below the bar; beside it, they would push the bar off a narrow terminal."""

    def get_renderables(self) -> Iterator[RenderableType]:
        yield from super().get_renderables()
        for task in self.tasks:
            yield Text(textwrap.fill(task.fields["note"], self.console.width))


def _bar() -> Progress:
    return _WithNotes(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        _TimeLeft(),
        console=console,
        transient=False,
    )
