"""The tables of the report page, on a terminal."""

import textwrap
from collections.abc import Iterable, Sequence
from typing import Literal

from rich import box
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table

from brimful.base.terminal import output_console
from brimful.reports.content import ReportTable

LONGEST_HEADING = 16
"""Characters of a line of a heading."""
SHORTEST_NAME = 12
"""Characters of a line of a name, where names are wrapped for want of width."""


def print_tables(tables: Iterable[ReportTable], console: Console | None = None) -> None:
    """Print tables, names to the left and all else to the right.

    Where a table is wider than the terminal, columns after the third are left out until it fits: the names,
    the metric that decides and the lead in it stay, and so do the last ones. If that is not enough, names are
    wrapped, and all cells where the others alone are too wide.

    Args:
        console: by default stdout.
    """
    console = console or output_console()
    for content in tables:
        shown = list(range(len(content.columns)))
        while len(shown) > 4 and _width(_table(content, shown), console) > console.width:
            del shown[3]
        wrapped: list[int] = []
        if _width(_table(content, shown), console) > console.width:
            fits = _width(_table(content, shown[1:]), console) <= console.width - SHORTEST_NAME
            wrapped = shown[:1] if fits else shown
        console.print(_table(content, shown, wrapped))


def _width(table: Table, console: Console) -> int:
    """Characters that a table would take on a terminal of any width."""
    return Measurement.get(console, console.options.update(max_width=10_000), table).maximum


def _table(content: ReportTable, shown: list[int], wrapped: Sequence[int] = ()) -> Table:
    table = Table(title=content.title, box=box.SIMPLE_HEAD, title_justify="left")
    for number in shown:
        name = textwrap.fill(content.columns[number], LONGEST_HEADING)
        justify: Literal["left", "right"] = "right" if number else "left"
        table.add_column(name, justify=justify, no_wrap=number not in wrapped, overflow="fold")
    for row in content.rows:
        table.add_row(*(row[number] for number in shown))
    return table
