"""The students of a task beside their teacher, their baselines and TF-IDF."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from brimful.distillation.material import Material
from brimful.tasks.encoded import Encoded
from brimful.tasks.judging.baselines import Tfidf, available, linear
from brimful.tasks.judging.comparison import Judged, fingerprint, measure_methods, over_seeds
from brimful.tasks.judging.speed import Answer, Speed, speeds_of
from brimful.tasks.model import TaskModel


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
    material: Material,
    students: Mapping[str, list[Judged]],
    taught: Any,
    sizes: dict[str, Size],
    *,
    tfidf: bool,
) -> dict[str, Any]:
    """What summary.json says of all models.

    Args:
        students: the task and the answers for test of each seed, by name; "student" comes first.
        taught: the teachers' answers for test, which one teacher's own threshold decides; None without any.
        sizes: of models by name. The one teacher's is added.
        tfidf: whether TF-IDF under a linear model is fitted to the labels too, where the task has one.
    """
    data, task = material.data, material.data.task
    judged, theirs = dict(students), task
    if material.sources.config.single and material.sources.first is not None:
        model = material.sources.first.model
        sizes = sizes | {"teacher": size_of(model)}
        theirs = task.with_settings(model.task.settings)
    if taught is not None:
        judged["teacher"] = [Judged(theirs, taught)]
    measured = {
        name: over_seeds([its.measure(answers, data.test) for its, answers in models])
        for name, models in judged.items()
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
        found["tfidf"], judged["tfidf"] = rung.metrics, [Judged(task, rung.answers)]
        timed |= {} if rung.answer is None else {"tfidf": rung.answer}
    speeds = speeds_of(timed, data.test.table)
    for measure in Speed._fields:
        found[measure] = {name: getattr(speed, measure) for name, speed in speeds.items()}
    return found | {"comparisons": _differences(judged, data.test)}


def _differences(methods: Mapping[str, Sequence[Judged]], test: Encoded) -> dict[str, dict[str, float]]:
    """The primary metric of the first method minus each other one's, with its standard error.

    Returns:
        by `FIRST_minus_OTHER`: `difference` and `standard_error`.
    """
    first, *others = methods
    measured = measure_methods(list(methods.values()), test)
    found = {}
    for index, name in enumerate(others, 1):
        difference, error = measured.difference(0, index)
        found[f"{first}_minus_{name}"] = {"difference": difference, "standard_error": error}
    return found
