"""Models side by side on the same test rows: how sure one can be that one is better."""

import json
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from brimful.base.randomness import derive_key, hash_words, shuffled_groups
from brimful.base.storage import atomic_file, sweep
from brimful.data.examples import Examples
from brimful.tables.table import Table
from brimful.tasks.encoded import Encoded
from brimful.tasks.task import Task

MAX_BOOTSTRAP_ROWS = 20_000
"""Test rows that the bootstrap resamples; of more, the jackknife leaves out groups."""
JACKKNIFE_PARTS = 40
"""Parts of the examples that `jackknifed` leaves out in turn."""


class Judged(NamedTuple):
    """A model's answers to the test rows, and its task, which may have settings that were fitted on dev."""

    task: Task
    answers: Any


class Uncertain(NamedTuple):
    """The metrics of m models on the same examples.

    Attributes:
        values: float64 (m,).
        covariance: float64 (m, m), of their errors, since the examples are one sample of many.
    """

    values: np.ndarray
    covariance: np.ndarray

    def difference(self, first: int, second: int) -> tuple[float, float]:
        """Of two of them, and its standard error."""
        signs = np.zeros(len(self.values))
        signs[first] += 1.0
        signs[second] -= 1.0
        variance = signs @ self.covariance @ signs
        return float(signs @ self.values), float(np.sqrt(max(variance, 0.0)))


Measure = Callable[[np.ndarray], Sequence[float]]
"""int64 (n,), examples, some of them several times -> the metric of each of m models on them."""


def bootstrapped(measure: Measure, n: int, resamples: int = 1000) -> Uncertain:
    """The examples are resampled with the answers of all models kept together (Efron and Tibshirani, 1993;
    paired: Koehn, 2004), so an example that is hard for all adds nothing to the error of a difference."""
    draws = []
    for resample in range(resamples):
        chosen = hash_words(derive_key("bootstrap", resample), np.arange(n)) % np.uint64(n)
        draws.append(measure(chosen.astype(np.int64)))
    return Uncertain(np.array(measure(np.arange(n))), np.atleast_2d(np.cov(np.array(draws).T)))


def jackknifed(measure: Measure, groups: Sequence[object]) -> Uncertain:
    """The same in few measurements, for metrics that take long: each leaves out one of 40 parts of the
    examples, drawn at random (Efron and Tibshirani, 1993, chapter 11). Those of equal groups are in one part.
    """
    place = shuffled_groups(groups if len(set(groups)) > 1 else range(len(groups)), derive_key("jackknife"))
    parts = min(JACKKNIFE_PARTS, int(place.max()) + 1)
    left = np.array([measure(np.flatnonzero(place % parts != part)) for part in range(parts)])
    values = np.array(measure(np.arange(len(place))))
    return Uncertain(values, (parts - 1) * np.atleast_2d(np.cov(left.T, bias=True)))


def over_seeds(measured: Sequence[Mapping[str, float]]) -> dict[str, Any]:
    """The metrics of one seed; of several seeds the mean of each metric, its standard deviation (METRIC_std)
    and each value (METRIC_runs)."""
    if len(measured) == 1:
        return dict(measured[0])
    found: dict[str, Any] = {}
    for name in measured[0]:
        runs = [each[name] for each in measured]
        if name == "n":
            found[name] = runs[0]
        else:
            found |= {name: float(np.mean(runs)), f"{name}_std": float(np.std(runs, ddof=1))}
            found[f"{name}_runs"] = runs
    return found


