"""Models side by side on the same test rows: how sure one can be that one is better."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from brimful.data.examples import Examples
from brimful.judging.uncertainty import Uncertain, bootstrapped, jackknifed
from brimful.tasks.encoded import Encoded
from brimful.tasks.task import Task

MOST = 20_000
"""Test rows that the bootstrap resamples; of more, the jackknife leaves out groups."""


class Judged(NamedTuple):
    """A model's answers to the test rows, and its task, which may have settings that were fitted on dev."""

    task: Task
    answers: Any


def measure_methods(methods: Sequence[Sequence[Judged]], test: Encoded) -> Uncertain:
    """The primary metric of methods, each the mean over the models of its seeds.

    The covariance has two parts. That over test rows, with the trained models as they are, is by the paired
    bootstrap where an answer is a row of an array and there are at most `MOST`, else (many rows, spans,
    answers to questions) by the jackknife, which measures 41 times instead of 1,001, and keeps the questions
    on a context together. That over k seeds is the covariance of the metrics of each seed, over k: models of
    the same seed are paired.

    Args:
        methods: of each its models, in the same order of seeds. A method without seeds, such as a linear
            model, has one.
    """

    def means(answers_of: Any, drawn: Encoded) -> list[float]:
        return [
            float(np.mean([task.measure_primary(answers_of(answers), drawn) for task, answers in models]))
            for models in methods
        ]

    if isinstance(methods[0][0].answers, np.ndarray):

        def measure_rows(rows: np.ndarray) -> list[float]:
            targets: dict[str, Any] = {key: values[rows] for key, values in test.targets.items()}
            blank = [np.zeros(1, dtype=np.int32)] * len(rows)
            drawn = Encoded(test.table, Examples(blank, blank, targets, 1, 0))
            return means(lambda answers: answers[rows], drawn)

        if len(test) <= MOST:
            found = bootstrapped(measure_rows, len(test))
        else:
            found = jackknifed(measure_rows, test.table.groups())
    else:
        found = jackknifed(
            lambda rows: means(lambda answers: [answers[row] for row in rows], test.take(rows)),
            test.table.groups(),
        )
    seeds = max(map(len, methods))
    if seeds == 1:
        return found
    runs = [
        np.broadcast_to([task.measure_primary(answers, test) for task, answers in models], seeds)
        for models in methods
    ]
    return found._replace(covariance=found.covariance + np.atleast_2d(np.cov(np.array(runs))) / seeds)


def differences(
    task: Task, methods: Mapping[str, Sequence[Any]], test: Encoded
) -> dict[str, dict[str, float]]:
    """The primary metric of the first method minus each other one's, with its standard error.

    Args:
        methods: by name, the answers of each one's models, as for `measure_methods`.

    Returns:
        by `FIRST_minus_OTHER`: `difference` and `standard_error`.
    """
    first, *others = methods
    judged = [[Judged(task, answers) for answers in models] for models in methods.values()]
    measured = measure_methods(judged, test)
    found = {}
    for index, name in enumerate(others, 1):
        difference, error = measured.difference(0, index)
        found[f"{first}_minus_{name}"] = {"difference": difference, "standard_error": error}
    return found
