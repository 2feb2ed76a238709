"""The students of `brimful distil` for a task, and the baselines that they are compared with."""

from dataclasses import dataclass, replace
from typing import Any

import torch

from brimful.data.examples import Examples
from brimful.distillation.config import DistilConfig
from brimful.distillation.start import Start
from brimful.distillation.teachers import ModelTeacher
from brimful.distillation.trainings import StageTrainer
from brimful.judging.baselines import TIMED, Tfidf, available, linear, median_ms
from brimful.objectives.imitation import LayerDistillation, LogitDistillation
from brimful.objectives.supervised import Supervised
from brimful.tables.table import Table
from brimful.tasks.data import TaskData, evaluation
from brimful.tasks.model import TaskModel


@dataclass(frozen=True)
class Distillation:
    """Teachers, students and their data.

    Attributes:
        imitated: the teacher whose layers are imitated; None if it reads other tokens than the student.
        texts: what the student learns from, with the target `TEACHER` and the labels that there are.
        count: how many texts these are; a long one may be several examples.
        taught: the teachers' answers for test; None where they have none.
    """

    config: DistilConfig
    start: Start
    teachers: list[ModelTeacher]
    imitated: ModelTeacher | None
    texts: Examples
    count: int
    data: TaskData
    taught: Any


@dataclass(frozen=True)
class Trained:
    """A student of a seed, with its answers for test and its metrics there and on dev."""

    model: TaskModel
    answers: Any
    test: dict[str, float]
    dev: dict[str, float]


class Students:
    """Trains the students of a run."""

    def __init__(self, distillation: Distillation, trainer: StageTrainer) -> None:
        self.distillation = distillation
        self.trainer = trainer

    def distilled(self, seed: int) -> Trained:
        """By both stages."""
        given, config = self.distillation, self.distillation.config
        student = given.start.student(given.data, seed)
        if given.imitated is not None:
            layers = LayerDistillation(given.imitated.model.encoder, student.encoder, config.layers.losses)
            self._train("layers", seed, student, layers)
        self._train("logits", seed, student, self._logits(student))
        return self._judged(student)

    def layer_drop(self, seed: int) -> Trained:
        """The teacher's layers with its head, by the second stage alone."""
        given = self.distillation
        student = given.start.student(given.data, seed, of_teacher=True)
        self._train("logits", seed, student, self._logits(student), "layer-drop")
        return self._judged(student)

    def undistilled(self, seed: int) -> Trained:
        """The same start and the same passes over the training table, by its labels alone."""
        given, config = self.distillation, self.distillation.config
        student, task = given.start.student(given.data, seed), given.data.task
        epochs = config.logits.epochs + (config.layers.epochs if given.imitated else 0.0)
        stage = replace(config.logits, epochs=epochs)
        objective = Supervised(task, student.head, evaluation(task, student.head, given.data.dev))
        self.trainer.train(
            "undistilled",
            seed,
            stage,
            given.data.train.examples,
            student.encoder,
            objective,
            _modules(student),
        )
        return self._judged(student)

    def _train(self, stage: str, seed: int, student: TaskModel, objective: Any, name: str = "") -> None:
        settings = getattr(self.distillation.config, stage)
        texts = self.distillation.texts
        self.trainer.train(
            name or stage, seed, settings, texts, student.encoder, objective, _modules(student)
        )

    def _logits(self, student: TaskModel) -> LogitDistillation:
        data, config = self.distillation.data, self.distillation.config
        return LogitDistillation(
            student.head,
            data.task.imitation(config.logits.loss, config.temperature),
            data.task.primary_metric,
            evaluation(data.task, student.head, data.dev),
            labels=(data.task, config.logits.labels) if config.logits.labels else None,
        )

    def _judged(self, student: TaskModel) -> Trained:
        data, runtime = self.distillation.data, self.trainer.runtime
        student.to(runtime.device)
        answers, metrics = student.judge(data.test, runtime.precision)
        dev = {} if data.dev is None else student.judge(data.dev, runtime.precision)[1]
        return Trained(student, answers, metrics, dev)


def add_tfidf(summary: dict[str, Any], answers: dict[str, list[Any]], data: TaskData) -> None:
    """Fit TF-IDF under a linear model to the labels, and add what it reaches, where the task has one."""
    if available(data.task) is None and (rung := linear(data.task, data, Tfidf())):
        summary["tfidf"], answers["tfidf"] = rung.metrics, [rung.answers]
        summary["latency_ms"]["tfidf"] = rung.latency_ms


def latency(model: TaskModel, table: Table) -> float:
    """Median milliseconds of one text on this machine's CPU, from text to prediction, in float32."""
    model.to(torch.device("cpu"))
    rows = [table.take([row]) for row in range(min(TIMED, len(table)))]
    return median_ms(lambda one: model.rows(model.encode(one), "fp32"), rows, 3)


def _modules(student: TaskModel) -> dict[str, Any]:
    return {"encoder": student.encoder, "head": student.head}