def measure_methods(methods: Sequence[Sequence[Judged]], test: Encoded) -> Uncertain:
    """The primary metric of methods, each the mean over the models of its seeds.

    The covariance has two parts. The part over test rows, with the trained models as they are, is by the
    paired bootstrap where an answer is a row of an array and there are at most `MAX_BOOTSTRAP_ROWS`. Else
    (many rows, spans, answers to questions) it is by the jackknife of whole contexts, which measures 41 times
    instead of 1,001. The part over k seeds is the covariance of the metrics of each seed, over k: models of
    the same seed are paired.

    Args:
        methods: of each its models, in the same order of seeds. A method without seeds, such as a linear
            model, has one.
    """

    measures = [[_primary_of(task, answers, test) for task, answers in models] for models in methods]

    def means(rows: np.ndarray) -> list[float]:
        return [float(np.mean([measure(rows) for measure in models])) for models in measures]

    if isinstance(methods[0][0].answers, np.ndarray) and len(test) <= MAX_BOOTSTRAP_ROWS:
        found = bootstrapped(means, len(test))
    else:
        found = jackknifed(means, test.table.groups())
    seeds = max(map(len, methods))
    if seeds == 1:
        return found
    every = np.arange(len(test))
    runs = [np.broadcast_to([measure(every) for measure in models], seeds) for models in measures]
    return found._replace(covariance=found.covariance + np.atleast_2d(np.cov(np.array(runs))) / seeds)


class MethodComparison:
    """Methods to solve a task, side by side on the same test rows.

    Args:
        methods: by name, of each its models, as for `measure_methods`.

    Attributes:
        values: the primary metric of each method.
    """

    def __init__(self, methods: Mapping[str, Sequence[Judged]], test: Encoded) -> None:
        self.methods, self.test = methods, test
        self._places = {name: place for place, name in enumerate(methods)}
        self._measured = measure_methods(list(methods.values()), test)
        self.values: dict[str, float] = dict(zip(methods, self._measured.values.tolist(), strict=True))

    @property
    def test_facts(self) -> dict[str, Any]:
        """`n`, how many rows there are, and their `fingerprint`."""
        return {"n": len(self.test), "fingerprint": fingerprint(self.test.table)}

    def metrics(self, name: str) -> dict[str, Any]:
        """All metrics of a method over its seeds, and `n`, how many rows they are of."""
        return over_seeds([task.measure(answers, self.test) for task, answers in self.methods[name]])

    def scores(self, name: str) -> dict[str, Any]:
        """The same, but only what the task calls its metrics."""
        task, found = self.methods[name][0].task, self.metrics(name)
        known = [f"{metric.name}{end}" for metric in task.metrics for end in ("", "_std", "_runs")]
        return {key: found[key] for key in known if key in found}

    def difference(self, first: str, second: str) -> dict[str, float]:
        """The primary metric of the first method minus the second's: `difference` and `standard_error`."""
        difference, error = self._measured.difference(self._places[first], self._places[second])
        return {"difference": difference, "standard_error": error}


def _primary_of(task: Task, answers: Any, test: Encoded) -> Callable[[np.ndarray], float]:
    """The primary metric as a function of rows of test, int64, some several times."""

    def of_arrays(rows: np.ndarray) -> float:
        blank = [np.zeros(1, dtype=np.int32)] * len(rows)
        targets: dict[str, Any] = {name: values[rows] for name, values in test.targets.items()}
        drawn = Encoded(test.table, Examples(blank, blank, targets, 1, 0))
        return task.measure(answers[rows], drawn)[task.metrics[0].name]

    def of_lists(rows: np.ndarray) -> float:
        return task.measure([answers[row] for row in rows], test.take(rows))[task.metrics[0].name]

    return task.primary_of(answers, test) or (of_arrays if isinstance(answers, np.ndarray) else of_lists)


def fingerprint(table: Table) -> str:
    """A hash of all rows, texts and labels, in any order: tables with the same one measure the same."""
    rows = zip(table.keys(), table.labels or [None] * len(table), strict=True)
    digests = sorted(sha256(json.dumps(row).encode()).digest() for row in rows)
    return sha256(b"".join(digests)).hexdigest()[:16]


def write_predictions(path: Path, task: Task, answers: Any, data: Encoded) -> None:
    """Write the target and the prediction of each row as JSON lines, atomically, with `row`, its number in
    the file that was read."""
    sweep(path.parent, path.name)
    with atomic_file(path) as temporary, open(temporary, "wb") as file:
        for place, row in enumerate(task.compared_rows(answers, data)):
            numbered = {"row": data.table.number(place)} | row
            file.write(json.dumps(numbered, ensure_ascii=False).encode() + b"\n")
