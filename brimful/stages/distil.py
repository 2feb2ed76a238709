"""The verb `brimful distil`: a student for each seed, of which the best is kept, and what it is worth."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from brimful.base.console import say
from brimful.base.numbers import branch, metric, percent, plain
from brimful.base.summary import (
    ModelResult,
    describe_gap,
    make_facts_table,
    with_overview,
)
from brimful.base.summary import Summary as Overview
from brimful.data.examples import Examples
from brimful.model.shape import EncoderConfig
from brimful.objectives.imitation import TEACHER, LayerDistillation, LogitDistillation
from brimful.objectives.supervised import Supervised
from brimful.runs.folder import RunFolder
from brimful.runs.job import Job, RunPlan, Summary
from brimful.stages.distil_options import DistilConfig, LogitStageConfig, StageConfig
from brimful.stages.students import CPU
from brimful.stages.task_options import with_absolute_paths
from brimful.stages.teaching_material import Material, read_material
from brimful.stages.training import Stage, train_stage
from brimful.tasks.data import evaluation
from brimful.tasks.judging.baselines import Tfidf, available, linear
from brimful.tasks.judging.comparison import (
    Answer,
    Judged,
    MethodComparison,
    Speed,
    describe_test,
    error_of,
    find_primary,
    name_baseline,
    read_costs,
    speeds_of,
    write_predictions,
)
from brimful.tasks.model import TaskModel, fold
from brimful.tasks.task import Metric
from brimful.train.metrics import list_outcome
from brimful.train.objective import Objective, Runtime

FEW_LABELS = 1 / 3
"""Of the texts: where at most so many have labels, the student of labels alone is trained unasked."""
NAMES = {
    "student": "Student",
    "teacher": "Teacher",
    "student_without_distillation": "Student from the labels only",
    "tfidf": "TF-IDF + linear model",
}
"""The models of a summary, by their keys."""


@dataclass(frozen=True)
class DistilPlan(RunPlan):
    """A distillation before it starts.

    Attributes:
        config: resolved.
        shape: of the student.
        alone: the stage of the students that learn from the labels alone, of as many passes as the others
            have; None where there are none.
    """

    config: DistilConfig
    material: Material
    runtime: Runtime
    shape: EncoderConfig
    alone: LogitStageConfig | None

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
        alone = _alone(config, material, folder.announces)
        config = with_absolute_paths(config, precision=runtime.precision)
        return DistilPlan(config, material, runtime, shape, alone)

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
        texts, taught = material.taught(runtime)
        students = Students(plan, texts, folder)
        trained = {"student": [students.distilled(seed) for seed in config.seeds]}
        seconds = students.seconds
        if plan.alone is not None:
            alone = [students.undistilled(seed, plan.alone) for seed in config.seeds]
            trained["student_without_distillation"] = alone
        # Every rank has read the kept weights, and leaves the processors to the main one.
        runtime.world.barrier()
        if not runtime.world.is_main:
            return {}
        best = max(trained["student"], key=lambda one: task.metrics[0].score(one.dev))
        write_predictions(folder.path / "predictions.jsonl", *best.judged, data.test)
        summary = {
            "kind": "distil",
            **compared(plan, trained, best.model, taught),
            **best.judged.task.facts,
            "precision": runtime.precision,
            "seconds": seconds,
            "baseline_seconds": students.seconds - seconds,
        }
        token_types = data.train.examples.typed
        best.model.to(runtime.device).save(folder.path / "model", token_types=token_types)
        return with_overview(summary, summarise_distillation(summary, task.metrics, config.teacher or ""))


def _announce(config: DistilConfig, material: Material, shape: EncoderConfig) -> None:
    """Say what a new run does."""
    start, old = material.start, material.teacher.model.encoder.config
    taught = f"{old.layers} layers of width {old.hidden_size}"
    into = f"{shape.layers} layers of width {shape.hidden_size}"
    say(f"distilling {taught} into {into} on {material.count:,} texts")
    if start.layers is None and config.student is None and config.initialisation != "random":
        say("the student is wider than its teacher, and starts from random weights")


def _alone(config: DistilConfig, material: Material, announces: bool) -> LogitStageConfig | None:
    """The stage of the students that learn from the labels alone; None where they are not wanted, or would
    take long for what nobody asked for."""
    epochs = config.logits.epochs + (config.layers.epochs if material.reads_alike else 0.0)
    stage = replace(config.logits, epochs=epochs)
    if config.baseline != "quick":
        return stage if config.baseline == "full" else None
    labelled, texts = len(material.data.train), material.count
    is_cheap = labelled <= FEW_LABELS * texts
    if announces and epochs:
        what = f"the same student from the labels alone, {labelled:,} of {texts:,} texts,"
        say(f"{what} is trained too" if is_cheap else f"{what} is left out: --baseline full trains it")
    return stage if is_cheap else None


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
        texts: what they learn from, with the target `TEACHER` and the labels that there are.

    Attributes:
        seconds: of training, in all.
    """

    def __init__(self, plan: DistilPlan, texts: Examples, run: RunFolder) -> None:
        self.config, self.material, self.data = plan.config, plan.material, plan.material.data
        self.run, self.runtime, self.seconds = run, plan.runtime, 0.0
        if not plan.config.logits.labels:
            texts = replace(texts, targets={TEACHER: texts.targets[TEACHER]})
        self.texts = texts

    def distilled(self, seed: int) -> Trained:
        """By the stage of the outputs, and where it is asked for by that of the layers before."""
        config, task, material = self.config, self.data.task, self.material
        student = material.start.student(self.data, seed)
        if config.layers.epochs and material.reads_alike:
            layers = LayerDistillation(material.teacher.model.encoder, student.encoder, config.layers.losses)
            self._train("layers", seed, config.layers, self.texts, student, layers)
        logits = LogitDistillation(
            student.head,
            task.imitation(config.temperature),
            task.primary_metric,
            evaluation(task, student.head, self.data.dev),
            labels=(task, config.logits.labels) if config.logits.labels else None,
        )
        self._train("logits", seed, config.logits, self.texts, student, logits)
        return self._judged(student)

    def undistilled(self, seed: int, stage: LogitStageConfig) -> Trained:
        """The same start and as many passes over the training table, by its labels alone."""
        data, student = self.data, self.material.start.student(self.data, seed)
        objective = Supervised(data.task, student.head, evaluation(data.task, student.head, data.dev))
        self._train("undistilled", seed, stage, data.train.examples, student, objective)
        return self._judged(student)

    def _train(
        self,
        name: str,
        seed: int,
        stage: StageConfig,
        texts: Examples,
        student: TaskModel,
        objective: Objective,
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
                texts,
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
            task = task.fitted(on_dev, data.dev)
            dev = task.measure(on_dev, data.dev)
        elif task.calibrates:  # the best guess: it imitates the teacher
            task = task.with_settings(task.settings | self.material.teacher.model.task.settings)
        answers = task.answers(student.outputs(data.test.examples, runtime.precision), data.test)
        return Trained(Judged(task, answers), replace(student, task=task), dev)


def compared(
    plan: DistilPlan, trained: Mapping[str, Sequence[Trained]], student: TaskModel, taught: Any
) -> dict[str, Any]:
    """What summary.json says of all models.

    Args:
        trained: of each seed, by name; "student" comes first.
        student: the one that is kept.
        taught: the teacher's answers for test.
    """
    material, data, task = plan.material, plan.material.data, plan.material.data.task
    teacher = material.teacher.model
    judged = {name: [one.judged for one in students] for name, students in trained.items()}
    judged["teacher"] = [Judged(task.with_settings(teacher.task.settings), taught)]
    models = {"student": student, "teacher": teacher}
    timed: dict[str, Answer] = {name: _answer(model) for name, model in models.items()}
    reads: dict[str, dict[str, str]] = {}
    wanted = plan.config.baseline != "none" and available(task) is None
    if wanted and (rung := linear(task, data, Tfidf())):
        judged["tfidf"] = [Judged(task, rung.answers)]
        reads["tfidf"] = {} if rung.reads is None else {"reads": rung.reads}
        timed |= {} if rung.answer is None else {"tfidf": rung.answer}
    comparison = MethodComparison(judged, data.test)
    measured = {name: comparison.metrics(name) | reads.get(name, {}) for name in judged}
    parameters = {name: model.parameters for name, model in models.items()}
    for name, count in parameters.items():
        measured[name]["parameters"] = count
    speeds = speeds_of(timed, data.test.table)
    others = [name for name in judged if name != "student"]
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
        "comparisons": {f"student_minus_{name}": comparison.difference("student", name) for name in others},
    }


