"""Tables and the progress bar of a terminal, which `rich` draws."""

import math
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
        raise  # the command line handles the error; rich would exit with 1


def output_console() -> Console:
    """Make a console on stdout, for tables that a person reads."""
    return _Output(highlight=False, soft_wrap=True)


@contextmanager
def progress_bar(title: str, total: int, done: int) -> Iterator[Advance]:
    """Draw a bar on stderr. Lines that are written to stderr meanwhile appear above it."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with _WithNotes(*columns, _TimeLeft(), console=console) as bar:
        task = bar.add_task(title, total=total, completed=done, note="", limit=math.inf)

        def advance(steps: int = 1, note: str = "", limit: float = math.inf) -> None:
            bar.update(task, advance=steps, limit=limit)
            if note:
                bar.update(task, note=note)

        yield advance


class _TimeLeft(TimeRemainingColumn):
    """The time left at the bar's speed, or until the limit if that is sooner."""

    def render(self, task: Task) -> Text:
        limit = task.fields["limit"]
        if not task.finished and limit < (task.time_remaining or math.inf):
            return Text(f"at most {limit:.0f} s left", "progress.remaining")
        return super().render(task).append(" left")


class _WithNotes(Progress):
    """Notes stand below the bar, on one line; beside it, they would push the bar off a narrow terminal."""

    def get_renderables(self) -> Iterator[RenderableType]:
        yield from super().get_renderables()
        for task in self.tasks:
            yield Text(task.fields["note"], no_wrap=True, overflow="ellipsis")
