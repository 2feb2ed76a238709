"""The Summary of an evaluation: encoders side by side on a task and on held-out text."""

from collections.abc import Mapping, Sequence
from typing import Any

from brimful.base.numbers import metric, percent, records, written
from brimful.base.summary import ModelResult, Summary, judge_models, make_table
from brimful.tasks.judging.comparison import describe_test, error_of, find_primary, read_costs
from brimful.tasks.task import Metric

Facts = Mapping[str, Any]


def summarise_evaluation(facts: Facts, metrics: Sequence[Metric]) -> Summary:
    """What came out of an evaluation.

    Args:
        facts: what summary.json holds.
        metrics: of the task; empty without one.
    """
    title = "Encoders side by side"
    texts = sorted(records(facts, "text"), key=lambda row: row["loss"])
    rows = [
        [
            f"{row['encoder']} on {row['source']}",
            written(row["loss"], row["standard_error"], share=False),
            percent(row["accuracy"]),
            f"{row['bits_per_character']:.3f}",
        ]
        for row in texts
    ]
    columns = ["Encoder", "Loss", "Masked tokens found", "Bits a character"]
    tables = make_table("Held-out text, 15 % of the words masked", columns, rows)
    if not facts.get("models"):
        lowest = f"The lowest loss on held-out text is {rows[0][1]}, of {rows[0][0]}." if rows else ""
        return Summary(title, lowest or "No encoder could be compared.", tables)
    primary = find_primary(facts, metrics)
    test = describe_test(facts, primary)
    models = []
    for row in records(facts, "models"):
        name = str(row["model"])
        models.append(
            ModelResult(
                name=name,
                value=metric(row, primary.name) or 0.0,
                error=error_of(row, primary, test.n),
                pairs=_read_pairs(facts, name),
                role=_find_role(name),
                **read_costs(row),
            )
        )
    return Summary(title, judge_models(test, models), tables, test=test, models=models)


def _read_pairs(facts: Facts, name: str) -> dict[str, float]:
    """The standard errors of a model's differences from those after it."""
    pairs = records(facts, "differences")
    return {pair["second"]: pair["standard_error"] for pair in pairs if pair["first"] == name}


def _find_role(name: str) -> Any:
    if name == "majority":
        return "guess"
    return "baseline" if name.startswith("TF-IDF") or name.endswith(", frozen") else "model"
