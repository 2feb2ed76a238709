"""Models side by side on the same test rows: how sure one can be that one is better, how fast they answer on
this machine, and what summaries of verbs say of each."""

import json
import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy import ndarray

from brimful.base.numbers import estimate_share_error, find_mapping, find_number
from brimful.base.randomness import derive_key, shuffle_groups
from brimful.base.storage import atomic_file, sweep
from brimful.base.summary import MeasuredOn
from brimful.base.types import Facts, Numbers, Values
from brimful.tables.table import Table
from brimful.tasks.encoded_tables import Encoded
from brimful.tasks.task import Metric, RowsMetric, Task

JACKKNIFE_PARTS = 50
"""Parts of the examples, each of which is left out in turn."""


class Judged(NamedTuple):
    """A model's answers to the test rows, and its task, which may have settings that were fitted on dev."""

    task: Task
    answers: Any


Measure = Callable[[ndarray], Sequence[float]]
"""int64 (n,), examples -> the metric of each of m models on them."""


def jackknife(measure: Measure, groups: Sequence[object]) -> tuple[ndarray, ndarray]:
    """The metrics of m models, and the covariance of their errors, since the examples are one sample of many.

    Computed by the jackknife over groups: each of 50 measurements leaves out a part of the examples, drawn at
    random, for all models together (Efron and Tibshirani, 1993, chapter 11). So an example that is hard for
    all adds nothing to the error of a difference.

    Args:
        groups: the group of each example. Equal groups are in one part, unless there is a single group.

    Returns:
        float64 (m,) and (m, m).
    """
    if len(set(groups)) == 1:
        groups = range(len(groups))
    place = shuffle_groups(groups, derive_key("jackknife"))
    values = np.array(measure(np.arange(len(place))))
    parts = min(JACKKNIFE_PARTS, int(place.max()) + 1)
    if parts == 1:
        return values, np.zeros((len(values), len(values)))
    # (parts, m): the metrics without each part.
    partial_values = np.array([measure(np.flatnonzero(place % parts != part)) for part in range(parts)])
    return values, (parts - 1) * np.atleast_2d(np.cov(partial_values.T, bias=True))


def average_seeds(measured: Sequence[Numbers]) -> Values:
    """Return the mean of each metric over seeds, METRIC_std and METRIC_runs; for one seed, its metrics."""
    if len(measured) == 1:
        return dict(measured[0])
    facts: Values = {}
    for name in measured[0]:
        runs = [metrics[name] for metrics in measured]
        if name == "n":
            facts[name] = runs[0]
            continue
        facts[name] = float(np.mean(runs))
        facts[f"{name}_std"] = float(np.std(runs, ddof=1))
        facts[f"{name}_runs"] = runs
    return facts


class MethodComparison:
    """Methods to solve a task, side by side on the same test rows by the primary metric, a mean over seeds.

    The covariance of their errors has two parts: over test rows, with the trained models as they are
    (`jackknife`, whole sources or contexts), and over k seeds, the covariance of the metrics of each seed,
    over k: models of the same seed are paired.

    Args:
        methods: the models of each method, in the same order of seeds. A method without seeds, such as a
            linear model, has one.

    Attributes:
        values: the primary metric of each method.
    """

    def __init__(self, methods: Mapping[str, Sequence[Judged]], test: Encoded) -> None:
        self.methods, self.test = methods, test
        measures: list[list[RowsMetric]] = []
        for models in methods.values():
            measures.append([task.make_primary(answers, test) for task, answers in models])

        def measure_methods(rows: ndarray) -> list[ndarray]:
            """The metric of each method, float64 (seeds,)."""
            values = []
            for seeds in measures:
                values.append(np.array([measure(rows) for measure in seeds]))
            return values

        means, self._covariance = jackknife(
            lambda rows: list(map(np.mean, measure_methods(rows))), test.table.sources or test.table.groups()
        )
        seeds = max(map(len, methods.values()))
        if seeds > 1:
            # (methods, seeds); a method without seeds gives the same metric in each.
            runs = [np.broadcast_to(values, seeds) for values in measure_methods(np.arange(len(test)))]
            self._covariance = self._covariance + np.atleast_2d(np.cov(np.array(runs))) / seeds
        self.values: Numbers = dict(zip(methods, means.tolist(), strict=True))

    @property
    def test_facts(self) -> Values:
        """`n`, the number of rows, and their `fingerprint`."""
        return {"n": len(self.test), "fingerprint": fingerprint_rows(self.test.table)}

    def metrics(self, name: str) -> Values:
        """Return all metrics of a method over its seeds, and `n`, the number of rows."""
        return average_seeds([task.measure(answers, self.test) for task, answers in self.methods[name]])

    def scores(self, name: str) -> Values:
        """Return the metrics of a method over its seeds that are metrics of the task."""
        metrics, scores = self.metrics(name), {}
        for metric in self.methods[name][0].task.metrics:
            for key in (metric.name, f"{metric.name}_std", f"{metric.name}_runs"):
                if key in metrics:
                    scores[key] = metrics[key]
        return scores

    def difference(self, first: str, second: str) -> Numbers:
        """Return the first method's primary metric minus the second's: `difference`, `standard_error`."""
        names = np.array(list(self.methods))
        signs = (names == first).astype(float) - (names == second)
        # The variance of a difference, from the covariance; rounding may put it below 0.
        variance = max(float(signs @ self._covariance @ signs), 0.0)
        difference = self.values[first] - self.values[second]
        return {"difference": difference, "standard_error": math.sqrt(variance)}


