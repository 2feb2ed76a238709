"""The verb `brimful distil`: a student for each seed; the best one is kept and compared with its teacher."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from brimful.base.console import pluralise, say
from brimful.base.errors import BrimfulError
from brimful.base.numbers import find_mapping, find_number, format_percent, format_value
from brimful.base.seals import CONFIG
from brimful.base.summary import Summary, describe_gap, make_facts_table, with_overview
from brimful.base.types import Numbers, Values
from brimful.data.examples import Examples
from brimful.hf.folders import require_tokenizer
from brimful.hf.model_folder import ModelFolder
from brimful.model.heads import SequenceHead
from brimful.model.shape import EncoderConfig
from brimful.objectives.imitation import TEACHER, LayerDistillation, LogitDistillation
from brimful.runs.folder import RunFolder
from brimful.runs.inputs import RunFiles, model_files
from brimful.runs.job import Job, RunPlan
from brimful.stages.distil_options import DistilConfig, StageConfig
from brimful.stages.held_out import HELD_OUT_FILE, HeldOut
from brimful.stages.run_tables import choose_tables, find_held_out, merge_table_options, read_finetuning
from brimful.stages.students import CPU, ModelTeacher, StudentStart, load_teacher
from brimful.stages.task_options import with_absolute_paths
from brimful.stages.task_trainings import Stage, make_result, name_table_files, train_stage
from brimful.tables.layouts import TablePaths, find_layout
from brimful.tables.table import require_pairs
from brimful.tasks.cached_tables import TaskFiles
from brimful.tasks.encoded_tables import Encoded, warn_of_lost_ends
from brimful.tasks.held_out_copies import find_held_out_copies
from brimful.tasks.judging.comparison import (
    Answer,
    Judged,
    MethodComparison,
    Speed,
    describe_test,
    find_primary,
    measure_speeds,
    read_costs,
    write_predictions,
)
from brimful.tasks.prediction_form import Outputs
from brimful.tasks.task import Metric
from brimful.tasks.task_data import TaskData, load_task_data, make_evaluation
from brimful.tasks.task_model import TaskModel, fold
from brimful.train.metrics import list_outcome
from brimful.train.objective import Objective, Runtime


@dataclass(frozen=True)
class DistilPlan(RunPlan):
    """A distillation before it starts.

    Attributes:
        tables: paths of train, dev and test.
        held_out: rows of train that the teacher's run has held out, where its training table is used.
        texts: the texts of train and of each unlabelled file, without empty ones.
        reads_alike: whether the teacher reads the student's tokens, so that its layers can be imitated.
        by_example: whether the teacher answers the student's own examples. Otherwise it answers each text,
            which it reads with its own tokenizer.
        shape: the shape of the student.
    """

    config: DistilConfig
    runtime: Runtime
    start: StudentStart
    teacher: ModelTeacher
    tables: TablePaths
    held_out: HeldOut | None
    data: TaskData
    texts: list[Encoded]
    reads_alike: bool
    by_example: bool
    shape: EncoderConfig

    @property
    def text_count(self) -> int:
        """The number of texts; a long one may be several examples."""
        return sum(map(len, self.texts))

    @property
    def files(self) -> RunFiles:
        """The tables, the teacher, and the folder that the student starts from."""
        config, (train, dev, test) = self.config, self.tables
        files = name_table_files(unlabelled=config.unlabelled, train=train, dev=dev, test=test)
        assert config.teacher is not None
        run = Path(config.teacher)
        if self.start.teacher_run is not None:
            files[f"teacher/{CONFIG}"] = run / CONFIG
        if self.held_out is not None:
            files[f"teacher/{HELD_OUT_FILE}"] = run / HELD_OUT_FILE
        files |= model_files("teacher", ModelFolder.open(config.teacher, "model"))
        return files | self.start.files

    def ask_teacher(self) -> tuple[Examples, Any]:
        """Return all examples with the target `TEACHER`, and the teacher's answers for test."""
        teacher, runtime = self.teacher, self.runtime
        examples = []
        for part in self.texts:
            outputs: Outputs
            if self.by_example:
                outputs = teacher.compute_outputs(part, runtime)
            else:
                outputs = teacher.answer_table(part.table, runtime)
            if isinstance(outputs, np.ndarray) and len(outputs) != len(part.examples):
                # One row of outputs for a text: it is the target of all windows of the text.
                outputs = outputs[part.examples.text_of_example]
            examples.append(replace(part.examples, targets={TEACHER: outputs}))
        if self.by_example:
            answers = teacher.answer_rows(self.data.test, runtime)
        else:
            answers = teacher.answer_table(self.data.test.table, runtime)
        return Examples.chain(examples), answers


