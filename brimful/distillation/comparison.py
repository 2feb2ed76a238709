"""The students of a task beside their teacher, their baselines and TF-IDF."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from brimful.distillation.material import Material
from brimful.judging.baselines import Tfidf, available, linear
from brimful.judging.comparison import Judged, fingerprint, measure_methods
from brimful.judging.speed import Answer, Speed, speeds_of
from brimful.judging.uncertainty import over_seeds
from brimful.tasks.encoded import Encoded
from brimful.tasks.model import TaskModel
from brimful.tasks.task import Task


@dataclass(frozen=True)
class Size:
    """What a model takes, and how it answers on this machine's CPU, in float32, for its speed."""

    parameters: int
    megabytes: float
    answer: Answer


def size_of(model: TaskModel) -> Size:
    """The size of a model with layers, which moves to the CPU."""
    model.to(torch.device("cpu"))
    return Size(
        model.parameters, 4 * model.parameters / 1e6, lambda table: model.rows(model.encode(table), "fp32")
    )


def compared(
    material: Material, students: Mapping[str, list[Any]], taught: Any, sizes: dict[str, Size], *, tfidf: bool
) -> dict[str, Any]:
    """What summary.json says of all models.

    Args:
        students: the answers for test of each seed, by name; "student" comes first.
        taught: the teachers' answers for test; None where they have none.
        sizes: of models by name. The one teacher's is added.
        tfidf: whether TF-IDF under a linear model is fitted to the labels too, where the task has one.
    """
    data, task = material.data, material.data.task
    if material.sources.config.single and material.sources.first is not None:
        sizes = sizes | {"teacher": size_of(material.sources.first.model)}
    answers = dict(students) if taught is None else {**students, "teacher": [taught]}
    measured = {
        name: over_seeds([task.measure(each, data.test) for each in its]) for name, its in answers.items()
    }
    for name, size in sizes.items():
        measured[name] = measured.get(name, {}) | {"parameters": size.parameters}
    found: dict[str, Any] = {
        "task": task.name,
        "primary_metric": task.metrics[0].name,
        **measured,
        "test": {"n": measured["student"]["n"], "fingerprint": fingerprint(data.test.table)},
        "texts": material.count,
        **task.facts,
    }
    found["parameters"] = {name: size.parameters for name, size in sizes.items()}
    found["megabytes"] = {name: size.megabytes for name, size in sizes.items()}
    timed = {name: size.answer for name, size in sizes.items()}
    if tfidf and available(task) is None and (rung := linear(task, data, Tfidf())):
        found["tfidf"], answers["tfidf"] = rung.metrics, [rung.answers]
        timed |= {} if rung.answer is None else {"tfidf": rung.answer}
    speeds = speeds_of(timed, data.test.table)
    for measure in Speed._fields:
        found[measure] = {name: getattr(speed, measure) for name, speed in speeds.items()}
    return found | {"comparisons": _differences(task, answers, data.test)}


def _differences(
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
