"""The tables of the report page, on a terminal."""

from collections.abc import Iterable

from rich.console import Console
from rich.table import Table

from brimful.reports.content import ReportTable
from brimful.terminal import output_console


def print_tables(tables: Iterable[ReportTable], console: Console | None = None) -> None:
    """Print tables, names to the left and all else to the right.

    Args:
        console: by default stdout.
    """
    console = console or output_console()
    for content in tables:
        table = Table(title=content.title)
        for number, column in enumerate(content.columns):
            table.add_column(column, justify="right" if number else "left")
        for row in content.rows:
            table.add_row(*row)
        console.print(table)