class DistilJob(Job[DistilConfig, DistilPlan]):
    """Trains a student for each seed, and keeps the best one."""

    verb = "distil"

    def plan(self, config: DistilConfig, folder: RunFolder) -> DistilPlan:
        """Load the teacher, and read the tables and the texts."""
        ranks = folder.ranks
        runtime = Runtime.of(ranks, config.precision)
        assert config.teacher is not None
        teacher, teacher_run = load_teacher(config.teacher), read_finetuning(config.teacher)
        task = type(teacher.model.task)
        if config.task not in (None, task.name):
            raise BrimfulError(f"the teacher {teacher.name} is a model of {task.name}, not of {config.task}")
        options = merge_table_options(config, teacher_run)
        tables = choose_tables(config, teacher_run)
        held_out = find_held_out(config, teacher_run, tables)
        # The student must not learn rows that it is tested on. Rows of dev that the teacher has learned
        # measure nothing, so they stay in train.
        rows = dict(held_out.parts) if held_out else {}
        if config.dev or (held_out and held_out.dev_in_train):
            rows.pop("dev", None)
        start = StudentStart.from_options(config, teacher_run, teacher)
        data = load_task_data(
            TaskFiles(task, find_layout(options), ranks),
            start.encoder,
            tables,
            max_length=start.max_length,
            overlap=start.overlap,
            held_out=rows,
            metric=teacher_run.metric if teacher_run else None,
        )
        teacher = replace(teacher, order=teacher.order_of(data.task.labels))
        # A layout describes labelled files. Unlabelled ones are read by their column names.
        files = TaskFiles(task, find_layout(replace(options, layout=None)), ranks, labelled=False)
        texts = [data.train.drop_empty()]
        for path in config.unlabelled:
            texts.append(_read_unlabelled(path, files, data, start).drop_empty())
        student = start.make_student(data, config.seeds[0])
        reads_alike = all(teacher.reads_as(student, part) for part in texts)
        teacher_windows = (teacher.model.max_length, teacher.model.overlap)
        has_teachers_windows = (student.max_length, student.overlap) == teacher_windows
        by_token = not isinstance(student.head, SequenceHead)
        if by_token and not reads_alike:
            raise BrimfulError(
                f"{task.name} is imitated token by token: give a student with its teacher's tokenizer"
            )
        by_example = reads_alike and (by_token or has_teachers_windows)
        # Made only so that a wrong setting is refused now, and not after the first stage.
        data.task.imitation(config.temperature)
        if config.layers.epochs and reads_alike:
            LayerDistillation(teacher.model.encoder, student.encoder, config.layers.losses)
        elif config.layers.epochs and ranks.is_main:
            say("the teacher does not read the student's tokens: only its outputs are imitated")
        plan = DistilPlan(
            config=with_absolute_paths(config, precision=runtime.precision),
            runtime=runtime,
            start=start,
            teacher=teacher,
            tables=tables,
            held_out=held_out,
            data=data,
            texts=texts,
            reads_alike=reads_alike,
            by_example=by_example,
            shape=student.encoder.config,
        )
        if folder.announces and not config.dry_run:
            _announce(plan)
        return plan

    def describe_plan(self, plan: DistilPlan) -> Values:
        return {"dry_run": True, "texts": plan.text_count, "student_layers": plan.shape.layers}

    def work(self, plan: DistilPlan, folder: RunFolder) -> Values:
        """Train all students, and save the one that is best on dev, or the first without dev."""
        config, runtime, data = plan.config, plan.runtime, plan.data
        examples, teacher_answers = plan.ask_teacher()
        students = [_train_student(plan, examples, seed, folder) for seed in config.seeds]
        # Every rank has read the trained weights, and leaves the processors to the main one for the timing.
        runtime.world.barrier()
        if not runtime.world.is_main:
            return {}
        metrics = data.task.metrics
        best = max(students, key=lambda student: metrics[0].score(student.dev))
        write_predictions(folder.path / "predictions.jsonl", *best.judged, data.test)
        facts = {
            "kind": "distil",
            **_compare_with_teacher(plan, students, best.model, teacher_answers),
            **best.judged.task.facts,
            "precision": runtime.precision,
            "seconds": sum(student.seconds for student in students),
        }
        model = best.model.to(runtime.device)
        model.save(folder.path / "model", token_types=data.train.examples.typed)
        return with_overview(facts, summarise_distillation(facts, metrics, config.teacher or ""))


