"""Encoders side by side: their loss on held-out text, and every model of the task beside the best."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from brimful.reports.content import ReportTable, percent, written, written_gap

if TYPE_CHECKING:
    from brimful.tasks.task import Metric


def evaluated_tables(summary: Mapping[str, Any], metrics: "Sequence[Metric]" = ()) -> list[ReportTable]:
    """The losses on text, and the task's metric of every model.

    Args:
        metrics: of the task.
    """
    tables = []
    if summary.get("text"):
        rows = [
            [
                f"{row['source']}, {row['encoder']}",
                f"{row['loss']:.3f} ± {row['standard_error']:.3f}",
                percent(row["accuracy"]),
                f"{row['bits_per_character']:.3f}",
            ]
            for row in summary["text"]
        ]
        columns = ["Source, encoder", "Loss", "Accuracy", "Bits a character"]
        tables.append(ReportTable("Held-out text, 15 % of the words masked", columns, rows))
    if models := summary.get("models"):
        name = summary["primary_metric"]
        share = any(one.percent for one in metrics if one.name == name)
        rows = [
            [
                row["model"],
                written(row[name], row.get(f"{name}_std"), share=share),
                written_gap(row["behind"], row["standard_error"], share=share) if "behind" in row else "",
                f"{row['seconds']:.1f} s",
            ]
            for row in models
        ]
        columns = ["Model", name, f"Behind the best{', points' if share else ''}", "Training"]
        heading = f"{summary['task']}, {summary['test']['n']:,} test rows"
        tables.append(ReportTable(heading, columns, rows, decides=True))
    return tables
