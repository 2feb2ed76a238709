"""What `rich` draws: rules and tables for a person, and the progress bar of `console.progress`."""

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager

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

from brimful.base.types import Advance

console = Console(stderr=True, highlight=False, emoji=False, soft_wrap=True)


class _Output(Console):
    def on_broken_pipe(self) -> None:
        raise  # the command line handles it; rich would exit with 1


def output_console() -> Console:
    """A console on stdout, for tables that a person reads."""
    return _Output(highlight=False, soft_wrap=True)


@contextmanager
def progress_bar(title: str, total: int, done: int) -> Iterator[Advance]:
    """A bar on stderr; what is written to stderr meanwhile appears above it."""
    with _bar() as bar:
        task = bar.add_task(title, total=total, completed=done, note="", limit=math.inf, limited=False)
        started, before = time.monotonic(), done

        def advance(steps: int = 1, note: str = "", limit: float = math.inf) -> None:
            nonlocal done
            done += steps
            each = (time.monotonic() - started) / max(1, done - before)
            limited = limit < each * (total - done)
            end = done + limit / each if limited else total
            bar.update(task, advance=steps, total=end, limit=limit, limited=limited)
            if note:
                bar.update(task, note=note)

        yield advance


class _StepsDone(MofNCompleteColumn):
    """The steps done, of all; where a limit ends the work before, their number alone."""

    def render(self, task: Task) -> Text:
        if task.fields["limited"]:
            return Text(f"step {int(task.completed)}", style="progress.download")
        return super().render(task)


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
    """Notes stand below the bar, on one line; beside it, they would push the bar off a narrow terminal."""

    def get_renderables(self) -> Iterator[RenderableType]:
        yield from super().get_renderables()
        for task in self.tasks:
            note = fitting(task.fields["note"], self.console.width)
            yield Text(note, no_wrap=True, overflow="ellipsis")


def fitting(note: str, width: int) -> str:
    """A note without the last of its parts, which commas divide, that make it wider than the terminal."""
    while len(note) > width and ", " in note:
        note = note.rpartition(", ")[0]
    return note


def _bar() -> Progress:
    return _WithNotes(
        TextColumn("{task.description}"),
        BarColumn(),
        _StepsDone(),
        TimeElapsedColumn(),
        _TimeLeft(),
        console=console,
        transient=False,
    )