def _read_unlabelled(path: str, files: TaskFiles, data: TaskData, start: StudentStart) -> Encoded:
    """Read the texts of a file, without those that equal rows which were held out of train."""
    train, is_main = data.train.table, files.ranks.is_main
    tokenizer = require_tokenizer(start.encoder, "the student")
    texts = files.encode(data.task, path, tokenizer, start.max_length, start.overlap)
    require_pairs(texts.table, train.second is not None, train.path)
    if is_main:
        warn_of_lost_ends(texts.examples.cut, len(texts), path, start.max_length)
    held_out = []
    for part in (data.test, data.dev):
        if part is not None and part.table.rows is not None:  # it was cut from the file of train
            held_out.append(part.table)
    if not held_out:
        return texts
    copies = find_held_out_copies(texts.table, held_out, train)
    if not copies.any():
        return texts
    if is_main:
        rows = "test or dev" if len(held_out) > 1 else "held-out"
        number = pluralise(int(copies.sum()), "text")
        say(f"{path}: left out {number}, equal or nearly equal to {rows} rows")
    return texts.take(np.flatnonzero(~copies))


def _announce(plan: DistilPlan) -> None:
    """Say what a new run does."""
    config, teacher, student = plan.config, plan.teacher.model.encoder.config, plan.shape
    say(
        f"distilling {teacher.layers} layers of width {teacher.hidden_size} into {student.layers} layers of"
        f" width {student.hidden_size} on {plan.text_count:,} texts"
    )
    if plan.start.layers is None and config.student is None and config.initialisation != "random":
        say("the student is wider than its teacher, and starts from random weights")


@dataclass(frozen=True)
class Student:
    """The trained student of a seed.

    Attributes:
        judged: its task, which may be fitted to dev, and its answers for test.
        dev: its metrics on dev; empty without dev.
        seconds: time of its training.
    """

    judged: Judged
    model: TaskModel
    dev: Numbers
    seconds: float


def _train_student(plan: DistilPlan, examples: Examples, seed: int, folder: RunFolder) -> Student:
    """Train the stage of the layers, where it has epochs, and then the stage of the target `TEACHER`."""
    config, data, teacher = plan.config, plan.data, plan.teacher
    student = plan.start.make_student(data, seed)
    stages: list[tuple[str, StageConfig, Objective]] = []
    if config.layers.epochs and plan.reads_alike:
        layers = LayerDistillation(teacher.model.encoder, student.encoder, config.layers.losses)
        stages.append(("layers", config.layers, layers))
    if config.logits.epochs:
        logits = LogitDistillation(
            student.head,
            data.task.imitation(config.temperature),
            data.task.primary_metric,
            make_evaluation(data.task, student.head, data.dev),
        )
        stages.append(("logits", config.logits, logits))
    seconds = 0.0
    for name, stage_config, objective in stages:
        stage = Stage(
            title=f"distil {name}, seed {seed}",
            folder=folder.path / "stages" / f"seed-{seed}" / name,
            seed=seed,
            encoder=student.encoder,
            objective=objective,
            texts=examples,
            epochs=stage_config.epochs,
            rate=stage_config.learning_rate,
            trained={"encoder": student.encoder, "head": student.head},
        )
        result = train_stage(stage, config, folder, plan.runtime)
        result.load(stage.trained)
        seconds += result.seconds
    precision = plan.runtime.precision
    student.to(plan.runtime.device)
    fold(student.head)
    task, dev = student.task, Numbers()
    if data.dev is not None:
        dev_answers, _ = student.judge(data.dev, precision)
        task = task.fit_settings(dev_answers, data.dev)
        dev = task.measure(dev_answers, data.dev)
    elif task.calibrates:  # the settings of the teacher, which it imitates, are the best guess
        task = task.with_settings(task.settings | teacher.model.task.settings)
    answers = task.answers(student.outputs(data.test.examples, precision), data.test)
    return Student(Judged(task, answers), replace(student, task=task), dev, seconds)


