"""A Summary, or any other result of a verb, on a terminal."""

import textwrap
from collections.abc import Sequence
from typing import Literal

from rich import box
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from brimful.base.console import escape_controls
from brimful.base.numbers import NARROW_SPACE, list_facts
from brimful.base.summary import SummaryTable
from brimful.base.terminal import output_console
from brimful.base.types import Values
from brimful.reports.model_table import list_main_tables
from brimful.reports.run_records import read_overview

MAX_HEADING_CHARACTERS = 16
"""Characters of a line of a heading."""
MIN_NAME_CHARACTERS = 20
"""Characters of a line of a name, where names are wrapped to save width."""


def show_result(result: Values) -> None:
    """Print the title, the verdict, the models side by side, and the tables that are not details.

    Without a Summary, each value of the result is printed, by its dotted key.
    """
    summary = read_overview(result, "the result")
    if summary is None:
        for key, value in list_facts(result):
            print(_fit_terminal(f"{key}: {value}"))
        return
    console = output_console()
    console.print(Text(_fit_terminal(f"{summary.title}: {summary.verdict}")))
    print_tables(list_main_tables(summary), console)


def print_tables(tables: Sequence[SummaryTable], console: Console) -> None:
    """Print tables, words to the left and numbers to the right.

    Where a table is wider than the terminal, names are wrapped. If that is not enough, columns after the
    third are left out until it fits: the names, the metric and the distance from the best stay, and so do the
    last columns. All cells are wrapped where even these are too wide.
    """
    for content in tables:
        # Columns are known by their places, since a narrow terminal leaves some out.
        columns = list(range(len(content.columns)))
        wrapped: list[int] = []
        while _measure(_draw_table(content, columns), console) > console.width:
            others = _measure(_draw_table(content, columns[1:]), console)
            if others <= console.width - MIN_NAME_CHARACTERS:
                wrapped = columns[:1]
                break
            wrapped = columns
            if len(columns) <= 4:
                break
            del columns[3]  # the first behind the names, the metric and the distance from the best
        console.print(_draw_table(content, columns, wrapped))


def _measure(table: Table, console: Console) -> int:
    """Return the number of columns that a table would take on a terminal of any width."""
    return Measurement.get(console, console.options.update(max_width=10_000), table).maximum


def _draw_table(content: SummaryTable, columns: Sequence[int], wrapped: Sequence[int] = ()) -> Table:
    title = Text(_fit_terminal(content.title), style="italic")
    has_heads = any(content.columns)
    table = Table(title=title, box=box.SIMPLE_HEAD, title_justify="left", show_header=has_heads)
    for place in columns:
        name = textwrap.fill(_fit_terminal(content.columns[place]), MAX_HEADING_CHARACTERS)
        justify: Literal["left", "right"] = "left" if place == 0 or content.has_words(place) else "right"
        table.add_column(Text(name), justify=justify, no_wrap=place not in wrapped, overflow="fold")
    for row in content.rows:
        table.add_row(*(Text(_fit_terminal(row[place])) for place in columns))
    return table


def _fit_terminal(text: str) -> str:
    """Return a text without control characters, and with plain spaces before units."""
    return escape_controls(text.replace(NARROW_SPACE, " "))
