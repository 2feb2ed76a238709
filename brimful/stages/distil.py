"""The verb `brimful distil`: a student for each seed, of which the best is kept, and what it is worth."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from brimful.base.console import say
from brimful.base.numbers import find_mapping, find_number, format_percent, format_value
from brimful.base.summary import (
    ModelResult,
    describe_gap,
    make_facts_table,
    with_overview,
)
from brimful.base.summary import Summary as Overview
from brimful.data.examples import Examples
from brimful.model.shape import EncoderConfig
from brimful.objectives.imitation import LayerDistillation, LogitDistillation
from brimful.runs.folder import RunFolder
from brimful.runs.job import Job, RunPlan, Summary
from brimful.stages.distil_options import DistilConfig, StageConfig
from brimful.stages.students import CPU
from brimful.stages.task_options import with_absolute_paths
from brimful.stages.task_trainings import Stage, train_stage
from brimful.stages.teaching_material import Material, read_material
from brimful.tasks.judging.comparison import (
    Answer,
    Judged,
    MethodComparison,
    Speed,
    describe_test,
    find_error,
    find_primary,
    measure_speeds,
    read_costs,
    write_predictions,
)
from brimful.tasks.task import Metric
from brimful.tasks.task_data import make_evaluation
from brimful.tasks.task_model import TaskModel, fold
from brimful.train.metrics import list_outcome
from brimful.train.objective import Objective, Runtime


@dataclass(frozen=True)
class DistilPlan(RunPlan):
    """A distillation before it starts.

    Attributes:
        config: resolved.
        shape: of the student.
    """

    config: DistilConfig
    material: Material
    runtime: Runtime
    shape: EncoderConfig

    @property
    def files(self) -> dict[str, Path]:
        """The tables, the teacher, and what the student starts from."""
        return self.material.files


class DistilJob(Job[DistilConfig, DistilPlan]):
    """Trains a student for each seed, and keeps the best one."""

    verb = "distil"

    def plan(self, config: DistilConfig, folder: RunFolder) -> DistilPlan:
        """Load the teacher and read what it is asked about.

        Raises:
            BrimfulError: the teacher, a table or a setting is unusable, or does not go with the others.
        """
        runtime = Runtime.of(folder.ranks, config.precision)
        material, student = read_material(config, folder.ranks)
        material.data.task.imitation(config.temperature)  # a wrong setting is refused now
        shape = student.encoder.config
        if config.layers.epochs and material.reads_alike:  # refused now, if it must be
            LayerDistillation(material.teacher.model.encoder, student.encoder, config.layers.losses)
        elif config.layers.epochs and folder.ranks.is_main:
            say(
                "the teacher does not read the student's tokens: its outputs alone are imitated, not its"
                " layers"
            )
        if folder.announces and not config.dry_run:
            _announce(config, material, shape)
        config = with_absolute_paths(config, precision=runtime.precision)
        return DistilPlan(config, material, runtime, shape)

    def outlook(self, plan: DistilPlan) -> Summary:
        """What a dry run returns."""
        return {"dry_run": True, "texts": plan.material.count, "student_layers": plan.shape.layers}

    def work(self, plan: DistilPlan, folder: RunFolder) -> Summary:
        """Train all students, save the one that is best on dev, else the first, and compare it.

        Raises:
            StoppedError: a signal asked to stop.
        """
        config, material, runtime = plan.config, plan.material, plan.runtime
        data, task = material.data, material.data.task
        texts, teacher_answers = material.taught(runtime)
        students = Students(plan, texts, folder)
        trained = [students.distilled(seed) for seed in config.seeds]
        # Every rank has read the kept weights, and leaves the processors to the main one.
        runtime.world.barrier()
        if not runtime.world.is_main:
            return {}
        best = max(trained, key=lambda one: task.metrics[0].score(one.dev))
        write_predictions(folder.path / "predictions.jsonl", *best.judged, data.test)
        summary = {
            "kind": "distil",
            **compared(plan, trained, best.model, teacher_answers),
            **best.judged.task.facts,
            "precision": runtime.precision,
            "seconds": students.seconds,
        }
        token_types = data.train.examples.typed
        best.model.to(runtime.device).save(folder.path / "model", token_types=token_types)
        return with_overview(summary, summarise_distillation(summary, task.metrics, config.teacher or ""))


def _announce(config: DistilConfig, material: Material, shape: EncoderConfig) -> None:
    """Say what a new run does."""
    start, old = material.start, material.teacher.model.encoder.config
    teacher_size = f"{old.layers} layers of width {old.hidden_size}"
    into = f"{shape.layers} layers of width {shape.hidden_size}"
    say(f"distilling {teacher_size} into {into} on {material.count:,} texts")
    if start.layers is None and config.student is None and config.initialisation != "random":
        say("the student is wider than its teacher, and starts from random weights")


@dataclass(frozen=True)
class Trained:
    """A student of a seed.

    Attributes:
        judged: its task, which may be fitted to dev, and its answers for test.
        dev: its metrics on dev; empty without dev.
    """

    judged: Judged
    model: TaskModel
    dev: dict[str, float]


class Students:
    """Trains the students of a run.

    Args:
        texts: what they learn from, with the target `TEACHER`.

    Attributes:
        seconds: of training, in all.
    """

    def __init__(self, plan: DistilPlan, texts: Examples, run: RunFolder) -> None:
        self.config, self.material, self.data = plan.config, plan.material, plan.material.data
        self.run, self.runtime, self.seconds = run, plan.runtime, 0.0
        self.texts = texts

    def distilled(self, seed: int) -> Trained:
        """By the stage of the outputs, and where it is asked for by that of the layers before."""
        config, task, material = self.config, self.data.task, self.material
        student = material.start.student(self.data, seed)
        if config.layers.epochs and material.reads_alike:
            layers = LayerDistillation(material.teacher.model.encoder, student.encoder, config.layers.losses)
            self._train("layers", seed, config.layers, student, layers)
        logits = LogitDistillation(
            student.head,
            task.imitation(config.temperature),
            task.primary_metric,
            make_evaluation(task, student.head, self.data.dev),
        )
        self._train("logits", seed, config.logits, student, logits)
        return self._judged(student)

    def _train(
        self, name: str, seed: int, stage: StageConfig, student: TaskModel, objective: Objective
    ) -> None:
        """Train one stage to its end; not at all if it has no epochs."""
        if not stage.epochs:
            return
        trained = {"encoder": student.encoder, "head": student.head}
        result = train_stage(
            Stage(
                f"distil {name}, seed {seed}",
                self.run.path / "stages" / f"seed-{seed}" / name,
                seed,
                student.encoder,
                objective,
                self.texts,
                stage.epochs,
                stage.learning_rate,
                trained,
            ),
            self.config,
            self.run,
            self.runtime,
        )
        result.load(trained)
        self.seconds += result.seconds

    def _judged(self, student: TaskModel) -> Trained:
        data, runtime = self.data, self.runtime
        student.to(runtime.device)
        fold(student.head)
        task, dev = student.task, dict[str, float]()
        if data.dev is not None:
            on_dev = student.judge(data.dev, runtime.precision)[0]
            task = task.fit_settings(on_dev, data.dev)
            dev = task.measure(on_dev, data.dev)
        elif task.calibrates:  # the best guess: it imitates the teacher
            task = task.with_settings(task.settings | self.material.teacher.model.task.settings)
        answers = task.answers(student.outputs(data.test.examples, runtime.precision), data.test)
        return Trained(Judged(task, answers), replace(student, task=task), dev)


def compared(plan: DistilPlan, trained: Sequence[Trained], student: TaskModel, taught: Any) -> dict[str, Any]:
    """What summary.json says of the student and its teacher.

    Args:
        trained: the students of all seeds.
        student: the one that is kept.
        taught: the teacher's answers for test.
    """
    material, data, task = plan.material, plan.material.data, plan.material.data.task
    teacher = material.teacher.model
    judged = {
        "student": [one.judged for one in trained],
        "teacher": [Judged(task.with_settings(teacher.task.settings), taught)],
    }
    models = {"student": student, "teacher": teacher}
    timed: dict[str, Answer] = {name: _answer(model) for name, model in models.items()}
    comparison = MethodComparison(judged, data.test)
    measured = {name: comparison.metrics(name) for name in judged}
    parameters = {name: model.parameters for name, model in models.items()}
    for name, count in parameters.items():
        measured[name]["parameters"] = count
    speeds = measure_speeds(timed, data.test.table)
    return {
        "task": task.name,
        "primary_metric": task.metrics[0].name,
        **measured,
        "test": comparison.test_facts,
        "texts": material.count,
        **task.facts,
        "parameters": parameters,
        "megabytes": {name: 4 * count / 1e6 for name, count in parameters.items()},
        **{
            measure: {name: getattr(speed, measure) for name, speed in speeds.items()}
            for measure in Speed._fields
        },
        "comparisons": {"student_minus_teacher": comparison.difference("student", "teacher")},
    }


def _answer(model: TaskModel) -> Answer:
    """How a model answers on this machine's CPU, in float32, for its speed."""
    model.to(CPU)
    return lambda table: model.rows(model.encode(table), "fp32")


