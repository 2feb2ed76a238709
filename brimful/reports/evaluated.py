"""Encoders side by side: their loss on held-out text, and every model of the task beside the best."""

from collections.abc import Mapping
from typing import Any

from brimful.reports.content import ReportTable


def evaluated_tables(summary: Mapping[str, Any]) -> list[ReportTable]:
    """The losses on text, and the task's metric of every model."""
    tables = []
    if summary.get("text"):
        rows = [
            [
                f"{row['source']}, {row['encoder']}",
                f"{row['loss']:.3f} ± {row['standard_error']:.3f}",
                f"{row['accuracy']:.3f}",
                f"{row['bits_per_character']:.3f}",
            ]
            for row in summary["text"]
        ]
        columns = ["Source, encoder", "Loss", "Accuracy", "Bits a character"]
        tables.append(ReportTable("Held-out text, 15 % of the words masked", columns, rows))
    if models := summary.get("models"):
        name = summary["primary_metric"]
        rows = [
            [
                row["model"],
                f"{row[name]:.3f}",
                f"± {row[f'{name}_std']:.3f}" if f"{name}_std" in row else "",
                f"{row['behind']:.3f} ± {row['standard_error']:.3f}" if "behind" in row else "",
                f"{row['seconds']:.1f} s",
            ]
            for row in models
        ]
        columns = ["Model", name, "Over seeds", "Behind the best by", "Training"]
        heading = f"{summary['task']}, {summary['test']['n']:,} test rows"
        tables.append(ReportTable(heading, columns, rows, decides=True))
    return tables