def _answer(model: TaskModel) -> Answer:
    """How a model answers on this machine's CPU, in float32, for its speed."""
    model.to(CPU)
    return lambda table: model.rows(model.encode(table), "fp32")


def summarise_distillation(facts: Mapping[str, Any], metrics: Sequence[Metric], teacher: str) -> Overview:
    """The student beside its teacher and what its labels give without one.

    Args:
        facts: what summary.json holds.
        metrics: of the task.
        teacher: its folder.
    """
    primary = find_primary(facts, metrics)
    test = describe_test(facts, primary)
    models = {}
    for key, name in NAMES.items():
        measured = branch(facts, key)
        value = metric(measured, primary.name)
        if value is None:
            continue
        costs = read_costs(facts, "student" if key == "student_without_distillation" else key)
        if key == "student":
            costs["seconds"] = metric(facts, "seconds")
        models[key] = ModelResult(
            name=name_baseline(name, measured),
            value=value,
            error=error_of(measured, primary, test.n),
            pairs=_read_pairs(facts) if key == "student" else {},
            is_own=key == "student",
            folder=teacher if key == "teacher" else "",
            role="baseline" if key == "tfidf" else "model",
            **costs,
        )
    student, taught_by = models["student"], models["teacher"]
    is_ahead = (student.value > taught_by.value) == test.higher_is_better
    side = "ahead of its teacher" if is_ahead else "behind its teacher"
    small, large = student.parameters, taught_by.parameters
    share = f", with {percent(small / large)} of its parameters" if small and large else ""
    verdict = (
        f"The student is {describe_gap(test, student, taught_by, side)}{share}, on {test.n:,} test rows."
    )
    result = {"Texts learned from": plain(facts.get("texts")), **list_outcome(facts, None)}
    tables = make_facts_table("Result", result)
    return Overview(f"Student for {facts['task']}", verdict, tables, test=test, models=list(models.values()))


def _read_pairs(facts: Mapping[str, Any]) -> dict[str, float]:
    """The standard errors of the student's differences from the other models."""
    errors = {}
    for key, name in NAMES.items():
        error = metric(facts, f"comparisons.student_minus_{key}.standard_error")
        errors[name_baseline(name, branch(facts, key))] = error
    return {name: error for name, error in errors.items() if error is not None}
