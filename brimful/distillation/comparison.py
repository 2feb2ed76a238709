"""The students of a task beside their teacher, their baselines and TF-IDF."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from brimful.distillation.material import Material
from brimful.judging.baselines import Tfidf, available, linear
from brimful.judging.comparison import Judged, differences
from brimful.judging.speed import Speed, speed_of
from brimful.judging.uncertainty import over_seeds
from brimful.tables.table import Table
from brimful.tasks.model import TaskModel


@dataclass(frozen=True)
class Size:
    """What a model takes; the speed is of this machine's CPU, in float32."""

    parameters: int
    megabytes: float
    speed: Speed


def size_of(model: TaskModel, table: Table) -> Size:
    """The size of a model with layers, timed on the first texts of a table."""
    model.to(torch.device("cpu"))
    speed = speed_of(lambda part: model.rows(model.encode(part), "fp32"), table)
    return Size(model.parameters, 4 * model.parameters / 1e6, speed)


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
        sizes = sizes | {"teacher": size_of(model, data.test.table)}
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
        "test": {"n": measured["student"]["n"]},
        "texts": material.count,
        **task.facts,
    }
    found["parameters"] = {name: size.parameters for name, size in sizes.items()}
    found["megabytes"] = {name: size.megabytes for name, size in sizes.items()}
    speeds = {name: size.speed for name, size in sizes.items()}
    if tfidf and available(task) is None and (rung := linear(task, data, Tfidf())):
        found["tfidf"], judged["tfidf"] = rung.metrics, [Judged(task, rung.answers)]
        speeds |= {} if rung.speed is None else {"tfidf": rung.speed}
    for measure in Speed._fields:
        found[measure] = {name: getattr(speed, measure) for name, speed in speeds.items()}
    return found | {"comparisons": differences(judged, data.test)}
