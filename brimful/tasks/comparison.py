"""Models side by side on the same test rows: how sure one can be that one is better."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from brimful.data.examples import Examples
from brimful.tasks.encoded import Encoded
from brimful.tasks.metrics import Uncertain, bootstrapped, jackknifed
from brimful.tasks.task import Task


def compare(task: Task, ours: Any, theirs: Any, test: Encoded) -> tuple[float, float]:
    """The difference of the primary metric of two models' answers to the test rows, ours minus theirs, and
    its standard error over rows."""
    return measure_methods(task, [[ours], [theirs]], test).difference(0, 1)


def measure_methods(task: Task, methods: Sequence[Sequence[Any]], test: Encoded) -> Uncertain:
    """The primary metric of methods, each the mean over the models of its seeds.

    The covariance has two parts. That over test rows, with the trained models as they are, is by the paired
    bootstrap where an answer is a row of an array, else (spans, answers to questions) by the jackknife. That
    over k seeds is the covariance of the metrics of each seed, over k: models of the same seed are paired.

    Args:
        methods: of each the answers of its models, in the same order of seeds. A method without seeds, such
            as a linear model, has one.
    """
    name = task.metrics[0].name

    def means(answers_of: Any, drawn: Encoded) -> list[float]:
        return [
            float(np.mean([task.measure(answers_of(answers), drawn)[name] for answers in models]))
            for models in methods
        ]

    if isinstance(methods[0][0], np.ndarray):
        blank = [np.zeros(1, dtype=np.int32)] * len(test)
        examples = Examples(blank, blank, {}, 1, 0)

        def measure_rows(rows: np.ndarray) -> list[float]:
            targets: dict[str, Any] = {key: values[rows] for key, values in test.targets.items()}
            return means(
                lambda answers: answers[rows], Encoded(test.table, replace(examples, targets=targets))
            )

        found = bootstrapped(measure_rows, len(test))
    else:
        found = jackknifed(
            lambda rows: means(lambda answers: [answers[row] for row in rows], test.take(rows)), len(test)
        )
    seeds = max(map(len, methods))
    if seeds == 1:
        return found
    runs = [
        np.broadcast_to([task.measure(answers, test)[name] for answers in models], seeds)
        for models in methods
    ]
    return found._replace(covariance=found.covariance + np.atleast_2d(np.cov(np.array(runs))) / seeds)