def _compare_with_teacher(
    plan: DistilPlan, students: Sequence[Student], model: TaskModel, teacher_answers: Any
) -> Values:
    """Return the facts of the students of all seeds, of `model`, which is kept, and of their teacher."""
    data, task, teacher = plan.data, plan.data.task, plan.teacher.model
    # Both answer with the settings that were fitted for them, such as a threshold.
    judged = {
        "student": [student.judged for student in students],
        "teacher": [Judged(task.with_settings(teacher.task.settings), teacher_answers)],
    }
    comparison = MethodComparison(judged, data.test)
    models = {"student": model, "teacher": teacher}
    parameters = {name: each.parameters for name, each in models.items()}
    measured: dict[str, Values] = {}
    timed: dict[str, Answer] = {}
    for name, each in models.items():
        measured[name] = comparison.metrics(name)
        measured[name]["parameters"] = parameters[name]
        timed[name] = _answer_on_cpu(each)
    speeds = measure_speeds(timed, data.test.table)
    facts: Values = {
        "task": task.name,
        "primary_metric": task.metrics[0].name,
        **measured,
        "test": comparison.test_facts,
        "texts": plan.text_count,
        **task.facts,
        "parameters": parameters,
        "megabytes": {name: 4 * count / 1e6 for name, count in parameters.items()},
    }
    for measure in Speed._fields:
        facts[measure] = {name: getattr(speed, measure) for name, speed in speeds.items()}
    facts["comparisons"] = {"student_minus_teacher": comparison.difference("student", "teacher")}
    return facts


def _answer_on_cpu(model: TaskModel) -> Answer:
    """Return a function that answers a table on the CPU in float32, to measure the model's speed."""
    model.to(CPU)
    return lambda table: model.answers(model.encode(table), "fp32")


def summarise_distillation(facts: Values, metrics: Sequence[Metric], folder: str) -> Summary:
    """Summarise a distillation from the facts of summary.json: the student beside its teacher in `folder`."""
    primary = find_primary(facts, metrics)
    test = describe_test(facts, primary)
    error = find_number(facts, "comparisons.student_minus_teacher.standard_error")
    measured = find_mapping(facts, "student")
    costs = read_costs(facts, "student") | {"seconds": find_number(facts, "seconds")}
    pairs = {} if error is None else {"Teacher": error}
    student = make_result("Student", measured, primary, test.n, pairs=pairs, is_own=True, **costs)
    measured, costs = find_mapping(facts, "teacher"), read_costs(facts, "teacher")
    teacher = make_result("Teacher", measured, primary, test.n, folder=folder, **costs)
    is_ahead = (student.value > teacher.value) == test.higher_is_better
    gap = describe_gap(test, student, teacher, f"{'ahead of' if is_ahead else 'behind'} its teacher")
    verdict = f"The student is {gap}"
    if student.parameters and teacher.parameters:
        verdict += f", with {format_percent(student.parameters / teacher.parameters)} of its parameters"
    verdict += f", on {test.n:,} test rows."
    result = {"Texts learned from": format_value(facts.get("texts")), **list_outcome(facts, None)}
    tables = make_facts_table("Result", result)
    models = [student, teacher]
    return Summary(f"Student for {facts['task']}", verdict, tables, test=test, models=models)
