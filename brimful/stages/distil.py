"""The verb `brimful distil`: a student for each seed, of which the best is kept, and what it is worth.

Verbs of other students of a task share the plan, the choice of a student and the comparison.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch

from brimful.base.console import say
from brimful.base.summary import with_overview
from brimful.data.examples import Examples
from brimful.model.flops import Shape, step_flops
from brimful.model.shape import EncoderConfig
from brimful.objectives.imitation import TEACHER, LayerDistillation, LogitDistillation
from brimful.objectives.supervised import Supervised
from brimful.runs.directory import model_files
from brimful.runs.folder import RunFolder
from brimful.runs.job import Job, RunPlan, Summary
from brimful.stages.distil_options import DistilConfig, LogitStageConfig, TaskOptions, with_absolute_paths
from brimful.stages.distil_summary import summarise_distillation
from brimful.stages.students import StudentStart, StudentTrainer, start_of
from brimful.stages.teaching_material import Material, open_sources, read_material
from brimful.tasks.data import evaluation
from brimful.tasks.judging.baselines import Tfidf, available, linear
from brimful.tasks.judging.comparison import Judged, MethodComparison, write_predictions
from brimful.tasks.judging.speed import Answer, Speed, speeds_of
from brimful.tasks.model import TaskModel, fold
from brimful.tasks.task import Task
from brimful.train.objective import Runtime

CHEAP = 1 / 3
"""Of the time of a distillation: what a baseline may take that nobody asked for."""


@dataclass(frozen=True)
class StudentPlan(RunPlan):
    """The distillation of a student of a task before it starts.

    Attributes:
        config: resolved.
    """

    config: TaskOptions
    material: Material
    runtime: Runtime

    @property
    def student_layers(self) -> int:
        """The layers of the student."""
        return 0


C = TypeVar("C", bound=TaskOptions)
P = TypeVar("P", bound=StudentPlan)


class StudentJob(Job[C, P]):
    """Trains a student for each seed, and keeps the best one."""

    def outlook(self, plan: P) -> Summary:
        """What a dry run returns."""
        return {"dry_run": True, "texts": plan.material.count, "student_layers": plan.student_layers}

    def conclude(
        self,
        plan: P,
        folder: RunFolder,
        trained: "Mapping[str, Sequence[Trained]]",
        taught: Any,
        sizes: "dict[str, Size]",
        facts: Summary,
    ) -> Summary:
        """Write the predictions of the best student, and compare all models.

        Args:
            trained, taught, sizes: as for `compared`.
            facts: what else the summary says.
        """
        best, data = best_on_dev(trained["student"]), plan.material.data
        write_predictions(folder.path / "predictions.jsonl", *best.judged, data.test)
        tfidf = plan.config.baseline != "none"
        summary = {"kind": self.verb, **compared(plan.material, trained, taught, sizes, tfidf=tfidf), **facts}
        overview = summarise_distillation(summary, data.task.metrics, plan.config.teachers)
        return with_overview(summary, overview)


@dataclass(frozen=True)
class DistilPlan(StudentPlan):
    """The distillation of a student with layers before it starts.

    Attributes:
        config: resolved.
        shape: of the student.
        alone: the stage of the students that learn from the labels alone; None where there are none.
    """

    config: DistilConfig
    start: StudentStart
    shape: EncoderConfig
    alone: LogitStageConfig | None

    @property
    def student_layers(self) -> int:
        return self.shape.layers

    @property
    def layer_drop(self) -> bool:
        """Whether the teacher's layers with its head learn from outputs alone too; not where the student is
        the same."""
        config, start, imitated = self.config, self.start, self.material.imitated
        if config.baseline != "full" or imitated is None or start.dropped is None:
            return False
        return config.layers.epochs > 0 or not start.of_teacher

    @property
    def files(self) -> dict[str, Path]:
        """The tables, the files of scores, the teachers, and what the student starts from."""
        files = self.material.sources.files
        if self.start.folder is not None:
            files |= model_files("student", self.start.folder)
        elif self.start.of_origin:
            files |= model_files("encoder", self.start.origin_folder)
        return files


class DistilJob(StudentJob[DistilConfig, DistilPlan]):
    """Trains students with layers."""

    verb = "distil"

    def plan(self, config: DistilConfig, folder: RunFolder) -> DistilPlan:
        """Load the teachers and read what they are asked about.

        Raises:
            BrimfulError: a teacher, a table, a file of scores or a setting is unusable, or does not go with
                the others.
        """
        ranks = folder.ranks
        runtime = Runtime.of(ranks, config.precision)
        sources = open_sources(config)
        start = start_of(config, sources.origin, sources.first)
        material, student = read_material(
            sources, start, lambda data: start.student(data, config.seeds[0]), ranks
        )
        material.data.task.imitation(config.temperature)  # a wrong setting is refused now
        shape, imitated = student.encoder.config, material.imitated
        if config.layers.epochs and imitated is not None:  # refused now, if it must be
            LayerDistillation(imitated.model.encoder, student.encoder, config.layers.losses)
        elif config.layers.epochs and ranks.is_main:
            why = "does not read the student's tokens" if sources.teachers else "has no layers"
            say(f"the teacher {why}: its outputs alone are imitated, not its layers")
        if folder.announces and not config.dry_run:
            taught = "the scores"
            if sources.first is not None:
                old = sources.first.model.encoder.config
                taught = f"{old.layers} layers of width {old.hidden_size}"
            into = f"{shape.layers} layers of width {shape.hidden_size}"
            say(f"distilling {taught} into {into} on {material.count:,} texts")
            if start.layers is None and config.student is None and config.initialisation != "random":
                say("the student is wider than its teacher, and starts from random weights")
        alone = _alone(config, material, shape, folder.announces)
        config = with_absolute_paths(config, precision=runtime.precision)
        return DistilPlan(config, material, runtime, start, shape, alone)

    def work(self, plan: DistilPlan, folder: RunFolder) -> Summary:
        """Train all students, save the one that is best on dev, else the first, and compare it.

        Raises:
            StoppedError: a signal asked to stop.
        """
        config, material, runtime = plan.config, plan.material, plan.runtime
        texts, taught = material.taught(runtime)
        students = Students(plan, texts, StudentTrainer(config, folder, runtime))
        trained = {"student": [students.distilled(seed) for seed in config.seeds]}
        seconds = students.trainer.seconds
        best = best_on_dev(trained["student"])
        models = {"student": best.model}
        if plan.alone is not None:
            trained["student_without_distillation"] = [students.undistilled(seed) for seed in config.seeds]
        if plan.layer_drop:
            dropped = [students.layer_drop(seed) for seed in config.seeds]
            trained["student_layer_drop"] = dropped
            models["student_layer_drop"] = dropped[0].model
        # Every rank has read the kept weights, and leaves the processors to the main one.
        runtime.world.barrier()
        if not runtime.world.is_main:
            return {}
        sizes = {name: size_of(model) for name, model in models.items()}
        facts = {
            **best.task.facts,
            "precision": runtime.precision,
            "seconds": seconds,
            "baseline_seconds": students.trainer.seconds - seconds,
        }
        summary = self.conclude(plan, folder, trained, taught, sizes, facts)
        token_types = material.data.train.examples.typed
        best.model.to(runtime.device).save(folder.path / "model", token_types=token_types)
        return summary


def _alone(
    config: DistilConfig, material: Material, shape: EncoderConfig, announces: bool
) -> LogitStageConfig | None:
    """The stage of the students that learn from the labels alone, of as many passes as the others have; None
    where they are not wanted, or would take too long for what nobody asked for."""
    epochs = config.logits.epochs + (config.layers.epochs if material.imitated is not None else 0.0)
    stage = replace(config.logits, epochs=epochs)
    if config.baseline != "quick":
        return stage if config.baseline == "full" else None
    share = share_of_labels(config, material, shape, epochs)
    cheap = 0 < share < CHEAP
    if announces and share > 0:
        student = "the same student from the labels alone"
        takes = f"about {100 * share:.0f} % of the distillation's time"
        say(
            f"{student} is trained too, in {takes}"
            if cheap
            else f"{student} would take {takes} and is left out: --baseline full trains it"
        )
    return stage if cheap else None


def share_of_labels(config: DistilConfig, material: Material, student: EncoderConfig, epochs: float) -> float:
    """The operations of the students that learn from the labels alone, as a proportion of those of the
    distillation: its teachers' outputs, and the stages of its students.

    Teachers are counted even where their outputs are in the cache, so that a resumed run decides alike.

    Args:
        student: its shape.
        epochs: passes over the training table.
    """
    lengths = np.concatenate([part.examples.lengths for part in material.parts])
    ours, teachers = _step(student, lengths), material.sources.teachers
    outputs = sum(_step(teacher.model.encoder.config, lengths) / 3 for teacher in teachers)
    each = config.logits.epochs * ours
    if material.imitated is not None:
        theirs = _step(material.imitated.model.encoder.config, lengths) / 3
        each += config.layers.epochs * (ours + theirs)
    whole = outputs + len(config.seeds) * each
    alone = len(config.seeds) * epochs * _step(student, material.data.train.examples.lengths)
    return alone / whole if whole else float("inf")


def _step(shape: EncoderConfig, lengths: np.ndarray) -> float:
    """Operations of forward and backward over sequences of these lengths; forward alone takes a third."""
    found, counts = np.unique(lengths, return_counts=True)
    each = (step_flops(shape, Shape((int(length),), 0)) for length in found)
    return float(sum(int(n) * flops for n, flops in zip(counts, each, strict=True)))


@dataclass(frozen=True)
class Trained:
    """A student of a seed: its task, which may be fitted to dev, the model, its answers for test, and its
    metrics on dev; without dev there are no metrics."""

    task: Task
    model: Any
    answers: Any
    dev: dict[str, float]

    @property
    def judged(self) -> Judged:
        """What it is compared by."""
        return Judged(self.task, self.answers)


def best_on_dev(students: Sequence[Trained]) -> Trained:
    """The student of the seed that is kept: the best on dev, or the first without dev."""
    return max(students, key=lambda one: one.task.metrics[0].score(one.dev))


class Students:
    """Trains the students of a run.

    Args:
        texts: what they learn from, with the target `TEACHER` and the labels that there are.
    """

    def __init__(self, plan: DistilPlan, texts: Examples, trainer: StudentTrainer) -> None:
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
            data.task.imitation(config.temperature),
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
        return Trained(task, student, answers, dev)


def _modules(student: TaskModel) -> dict[str, Any]:
    return {"encoder": student.encoder, "head": student.head}


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
    trained: Mapping[str, Sequence[Trained]],
    taught: Any,
    sizes: dict[str, Size],
    *,
    tfidf: bool,
) -> dict[str, Any]:
    """What summary.json says of all models.

    Args:
        trained: of each seed, by name; "student" comes first.
        taught: the teachers' answers for test, which one teacher's own threshold decides; None without any.
        sizes: of models by name. The one teacher's is added.
        tfidf: whether TF-IDF under a linear model is fitted to the labels too, where the task has one.
    """
    data, task = material.data, material.data.task
    judged = {name: [one.judged for one in students] for name, students in trained.items()}
    theirs = task
    if material.sources.config.single and material.sources.first is not None:
        model = material.sources.first.model
        sizes = sizes | {"teacher": size_of(model)}
        theirs = task.with_settings(model.task.settings)
    if taught is not None:
        judged["teacher"] = [Judged(theirs, taught)]
    timed = {name: size.answer for name, size in sizes.items()}
    reads: dict[str, dict[str, str]] = {}
    if tfidf and available(task) is None and (rung := linear(task, data, Tfidf())):
        judged["tfidf"] = [Judged(task, rung.answers)]
        reads["tfidf"] = {} if rung.reads is None else {"reads": rung.reads}
        timed |= {} if rung.answer is None else {"tfidf": rung.answer}
    comparison = MethodComparison(judged, data.test)
    measured = {name: comparison.metrics(name) | reads.get(name, {}) for name in judged}
    for name, size in sizes.items():
        measured[name] = measured.get(name, {}) | {"parameters": size.parameters}
    speeds = speeds_of(timed, data.test.table)
    others = [name for name in judged if name != "student"]
    return {
        "task": task.name,
        "primary_metric": task.metrics[0].name,
        **measured,
        "test": comparison.test_facts,
        "texts": material.count,
        **task.facts,
        "parameters": {name: size.parameters for name, size in sizes.items()},
        "megabytes": {name: size.megabytes for name, size in sizes.items()},
        **{
            measure: {name: getattr(speed, measure) for name, speed in speeds.items()}
            for measure in Speed._fields
        },
        "comparisons": {f"student_minus_{name}": comparison.difference("student", name) for name in others},
    }
