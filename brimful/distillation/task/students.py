"""The students of `brimful distil`, and the baselines that they are compared with."""

from dataclasses import dataclass, replace
from typing import Any

from brimful.data.examples import Examples
from brimful.distillation.task.plan import DistilPlan
from brimful.distillation.trainings import StageTrainer
from brimful.objectives.imitation import TEACHER, LayerDistillation, LogitDistillation
from brimful.objectives.supervised import Supervised
from brimful.tasks.data import evaluation
from brimful.tasks.judging.comparison import Judged
from brimful.tasks.model import TaskModel, fold


@dataclass(frozen=True)
class Trained:
    """A student of a seed, with its answers for test and its metrics on dev, which its task is fitted to."""

    model: TaskModel
    answers: Any
    dev: dict[str, float]

    @property
    def judged(self) -> Judged:
        return Judged(self.model.task, self.answers)


class Students:
    """Trains the students of a run.

    Args:
        texts: what they learn from, with the target `TEACHER` and the labels that there are.
    """

    def __init__(self, plan: DistilPlan, texts: Examples, trainer: StageTrainer) -> None:
        self.plan, self.config, self.start, self.material = plan, plan.config, plan.start, plan.material
        self.data = plan.material.data
        if not plan.config.logits.labels:
            texts = replace(texts, targets={TEACHER: texts.targets[TEACHER]})
        self.texts = texts
        self.trainer = trainer

    def distilled(self, seed: int) -> Trained:
        """By the stage of the outputs, and where it is asked for by that of the layers before."""
        student, imitated = self.start.student(self.data, seed), self.material.imitated
        if self.config.layers.epochs and imitated is not None:
            losses = self.config.layers.losses
            layers = LayerDistillation(imitated.model.encoder, student.encoder, losses)
            self._train("layers", seed, student, layers)
        self._train("logits", seed, student, self._logits(student))
        return self._judged(student)

    def layer_drop(self, seed: int) -> Trained:
        """The teacher's layers with its head, by outputs alone."""
        student = self.start.student(self.data, seed, of_teacher=True)
        self._train("logits", seed, student, self._logits(student), "layer-drop")
        return self._judged(student)

    def undistilled(self, seed: int) -> Trained:
        """The same start and as many passes over the training table, by its labels alone."""
        data = self.data
        student, task = self.start.student(data, seed), data.task
        assert self.plan.alone is not None
        objective = Supervised(task, student.head, evaluation(task, student.head, data.dev))
        self.trainer.train(
            "undistilled",
            seed,
            self.plan.alone,
            data.train.examples,
            student.encoder,
            objective,
            _modules(student),
        )
        return self._judged(student)

    def _train(self, stage: str, seed: int, student: TaskModel, objective: Any, name: str = "") -> None:
        settings = getattr(self.config, stage)
        self.trainer.train(
            name or stage, seed, settings, self.texts, student.encoder, objective, _modules(student)
        )

    def _logits(self, student: TaskModel) -> LogitDistillation:
        data, config = self.data, self.config
        return LogitDistillation(
            student.head,
            data.task.imitation(config.logits.loss, config.temperature),
            data.task.primary_metric,
            evaluation(data.task, student.head, data.dev),
            labels=(data.task, config.logits.labels) if config.logits.labels else None,
        )

    def _judged(self, student: TaskModel) -> Trained:
        data, runtime = self.data, self.trainer.runtime
        student.to(runtime.device)
        fold(student.head)
        task, teacher, dev = student.task, self.start.teacher, dict[str, float]()
        if data.dev is not None:
            on_dev = student.judge(data.dev, runtime.precision)[0]
            task = task.fitted(on_dev, data.dev)
            dev = task.measure(on_dev, data.dev)
        elif task.calibrates and teacher is not None:  # the best guess: it imitates the teacher's scores
            task = task.with_settings(task.settings | teacher.model.task.settings)
        student = replace(student, task=task)
        answers = task.answers(student.outputs(data.test.examples, runtime.precision), data.test)
        return Trained(student, answers, dev)


def _modules(student: TaskModel) -> dict[str, Any]:
    return {"encoder": student.encoder, "head": student.head}
