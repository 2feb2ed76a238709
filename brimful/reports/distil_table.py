"""What `brimful distil` prints at its end: teacher and students side by side."""

from typing import Any

from brimful.reports.distil import distilled_tables
from brimful.reports.terminal_tables import print_tables


def show_distilled(summary: dict[str, Any]) -> None:
    """Print teacher and students side by side; of an encoder without a task, its vectors' agreement."""
    if "primary_metric" in summary:
        print_tables(distilled_tables(summary))
        return
    for key, value in summary.items():
        print(f"{key}: {value}")