def summarise_distillation(facts: Mapping[str, Any], metrics: Sequence[Metric], folder: str) -> Overview:
    """The student beside its teacher.

    Args:
        facts: what summary.json holds.
        metrics: of the task.
        folder: of the teacher.
    """
    primary = find_primary(facts, metrics)
    test = describe_test(facts, primary)
    error = find_number(facts, "comparisons.student_minus_teacher.standard_error")
    models = []
    for key, name in (("student", "Student"), ("teacher", "Teacher")):
        measured = find_mapping(facts, key)
        costs = read_costs(facts, key)
        if key == "student":
            costs["seconds"] = find_number(facts, "seconds")
        models.append(
            ModelResult(
                name=name,
                value=find_number(measured, primary.name) or 0.0,
                error=find_error(measured, primary, test.n),
                pairs={} if key == "teacher" or error is None else {"Teacher": error},
                is_own=key == "student",
                folder=folder if key == "teacher" else "",
                **costs,
            )
        )
    student, teacher = models
    is_ahead = (student.value > teacher.value) == test.higher_is_better
    side = "ahead of its teacher" if is_ahead else "behind its teacher"
    small, large = student.parameters, teacher.parameters
    share = f", with {format_percent(small / large)} of its parameters" if small and large else ""
    verdict = f"The student is {describe_gap(test, student, teacher, side)}{share}, on {test.n:,} test rows."
    result = {"Texts learned from": format_value(facts.get("texts")), **list_outcome(facts, None)}
    tables = make_facts_table("Result", result)
    return Overview(f"Student for {facts['task']}", verdict, tables, test=test, models=models)
