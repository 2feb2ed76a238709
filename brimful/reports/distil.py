"""Students beside what a user would pick instead: their teacher, their baselines, TF-IDF."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from brimful.reports.content import (
    SPACE,
    ReportTable,
    branch,
    capitalized,
    decisive_metric,
    known_columns,
    lead,
    metric,
    short,
    written,
    written_gap,
)

if TYPE_CHECKING:
    from brimful.tasks.task import Metric

ROWS = (
    ("teacher", "teacher", "teacher"),
    ("student", "student", "student"),
    ("its start, from labels alone", "student_without_distillation", "student"),
    ("teacher's layers, by logits alone", "student_layer_drop", "student_layer_drop"),
    ("TF-IDF and a linear model", "tfidf", "tfidf"),
)
"""Titles; keys of the summary for metrics; and for the model's size and time."""


def distilled_tables(summary: Mapping[str, Any], metrics: "Sequence[Metric]" = ()) -> list[ReportTable]:
    """The metric of each model, the student's lead, size and time; none for an encoder without a task.

    Args:
        metrics: of the task.
    """
    primary = summary.get("primary_metric")
    if not isinstance(primary, str):
        return []
    decisive = decisive_metric(summary, metrics)
    share = decisive is not None and decisive.percent
    rows = []
    for title, name, shape in ROWS:
        value = metric(summary, f"{name}.{primary}")
        if value is None:
            continue
        spread = metric(summary, f"{name}.{primary}_std")
        gap, error = lead(branch(summary, "comparisons").get(f"student_minus_{name}"), decisive)
        parameters, megabytes, milliseconds, rate = (
            metric(summary, f"{key}.{shape}")
            for key in ("parameters", "megabytes", "latency_ms", "texts_per_second")
        )
        lead_in_words = ""
        if gap is not None and error is not None:
            lead_in_words = written_gap(gap, error, share=share, signed=True)
        rows.append(
            [
                capitalized(title),
                written(value, spread, share=share),
                lead_in_words,
                "" if parameters is None else f"{parameters / 1e6:.2f}{SPACE}M",
                "" if megabytes is None else f"{megabytes:.1f}{SPACE}MB",
                "" if milliseconds is None else f"{milliseconds:.2f}{SPACE}ms",
                "" if rate is None else short(rate),
            ]
        )
    n = metric(summary, "test.n")
    of = f"The models on {n:,.0f} test texts" if n is not None else "The models on the test texts"
    lead_head = f"Student is better by{', points' if share else ''}"
    columns = ["Model", capitalized(primary), lead_head, "Parameters", "Size", "One text", "Texts a second"]
    columns, rows = known_columns(columns, rows)
    note = (
        "± of a metric: the deviation over seeds; of a difference: its standard error over test texts and"
        " seeds, paired. One text, and texts a second: on the CPU of that machine, in turns, from text to"
        " answer."
    )
    return [ReportTable(of, columns, rows, note, decides=True)] if rows else []
