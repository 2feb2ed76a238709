"""What the demo shows: its models side by side on the same test reviews, packing, and the time it took."""

from collections.abc import Mapping
from typing import Any

from brimful.reports.charts import Bar, Chart, bar_chart, error_chart
from brimful.reports.content import (
    CLEAR,
    Card,
    ReportTable,
    branch,
    card,
    doubt,
    duration,
    metric,
    number,
    packing_card,
    percent,
    plain,
    plus_minus,
    points,
    short,
    title,
)

MODELS = {
    "tfidf": ("TF-IDF + logistic regression", "tfidf", "c6"),
    "random_init": ("Encoder, random weights", "teacher", "c6"),
    "pretrained": ("Encoder, pretrained", "teacher", "c1"),
    "student_undistilled": ("Student, not distilled", "student", "c6"),
    "student": ("Student, distilled", "student", "c2"),
    "general_teacher": ("Multilingual encoder, fine-tuned", "general_teacher", "c1"),
    "general_student": ("Its student of 4 layers", "general_student", "c2"),
    "general_small": ("Its student of 4 layers, 168 wide", "general_small", "c2"),
}
"""By key in `accuracy`: what a model is called, its key in `models` (size, speed), and its colour."""
COLUMNS = {
    "parameters": ("Parameters", short),
    "size_mb": ("Size, MB", "{:.1f}".format),
    "latency_ms": ("ms a review", "{:.2g}".format),
    "tokens_per_second": ("Tokens a second", short),
}
Summary = Mapping[str, Any]


def demo_headline(summary: Summary) -> tuple[list[str], list[Card | None]]:
    """Sentences and cards: the student and its teacher, what they beat and by how much, packing, time."""
    student, teacher = metric(summary, "accuracy.student"), metric(summary, "accuracy.pretrained")
    fast = metric(summary, "models.student.latency_ms")
    slow = metric(summary, "models.teacher.latency_ms")
    n = metric(summary, "test.n")
    texts = f"of {n:,.0f} test reviews right" if n else "of the test reviews right"
    kept = ""
    if student is not None and teacher:
        error = metric(summary, "comparisons.student_minus_pretrained.standard_error")
        kept = f"{percent(student / teacher)} of its teacher’s accuracy"
        kept += doubt(student - teacher, error, " (a difference {})")
    faster = f" at {slow / fast:.1f} times the speed" if fast and slow else ""
    against = [
        *_against(summary, "random_init", "the same encoder from random weights"),
        *_against(summary, "tfidf", "TF-IDF with logistic regression"),
    ]
    sentence = f"The distilled student gets {percent(student)} {texts}" if student is not None else ""
    return [
        f"{sentence}: {kept}{faster}." if kept else f"{sentence}." if sentence else "",
        f"The pretrained encoder is {' and '.join(against)}." if against else "",
    ], [
        card("Student accuracy", student, lambda v: plus_minus(v, _error(summary, "student")), kept),
        card("Teacher accuracy", teacher, lambda v: plus_minus(v, _error(summary, "pretrained"))),
        packing_card(summary),
        card("From raw text to report", metric(summary, "seconds.total"), duration),
    ]


def _error(summary: Summary, model: str) -> float | None:
    return metric(summary, f"accuracy_standard_error.{model}")


def _against(summary: Summary, other: str, words: str) -> list[str]:
    """How the pretrained encoder does against another model, and whether that may be chance."""
    ours, theirs = metric(summary, "accuracy.pretrained"), metric(summary, f"accuracy.{other}")
    if ours is None or theirs is None:
        return []
    error = metric(summary, f"comparisons.pretrained_minus_{other}.standard_error")
    relation = "ahead of" if ours > theirs else "behind"
    gap = 100 * round(abs(ours - theirs), 9)
    return [f"{gap:.1f} points {relation} {words}{doubt(ours - theirs, error, ' ({})')}"]


def _models(summary: Summary) -> list[str]:
    """The models with an accuracy: the known ones in their order, then any other."""
    accuracy = branch(summary, "accuracy")
    names = [*filter(accuracy.__contains__, MODELS), *(name for name in accuracy if name not in MODELS)]
    return [name for name in names if number(accuracy[name]) is not None]


