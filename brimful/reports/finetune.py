"""What a fine-tuned model shows beside its metrics: the ladder of baselines, its metric by labels, what is
odd in its tables, confusion, calibration, errors."""

from collections.abc import Container, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from brimful.reports.charts import Chart, Line, heat_chart, line_chart
from brimful.reports.content import (
    SPACE,
    Card,
    ReportTable,
    branch,
    capitalized,
    card,
    decisive_metric,
    duration,
    known_columns,
    lead,
    metric,
    number,
    percent,
    plain,
    short,
    title,
    written,
    written_gap,
)

if TYPE_CHECKING:
    from brimful.tasks.task import Metric

RUNGS = {
    "majority": "Majority",
    "tfidf": "TF-IDF + linear model",
    "frozen": "Frozen encoder + linear model",
    "random": "Encoder from random weights",
    "finetuned": "Fine-tuned encoder",
}
"""The models of the ladder, by their keys in a summary."""

SHOWN_KEYS = ("by_label", "label_curve", "trials", "findings", "errors", "mislabelled", "abstain", "confused")
"""Lists of summary.json that have a table or a sentence here."""
SETTINGS = ("seed", "learning_rate", "epochs")
"""Of a trial; beside them stands its metric on dev, such as dev_accuracy."""
LARGEST_MAP = 20
"""Labels of a drawn confusion matrix; of more, the most frequent confusions are listed."""
ROWS = 10

Summary = Mapping[str, Any]


def trial_tables(summary: Summary, shares: Container[str] = ()) -> list[ReportTable]:
    """The trainings that dev chose among; none where there was one.

    Args:
        shares: names of metrics that are shown as percentages; so below.
    """
    trials = _records(summary, "trials")
    names = list(dict.fromkeys(name for trial in trials for name in trial))
    rows = [[_of_trial(trial, name, shares) for name in names] for trial in trials]
    return [ReportTable("Trials", _titles(names), rows)] if len(rows) > 1 else []


def ladder_tables(summary: Summary, metrics: "Sequence[Metric]" = ()) -> list[ReportTable]:
    """The baselines beside the fine-tuned model, on the same rows.

    Args:
        metrics: of the task.
    """
    rungs = branch(summary, "baselines")
    if not rungs:
        return []
    names = [key for key in next(iter(rungs.values())) if metric(summary, f"test.{key}") is not None]
    ours = branch(summary, "test") | {
        "seconds": summary.get("seconds"),
        "latency_ms": summary.get("latency_ms"),
        "texts_per_second": summary.get("texts_per_second"),
    }
    shares = {one.name for one in metrics if one.percent}
    primary, *others = (title(name).capitalize() for name in names)
    share = names[:1] != [] and names[0] in shares
    better_by = f"Fine-tuned is better by{', points' if share else ''}"
    columns = ["Model", primary, better_by, *others, "Training", "One text", "Texts a second"]
    rows = []
    for name, rung in (rungs | {"finetuned": ours}).items():
        gap, error = lead(rung, decisive_metric(summary, metrics))
        better = "–"
        if gap is not None and error is not None:
            better = written_gap(gap, error, share=share, signed=True)
        seconds, latency = metric(rung, "seconds"), metric(rung, "latency_ms")
        rate = metric(rung, "texts_per_second")
        value, *other_values = (_measure(rung, one, shares) for one in names)
        rows.append(
            [
                RUNGS.get(name, title(name)) + (f" ({rung['reads']})" if "reads" in rung else ""),
                value,
                better,
                *other_values,
                "–" if seconds is None else duration(seconds),
                f"{latency:.2f}{SPACE}ms" if latency else "–",
                short(rate) if rate else "–",
            ]
        )
    columns, rows = known_columns(columns, rows)
    note = (
        "Same training, dev and test rows; of a large train, linear models take a part. ± is the standard"
        " error of the difference over test rows and seeds; the fine-tuned model's time is that of all its"
        " trainings. Speeds were measured in turns."
    )
    return [ReportTable("The same labels, otherwise used", columns, rows, note, decides=True)]


def _measure(measured: Mapping[str, Any], name: str, shares: Container[str]) -> str:
    value = metric(measured, name)
    return "–" if value is None else written(value, share=name in shares)


def _of_trial(trial: Mapping[str, Any], name: str, shares: Container[str]) -> str:
    value = metric(trial, name)
    if value is None or name in SETTINGS:
        return _plain(value)
    return written(value, share=name.removeprefix("dev_") in shares)


