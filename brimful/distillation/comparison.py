"""The students of a task beside their teacher, their baselines and TF-IDF."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch

from brimful.distillation.material import Material
from brimful.judging.baselines import TIMED, Tfidf, available, linear, median_ms
from brimful.judging.comparison import differences
from brimful.judging.uncertainty import over_seeds
from brimful.tables.table import Table
from brimful.tasks.model import TaskModel


@dataclass(frozen=True)
class Size:
    """What a model takes: `latency_ms` is the median of one text on this machine's CPU, from text to
    prediction, in float32."""

    parameters: int
    megabytes: float
    latency_ms: float


def size_of(model: TaskModel, table: Table) -> Size:
    """The size of a model with layers, timed on the first texts of a table."""
    model.to(torch.device("cpu"))
    rows = [table.take([row]) for row in range(min(TIMED, len(table)))]
    latency = median_ms(lambda one: model.rows(model.encode(one), "fp32"), rows, 3)
    return Size(model.parameters, 4 * model.parameters / 1e6, latency)


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
        sizes = sizes | {"teacher": size_of(material.sources.first.model, data.test.table)}
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
        "test": {"n": measured["student"]["n"]},
        "texts": material.count,
        **task.facts,
    }
    for fact in ("parameters", "megabytes", "latency_ms"):
        found[fact] = {name: asdict(size)[fact] for name, size in sizes.items()}
    if tfidf and available(task) is None and (rung := linear(task, data, Tfidf())):
        found["tfidf"], answers["tfidf"] = rung.metrics, [rung.answers]
        found["latency_ms"]["tfidf"] = rung.latency_ms
    return found | {"comparisons": differences(task, answers, data.test)}