def demo_tables(summary: Summary) -> list[ReportTable]:
    """The models side by side, the differences between pairs of them, and the data that they saw."""
    models = _models(summary)
    rows = [[label_of(name), plus_minus(summary["accuracy"][name], _error(summary, name))] for name in models]
    columns = ["Model", "Accuracy"]
    for key, (column, show) in COLUMNS.items():
        values = [measured_of(summary, name, key) for name in models]
        if any(value is not None for value in values):
            columns.append(column)
            for row, value in zip(rows, values, strict=True):
                row.append("–" if value is None else show(value))
    n = metric(summary, "test.n")
    note = f"All on the same {n:,.0f} test reviews; ± one standard error." if n else "± one standard error."
    tables = [ReportTable("The models side by side", columns, rows, note)] if rows else []
    return [*tables, *difference_tables(summary)]


def difference_tables(summary: Summary) -> list[ReportTable]:
    """The differences between pairs of models, and the data that they saw."""
    tables = []
    pairs = [_pair(name, pair) for name, pair in branch(summary, "comparisons").items()]
    differences = [pair for pair in pairs if pair]
    if differences:
        note = f"Paired over the same reviews; beyond chance: by more than {CLEAR:g} standard errors."
        tables.append(
            ReportTable(
                "Differences", ["Pair", "Points", "Standard error", "Beyond chance?"], differences, note
            )
        )
    counts = [
        (title(key).capitalize(), plain(n))
        for key, n in branch(summary, "data").items()
        if number(n) is not None
    ]
    if counts:
        tables.append(ReportTable("The data", [name for name, _ in counts], [[n for _, n in counts]]))
    return tables


def label_of(model: str) -> str:
    """What a model of the demo is called."""
    return MODELS[model][0] if model in MODELS else title(model)


def measured_of(summary: Summary, model: str, key: str) -> float | None:
    """Size or speed of a model; without its own measurement, it shares its shape's."""
    return metric(summary, f"models.{MODELS[model][1] if model in MODELS else model}.{key}")


def _pair(name: str, pair: Any) -> list[str] | None:
    """The row of one comparison, named `MODEL_minus_MODEL`."""
    difference, error = metric(pair, "difference"), metric(pair, "standard_error")
    if difference is None:
        return None
    words = " \u2212 ".join(map(label_of, name.split("_minus_")))
    if error is None:
        return [words, points(difference), "–", "–"]
    clear = "yes" if abs(difference) > CLEAR * error else "unclear"
    return [words, points(difference), f"{100 * error:.1f}", clear]


def accuracy_charts(summary: Summary) -> list[Chart]:
    """Accuracies with their errors."""
    bars = []
    for model in _models(summary):
        value, error = summary["accuracy"][model], _error(summary, model)
        colour = MODELS[model][2] if model in MODELS else "c6"
        bars.append(Bar(label_of(model), value, percent(value), error or 0.0, colour))
    note = "± one standard error; the axis does not begin at zero."
    return [error_chart("Accuracy on the test reviews", bars, note)] if bars else []


def work_charts(summary: Summary) -> list[Chart]:
    """Real tokens against padding, and the time of each stage."""
    times = []
    for stage, value in branch(summary, "seconds").items():
        seconds = number(value)
        if seconds is not None and stage != "total":
            times.append(Bar(title(stage), seconds, duration(seconds)))
    return [*_packing_chart(summary), *([bar_chart("Time of each stage", times)] if times else [])]


def _packing_chart(summary: Summary) -> list[Chart]:
    """Share of real tokens: packed rows against one sequence a row."""
    packed, padded = metric(summary, "packing.efficiency"), metric(summary, "packing.padded_efficiency")
    if packed is None or padded is None:
        return []
    bars = [
        Bar("Packed rows", packed, percent(packed)),
        Bar("One text a row", padded, percent(padded), colour="c6"),
    ]
    note = "Each bar is all the token slots computed; the rest of it is padding."
    return [bar_chart("Real tokens against padding", bars, note, full=1.0)]
