"""What `brimful distil` prints at its end: teacher and students side by side."""

from typing import Any

from rich.table import Table as RichTable

from brimful.console import output_console

_ROWS = (
    ("teacher", "teacher", "teacher"),
    ("student", "student", "student"),
    ("its start, from labels alone", "student_without_distillation", "student"),
    ("teacher's layers, by logits alone", "student_layer_drop", "student"),
    ("TF-IDF and a linear model", "tfidf", "tfidf"),
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
    for column in ("model", primary, "student is better by", "parameters", "size", "one text"):
        table.add_column(column, justify="left" if column == "model" else "right")
    for title, name, shape in _ROWS:
        if name not in summary or primary not in summary[name]:
            continue
        sizes, times = summary["parameters"], summary["latency_ms"]  # none of an average, or a file
        value, spread = summary[name][primary], summary[name].get(f"{primary}_std")
        apart = summary.get("comparisons", {}).get(f"student_minus_{name}")
        table.add_row(
            title,
            f"{value:.4f}" + (f" ± {spread:.4f}" if spread is not None else ""),
            f"{apart['difference']:+.4f} ± {apart['standard_error']:.4f}" if apart else "",
            f"{sizes[shape] / 1e6:.2f} M" if shape in sizes else "",
            f"{summary['megabytes'][shape]:.1f} MB" if shape in sizes else "",
            f"{times[shape]:.2f} ms" if shape in times else "",
        )
    console.print(table)