def _plain(value: float | None) -> str:
    return "–" if value is None else plain(value)


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


def calibration_card(summary: Summary) -> Card | None:
    """How far probabilities are from the truth."""
    before, after = (metric(summary, f"calibration.{key}") for key in ("ece", "ece_calibrated"))
    if after is None:
        return card("Calibration error", before, percent, "expected, 15 bins; not calibrated")
    changed = before is not None and abs(before - after) > 5e-4
    note = f"expected, 15 bins; {percent(before)} without the temperature" if before and changed else ""
    return card("Calibration error", after, percent, note or "expected, 15 bins")


def metrics_table(summary: Summary, titles: Mapping[str, str], shares: Container[str]) -> list[ReportTable]:
    """All metrics on each test table and on dev.

    Args:
        titles: of the task's metrics, by their names; others are named by their keys.
    """
    parts = {"Test": branch(summary, "test"), "Dev": branch(summary, "dev")}
    parts |= {name: measured for name, measured in branch(summary, "tests").items() if measured}
    parts = {name: measured for name, measured in parts.items() if isinstance(measured, Mapping) and measured}
    names = [
        key
        for key in dict.fromkeys(key for measured in parts.values() for key in measured)
        if key != "n" and not key.endswith(("_std", "_runs"))
    ]
    rows = []
    for name in names:
        cells = []
        for measured in parts.values():
            value, spread = metric(measured, name), metric(measured, f"{name}_std")
            if value is None:
                cells.append("–")
            else:
                cells.append(written(value, spread, share=name in shares))
        if set(cells) != {"–"}:
            rows.append([capitalized(titles.get(name, title(name))), *cells])
    if not rows:
        return []
    sizes = [metric(measured, "n") for measured in parts.values()]
    heads = [name if n is None else f"{name}, {n:,.0f} rows" for name, n in zip(parts, sizes, strict=True)]
    runs = next((v for k, v in branch(summary, "test").items() if k.endswith("_runs")), None)
    note = f"± is the deviation over {len(runs)} seeds." if isinstance(runs, list) else ""
    return [ReportTable("Metrics", ["Metric", *heads], rows, note, decides=True)]


def label_tables(summary: Summary) -> list[ReportTable]:
    """F1 of each label and how often it stands in the test table; of many, those with the lowest F1."""
    records = [row for row in _records(summary, "by_label") if metric(row, "f1") is not None]
    many = len(records) > LARGEST_MAP
    shown = sorted(records, key=lambda row: row["f1"])[:LARGEST_MAP] if many else records
    rows = [
        [
            plain(row.get("label")),
            percent(row["f1"]),
            _plain(metric(row, "support")),
            *(_share(row.get(key)) for key in ("precision", "recall")),
        ]
        for row in shown
    ]
    if not rows:
        return []
    note = f"The {len(shown)} lowest of {len(records)}." if many else ""
    columns = ["Label", "F1", "Support", "Precision", "Recall"]
    return [ReportTable("F1 of each label", columns, rows, note, decides=True)]


def held_out_sentence(summary: Summary) -> str:
    """What the test rows are, where they are a part of the training table."""
    test, dev = (metric(summary, f"held_out.{name}") for name in ("test", "dev"))
    if test is None:
        return ""
    parts = f"{test:,.0f} test rows" + (f" and {dev:,.0f} dev rows" if dev is not None else "")
    return f"The {parts} were held out of the training table; held_out_rows.json in the run names them."


def never_sentence(summary: Summary) -> str:
    """The labels of test rows that no prediction has, of many the first."""
    names = summary.get("never_predicted")
    if not isinstance(names, list) or not names:
        return ""
    more = f" and {len(names) - ROWS:,} more" if len(names) > ROWS else ""
    return f"Never predicted on test: {', '.join(map(plain, names[:ROWS]))}{more}."


def abstain_tables(summary: Summary) -> list[ReportTable]:
    """Thresholds for abstaining, and what they keep and reach."""
    shares = ("target", "threshold", "dev_coverage", "dev_accuracy", "test_coverage", "test_accuracy")
    abstain = _records(summary, "abstain")
    if not abstain:
        return []
    return [
        ReportTable(
            "Answer only where the probability is high",
            ["Wanted accuracy", "Lowest probability", *_titles(shares[2:])],
            [[_share(row.get(key)) for key in shares] for row in abstain],
            "Each is the lowest threshold that reaches the wanted accuracy on dev: on other rows the accuracy"
            " is below it more often than above. brimful predict --abstain-below.",
            decides=True,
        )
    ]


