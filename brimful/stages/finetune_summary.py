"""The Summary of a fine-tuning: the model beside its baselines, its metrics, and what to look at."""

from collections.abc import Mapping, Sequence
from typing import Any

from brimful.base.numbers import branch, in_words, metric, percent, plain, records, written
from brimful.base.summary import (
    ModelResult,
    Summary,
    SummaryTable,
    judge_models,
    make_facts_table,
    make_table,
)
from brimful.tasks.judging.comparison import describe_test, error_of, find_primary, name_baseline, read_costs
from brimful.tasks.task import Metric
from brimful.train.metrics import list_outcome

OWN = "Fine-tuned encoder"
BASELINES = {
    "majority": "Most frequent label",
    "tfidf": "TF-IDF + linear model",
    "frozen": "Frozen encoder + linear model",
}
"""The other models of the ladder, by their keys in a summary."""
MAX_ROWS = 20
"""Labels and rows of a table."""

Facts = Mapping[str, Any]


def summarise_finetuning(facts: Facts, metrics: Sequence[Metric]) -> Summary:
    """What came out of a fine-tuning.

    Args:
        facts: what summary.json holds.
        metrics: of the task.
    """
    primary = find_primary(facts, metrics)
    test = describe_test(facts, primary)
    models = _list_models(facts, primary)
    tables = [
        *make_facts_table("Result", _list_result(facts)),
        *_make_metrics_table(facts, metrics),
        *_make_label_table(facts),
        *_make_abstain_table(facts),
        *_make_row_table(facts, "findings", "Noticed in the tables", ("message", "table", "kind")),
        *_make_row_table(facts, "confused", "Confused labels", ("label", "prediction", "rows")),
        *_make_row_table(
            facts, "errors", "Largest errors on test", ("text", "row", "label", "prediction", "probability")
        ),
        *_make_row_table(facts, "trials", "Trials", ("seed", "learning_rate", f"dev_{primary.name}")),
    ]
    title = f"Fine-tuned for {facts['task']}"
    return Summary(title, judge_models(test, models), tables, test=test, models=models)


def _list_models(facts: Facts, primary: Metric) -> list[ModelResult]:
    """The model and its baselines."""
    test, baselines = branch(facts, "test"), branch(facts, "baselines")
    n = metric(test, "n")
    names = {key: name_baseline(BASELINES.get(key, in_words(key)), rung) for key, rung in baselines.items()}
    pairs = {names[key]: metric(rung, "standard_error") for key, rung in baselines.items()}
    own = ModelResult(
        name=OWN,
        value=metric(test, primary.name) or 0.0,
        error=error_of(test, primary, n),
        pairs={name: error for name, error in pairs.items() if error is not None},
        is_own=True,
        **read_costs(facts),
    )
    models = [own]
    for key, rung in baselines.items():
        value = metric(rung, primary.name)
        if value is not None:
            role: Any = "guess" if key == "majority" else "baseline"
            error, costs = error_of(rung, primary, n), read_costs(rung)
            models.append(ModelResult(name=names[key], value=value, error=error, role=role, **costs))
    return models


def _list_result(facts: Facts) -> dict[str, str | None]:
    """What one must know beside the metrics."""
    error, leaked = metric(facts, "calibration.ece_calibrated"), metric(facts, "leaked_test_texts")
    before, held_out = metric(facts, "calibration.ece"), metric(facts, "held_out.test")
    never = facts.get("never_predicted")
    return {
        "Test texts that are also in train": f"{leaked:,.0f}" if leaked else None,
        "Test rows held out of train": f"{held_out:,.0f} (held_out_rows.json)" if held_out else None,
        "Never predicted on test": plain(never[:MAX_ROWS]) if isinstance(never, list) else None,
        "Calibration error": None if error is None else percent(error),
        "Calibration error, no temperature": None if before is None else percent(before),
        **list_outcome(facts, metric(facts, "test.loss")),
    }


def _make_metrics_table(facts: Facts, metrics: Sequence[Metric]) -> list[SummaryTable]:
    """All metrics on each test table and on dev; ± is the deviation over seeds."""
    parts = {"test": branch(facts, "test"), "dev": branch(facts, "dev"), **branch(facts, "tests")}
    parts = {name: measured for name, measured in parts.items() if measured}
    rows = []
    for one in metrics:
        cells = []
        for measured in parts.values():
            value, spread = metric(measured, one.name), metric(measured, f"{one.name}_std")
            cells.append("" if value is None else written(value, spread, share=one.percent))
        rows.append([in_words(one.title), *cells])
    sizes = [metric(measured, "n") for measured in parts.values()]
    heads = [name if n is None else f"{name}, {n:,.0f} rows" for name, n in zip(parts, sizes, strict=True)]
    has_seeds = any(key.endswith("_runs") for key in branch(facts, "test"))
    note = "± is the deviation over seeds." if has_seeds else ""
    rows = [row for row in rows if any(row[1:])]
    return make_table("Metrics", ["Metric", *heads], rows, note)


def _make_label_table(facts: Facts) -> list[SummaryTable]:
    """F1 of each label; of many the lowest."""
    labels = [row for row in records(facts, "by_label") if metric(row, "f1") is not None]
    shown = sorted(labels, key=lambda row: row["f1"])[:MAX_ROWS] if len(labels) > MAX_ROWS else labels
    shares = ("f1", "precision", "recall")
    rows = [
        [plain(row["label"]), plain(row.get("support")), *(_show_share(row.get(key)) for key in shares)]
        for row in shown
    ]
    note = f"The {len(shown)} lowest of {len(labels)}." if len(shown) < len(labels) else ""
    columns = ["Label", "Rows", "F1", "Precision", "Recall"]
    return make_table("F1 of each label", columns, rows, note, is_detail=True)


def _make_abstain_table(facts: Facts) -> list[SummaryTable]:
    """Thresholds for abstaining, and what they keep and reach."""
    keys = ("target", "threshold", "dev_coverage", "dev_accuracy", "test_coverage", "test_accuracy")
    rows = [[_show_share(row.get(key)) for key in keys] for row in records(facts, "abstain")]
    note = (
        "Each is the lowest threshold that reaches the wanted accuracy on dev: on other rows the accuracy is"
        " below it more often than above. brimful predict --abstain-below."
    )
    columns = ["Wanted accuracy", "Lowest probability", *map(in_words, keys[2:])]
    title = "Answer only where the probability is high"
    return make_table(title, columns, rows, note, is_detail=True)


def _make_row_table(facts: Facts, key: str, title: str, columns: Sequence[str]) -> list[SummaryTable]:
    """The first records of a list; probabilities in percent."""
    rows = []
    for record in records(facts, key)[:MAX_ROWS]:
        row = []
        for name in columns:
            value = "" if record.get(name) is None else record[name]
            row.append(_show_share(value) if name.endswith("probability") else plain(value))
        rows.append(row)
    return make_table(title, [in_words(name) for name in columns], rows, is_detail=True)


def _show_share(value: Any) -> str:
    return percent(value) if isinstance(value, int | float) else ""