def fingerprint_rows(table: Table) -> str:
    """Hash all rows, texts and labels, in any order: tables with the same hash measure the same."""
    rows = zip(table.keys(), table.labels or [None] * len(table), strict=True)
    # Sorted, since the order of rows changes no metric.
    digests = sorted(sha256(json.dumps(row).encode()).digest() for row in rows)
    return sha256(b"".join(digests)).hexdigest()[:16]


def write_predictions(path: Path, task: Task, answers: Any, data: Encoded) -> None:
    """Write the target and the prediction of each row as JSON lines, atomically, with `row`, its number."""
    sweep(path.parent, path.name)
    with atomic_file(path) as temporary, open(temporary, "wb") as file:
        for place, row in enumerate(task.compare_rows(answers, data)):
            numbered = {"row": data.table.number(place)} | row
            file.write(json.dumps(numbered, ensure_ascii=False).encode() + b"\n")


def find_primary(facts: Facts, metrics: Sequence[Metric]) -> Metric:
    """Return the metric that decided, which a summary names."""
    for metric in metrics:
        if metric.name == facts.get("primary_metric"):
            return metric
    return metrics[0]


def describe_test(facts: Facts, primary: Metric) -> MeasuredOn:
    """Return the test rows of a summary, and the metric that decided."""
    test = find_mapping(facts, "test")
    is_high = primary.best == "highest"
    n, rows = int(find_number(test, "n") or 0), str(test.get("fingerprint", ""))
    return MeasuredOn(primary.title, n, rows, is_high, primary.percent)


def find_error(measured: Any, primary: Metric, n: float | None) -> float | None:
    """Return the standard error of an accuracy over test rows and seeds; None for another metric."""
    value = find_number(measured, primary.name)
    if primary.name != "accuracy" or value is None:
        return None
    error = estimate_share_error(value, n)
    if error is None:
        return None
    runs = measured.get(f"{primary.name}_runs", [value])
    deviation = find_number(measured, f"{primary.name}_std") or 0.0
    # Rows and seeds vary independently: their variances add up.
    return math.hypot(error, deviation / math.sqrt(len(runs)))


def read_costs(measured: Any, model: str = "") -> Values:
    """Return the costs of a model, by the names of ModelResult; `model` is its key among several models."""
    suffix = f".{model}" if model else ""
    costs = {"milliseconds": find_number(measured, f"latency_ms{suffix}")}
    for name in ("texts_per_second", "megabytes", "parameters", "seconds"):
        costs[name] = find_number(measured, name + suffix)
    return costs


LATENCY_TEXTS = 30
"""Texts over which a latency is a median."""
MAX_THROUGHPUT_TEXTS = 500
"""Texts, at most, that a throughput is measured on."""
MAX_SECONDS = 4.0
"""About the longest that either measurement of a model may take, but for the first call."""


class Speed(NamedTuple):
    """How fast a model answers, from text to answer: `latency_ms` is the median of single texts,
    `texts_per_second` the rate of many together."""

    latency_ms: float
    texts_per_second: float


Answer = Callable[[Table], object]
"""Computes the answers to the texts of a table."""


def measure_speeds(answers: Mapping[str, Answer], table: Table) -> dict[str, Speed]:
    """Measure each model on the first texts of a table, all in turns: other work slows all alike."""
    if not answers:
        return {}
    rounds = []
    for row in range(min(LATENCY_TEXTS, len(table))):
        text = table.take([row])
        rounds.append([partial(answer, text) for answer in answers.values()])
    latencies = measure_medians_ms(rounds, 3)
    counts, calls = [], []
    for answer, latency in zip(answers.values(), latencies, strict=True):
        # As many texts as take half the time one by one: the first call is another one.
        count = max(1, int(1e3 * MAX_SECONDS / 2 / latency))
        counts.append(min(count, MAX_THROUGHPUT_TEXTS, len(table)))
        calls.append(partial(answer, table.take(range(counts[-1]))))
    speeds = {}
    times = measure_medians_ms([calls], 1)
    for name, latency, count, milliseconds in zip(answers, latencies, counts, times, strict=True):
        speeds[name] = Speed(latency, 1e3 * count / milliseconds)
    return speeds


def measure_medians_ms(rounds: Sequence[Sequence[Callable[[], object]]], warm: int) -> list[float]:
    """Return the median milliseconds of each call of a round, over rounds, after `warm` of them. Each call
    stops after `MAX_SECONDS` of its own, with at least one measurement."""
    times: list[list[float]] = [[] for _ in rounds[0]]
    for calls in [*rounds[:warm], *rounds]:
        for call, seconds in zip(calls, times, strict=True):
            if sum(seconds) <= MAX_SECONDS:
                started = time.perf_counter()
                call()
                seconds.append(time.perf_counter() - started)
    medians = []
    for seconds in times:
        first = min(warm, len(rounds), len(seconds) - 1)  # after the warm rounds, if there are more
        medians.append(1e3 * statistics.median(seconds[first:]))
    return medians
