"""What a fine-tuning shows beside its metrics: the ladder of baselines, and its metric by labels."""

from collections.abc import Mapping
from typing import Any

from brimful.reports.charts import Chart, Line, line_chart
from brimful.reports.content import SPACE, Table, branch, duration, metric, number, plain, title

RUNGS = {
    "majority": "Majority",
    "tfidf": "TF-IDF + linear model",
    "frozen": "Frozen encoder + linear model",
    "random": "Encoder from random weights",
    "finetuned": "Fine-tuned encoder",
}
"""The models of the ladder, by their keys in a summary."""

Summary = Mapping[str, Any]


def ladder_tables(summary: Summary) -> list[Table]:
    """The baselines beside the fine-tuned model, on the same rows."""
    rungs = branch(summary, "baselines")
    if not rungs:
        return []
    names = [key for key in next(iter(rungs.values())) if metric(summary, f"test.{key}") is not None]
    ours = branch(summary, "test") | {
        "seconds": summary.get("seconds"),
        "latency_ms": summary.get("latency_ms"),
    }
    columns = ["Model", *(title(name).capitalize() for name in names)]
    columns += [f"Fine-tuned is better by ({title(names[0])})", "Training", "One text"]
    rows = []
    for name, rung in (rungs | {"finetuned": ours}).items():
        gap, error = metric(rung, "difference"), metric(rung, "standard_error")
        better = f"{gap:+.3f}{SPACE}±{SPACE}{error:.3f}" if gap is not None and error is not None else "–"
        seconds, latency = metric(rung, "seconds"), metric(rung, "latency_ms")
        values = [metric(rung, one) for one in names]
        rows.append(
            [
                RUNGS.get(name, title(name)),
                *("–" if value is None else plain(value) for value in values),
                better.replace("-", "\u2212"),
                "–" if seconds is None else duration(seconds),
                f"{latency:.2f}{SPACE}ms" if latency else "–",
            ]
        )
    note = (
        "Same training, dev and test rows. ± is the standard error of the difference from the kept model by"
        " the paired bootstrap; the fine-tuned model's time is that of all its trainings."
    )
    return [Table("The same labels, otherwise used", columns, rows, note)]


def curve_charts(summary: Summary) -> list[Chart]:
    """The primary metric of each model by the number of labels."""
    records = summary.get("label_curve")
    if not isinstance(records, list) or not records:
        return []
    lines = []
    for name, label in RUNGS.items():
        points = [
            (record["labels"], record[name]) for record in records if number(record.get(name)) is not None
        ]
        if points:
            xs, ys = zip(*points, strict=True)
            lines.append(Line(label, xs, ys, caption=f"{label} {plain(ys[-1])}"))
    return [line_chart("Test metric by number of labels", lines, "labels")] if lines else []
