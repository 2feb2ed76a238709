"""The models of a summary as `ModelResult`s: what they were measured on, their errors, what they cost."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from brimful.base.numbers import accuracy_error, branch, metric
from brimful.base.summary import MeasuredOn
from brimful.tasks.task import Metric

Facts = Mapping[str, Any]


def find_primary(facts: Facts, metrics: Sequence[Metric]) -> Metric:
    """The metric that decided."""
    return next((one for one in metrics if one.name == facts.get("primary_metric")), metrics[0])


def describe_test(facts: Facts, primary: Metric) -> MeasuredOn:
    """The test rows of a summary, and the metric that decided."""
    test = branch(facts, "test")
    is_high = primary.best == "highest"
    n, fingerprint = int(metric(test, "n") or 0), str(test.get("fingerprint", ""))
    return MeasuredOn(primary.title, n, fingerprint, is_high, primary.percent)


def error_of(measured: Any, primary: Metric, n: float | None) -> float | None:
    """The standard error of an accuracy over test rows and seeds; None of another metric."""
    value = metric(measured, primary.name)
    error = accuracy_error(value, n) if primary.name == "accuracy" and value is not None else None
    if error is None:
        return None
    runs = measured.get(f"{primary.name}_runs", [value])
    deviation = metric(measured, f"{primary.name}_std") or 0.0
    return math.hypot(error, deviation / math.sqrt(len(runs)))


def name_baseline(name: str, measured: Facts) -> str:
    """A baseline's name, with what it reads of a text where that was chosen."""
    return f"{name} ({measured['reads']})" if "reads" in measured else name


def read_costs(measured: Any, model: str = "") -> dict[str, Any]:
    """What a model takes, by the names of ModelResult.

    Args:
        model: its key in facts that hold several models.
    """
    keys = {"milliseconds": "latency_ms"}
    names = ("milliseconds", "texts_per_second", "withheld", "megabytes", "parameters", "seconds")
    end = f".{model}" if model else ""
    return {name: metric(measured, f"{keys.get(name, name)}{end}") for name in names}
