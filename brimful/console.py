"""What a person sees while a command runs: messages and progress, on stderr, in one style."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

SECONDS_BETWEEN_LINES = 10.0

console = Console(stderr=True, highlight=False, emoji=False, soft_wrap=True)


class _Output(Console):
    def on_broken_pipe(self) -> None:
        raise  # the command line knows what to do; rich would exit with 1


def output_console() -> Console:
    """A console on stdout, for what a verb prints for a person."""
    return _Output(highlight=False, soft_wrap=True)


def visible(text: str) -> str:
    """Text of a corpus for a terminal: control characters, bidi overrides and the like as escapes."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def counted(number: int, noun: str) -> str:
    """1 row, 1,000 rows."""
    return f"{number:,} {noun}" + ("s" if number != 1 else "")


def say(message: str) -> None:
    """Print one line for the user. The text is shown as it is: it may come from a corpus."""
    console.print(message, markup=False)


def warn(message: str) -> None:
    """Print one line that the user should notice."""
    console.print(f"warning: {message}", style="yellow", markup=False)


class Advance(Protocol):
    """Report that `steps` more were done; `note` is shown beside the bar."""

    def __call__(self, steps: int = 1, note: str = "") -> None: ...


@contextmanager
def progress(title: str, total: int) -> Iterator[Advance]:
    """A progress bar on a terminal; elsewhere (a log file, CI) a line every ten seconds: the last note."""
    if console.is_terminal:
        with _bar() as bar:
            task = bar.add_task(title, total=total, note="")

            def advance(steps: int = 1, note: str = "") -> None:
                bar.update(task, advance=steps)
                if note:
                    bar.update(task, note=note)

            yield advance
        return
    started = shown = time.monotonic()
    done, latest = 0, ""

    def advance_line(steps: int = 1, note: str = "") -> None:
        nonlocal shown, done, latest
        done += steps
        latest = note or latest
        now = time.monotonic()
        if now - shown >= SECONDS_BETWEEN_LINES and done:
            shown = now
            left = (now - started) * (total - done) / done
            times = f"{now - started:.0f} s, {left:.0f} s left"
            print(f"{title}: {done:,} of {total:,}, {times} {latest}".rstrip(), file=sys.stderr)

    yield advance_line
    print(f"{title}: {done:,} of {total:,} in {time.monotonic() - started:.1f} s", file=sys.stderr)


def _bar() -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}", markup=False),
        console=console,
        transient=False,
    )
