"""What `brimful distil` prints at its end: teacher and students side by side."""

from typing import Any

from rich.table import Table as RichTable

from brimful.reports.distil import distilled_tables
from brimful.terminal import output_console


def show_distilled(summary: dict[str, Any]) -> None:
    """Print teacher and students side by side; of an encoder without a task, its vectors' agreement."""
    console = output_console()
    if "primary_metric" not in summary:
        for key, value in summary.items():
            console.print(f"{key}: {value}", highlight=False)
        return
    for content in distilled_tables(summary):
        table = RichTable(title=content.title)
        for column in content.columns:
            table.add_column(column, justify="left" if column == "model" else "right")
        for row in content.rows:
            table.add_row(*row)
        console.print(table)
