"""What `brimful distil` prints at its end: teacher and students side by side."""

from typing import Any

from rich.table import Table as RichTable

from brimful.console import output_console

_ROWS = (
    ("teacher", "teacher", "teacher"),
    ("student", "student", "student"),
    ("its start, from labels alone", "student_without_distillation", "student"),
    ("teacher's layers, by logits alone", "student_layer_drop", "student"),
)
"""Titles, keys of the summary for metrics and for the model's size."""


def show_distilled(summary: dict[str, Any]) -> None:
    """Print teacher and students side by side; of an encoder without a task, its vectors' agreement."""
    console = output_console()
    if "primary_metric" not in summary:
        for key, value in summary.items():
            console.print(f"{key}: {value}", highlight=False)
        return
    primary = summary["primary_metric"]
    table = RichTable(title=f"{summary['test']['n']:,} test texts")
    for column in ("model", primary, "parameters", "size", "one text"):
        table.add_column(column, justify="left" if column == "model" else "right")
    for title, name, shape in _ROWS:
        if name not in summary or primary not in summary[name]:
            continue
        known = shape in summary["parameters"]  # not of an average, or a file
        value, spread = summary[name][primary], summary[name].get(f"{primary}_std")
        table.add_row(
            title,
            f"{value:.4f}" + (f" ± {spread:.4f}" if spread is not None else ""),
            f"{summary['parameters'][shape] / 1e6:.2f} M" if known else "",
            f"{summary['megabytes'][shape]:.1f} MB" if known else "",
            f"{summary['latency_ms'][shape]:.2f} ms" if known else "",
        )
    console.print(table)