def odd_tables(summary: Summary) -> list[ReportTable]:
    """What was odd in the tables, confusions of many labels, errors, and rows with a doubtful label."""
    tables = _table(
        summary, "findings", "Noticed in the tables", {"message": "Finding", "table": "Table", "kind": "Kind"}
    )
    if _confusion(summary) is None:
        tables += _table(
            summary,
            "confused",
            "Most frequent confusions",
            {"label": "Label", "prediction": "Prediction", "rows": "Rows"},
        )
    first = {"text": "Text", "row": "Row", "label": "Label"}
    errors = {**first, "prediction": "Prediction", "probability": "Probability"}
    tables += _table(summary, "errors", "Test texts that the model gets most wrong", errors)
    doubted, checked = metric(summary, "doubted.rows"), metric(summary, "doubted.checked")
    tables += _table(
        summary,
        "mislabelled",
        "Training rows whose label is doubtful",
        {
            **first,
            "likely": "Likely label",
            "label_probability": "Probability of the label",
            "likely_probability": "of the likely one",
        },
        f"{doubted:,.0f} of {checked:,.0f} rows, by a logistic regression on the frozen encoder that has not"
        " seen the row."
        if doubted is not None and checked is not None
        else "",
    )
    return tables


def _titles(keys: Sequence[str]) -> list[str]:
    return [key.replace("_", " ").capitalize() for key in keys]


def _table(
    summary: Summary, key: str, title: str, columns: Mapping[str, str], note: str = ""
) -> list[ReportTable]:
    """A table of the first records of a list, without columns that none of them has."""
    records = _records(summary, key)[:ROWS]
    kept = {name: shown for name, shown in columns.items() if any(name in row for row in records)}
    if not kept:
        return []
    rows = [
        [_share(row.get(name)) if name.endswith("probability") else plain(row.get(name)) for name in kept]
        for row in records
    ]
    return [ReportTable(title, list(kept.values()), rows, note)]


def _records(summary: Summary, key: str) -> list[Mapping[str, Any]]:
    values = summary.get(key)
    return [row for row in values if isinstance(row, Mapping)] if isinstance(values, list) else []


def _share(value: Any) -> str:
    found = number(value)
    return "–" if found is None else percent(found)


def confusion_charts(summary: Summary) -> list[Chart]:
    """The confusion matrix, where it is small enough to draw."""
    confusion = _confusion(summary)
    return [] if confusion is None else [heat_chart("Confusion on test", *confusion)]


def calibration_charts(summary: Summary) -> list[Chart]:
    """How often predictions of each confidence are right, accuracy by coverage."""
    charts = []
    calibration = branch(summary, "calibration")
    lines = [
        line
        for key, name in (("bins", "as trained"), ("bins_calibrated", "with the temperature"))
        if (line := _percentages(branch(calibration, key), "confidence", "accuracy", name))
    ]
    if lines:
        ideal = Line("perfect", (0, 100), (0, 100), caption="perfect")
        charts.append(line_chart("Test accuracy, %, by probability", [*lines, ideal], "probability, %"))
    curve = _percentages(branch(summary, "selection"), "coverage", "accuracy", "accuracy")
    if curve:
        charts.append(line_chart("Test accuracy, %, if the least sure are left out", [curve], "answered, %"))
    return charts


def _confusion(summary: Summary) -> tuple[list[str], list[list[float]]] | None:
    """The labels and counts of a confusion matrix that is small enough to draw."""
    labels: Any = branch(summary, "confusion").get("labels")
    counts: Any = branch(summary, "confusion").get("counts")
    if not isinstance(labels, list) or not isinstance(counts, list) or len(labels) != len(counts):
        return None
    if not 1 < len(labels) <= LARGEST_MAP:
        return None
    if not all(isinstance(row, list) and len(row) == len(labels) for row in counts):
        return None
    if any(number(value) is None for row in counts for value in row):
        return None
    return [plain(name) for name in labels], counts


def _percentages(values: Summary, x: str, y: str, name: str) -> Line | None:
    """Two lists of shares as a curve; None without two points."""
    xs, ys = values.get(x), values.get(y)
    if not (isinstance(xs, list) and isinstance(ys, list) and len(xs) == len(ys) > 1):
        return None
    if any(number(value) is None for value in (*xs, *ys)):
        return None
    return Line(name, [100 * value for value in xs], [100 * value for value in ys], caption=name)
