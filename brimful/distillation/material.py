"""What a task's students learn from: tables, texts, teachers, and what the teachers say of the texts."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from brimful.console import say, warn
from brimful.data.examples import Examples
from brimful.distillation.config import DistilConfig
from brimful.distillation.start import start_of
from brimful.distillation.students import Distillation
from brimful.distillation.teachers import ModelTeacher, averaged, know_all, order_of_labels, read_scores
from brimful.errors import BrimfulError, UsageError
from brimful.finetuning.config import FinetuneConfig
from brimful.hf.model_folder import ModelFolder
from brimful.model.heads import SequenceHead
from brimful.objectives.imitation import TEACHER, LayerDistillation
from brimful.runs.directory import CONFIG, model_files, named_files
from brimful.storage import crc32
from brimful.tables.layouts import OWN, find_layout
from brimful.tables.table import require_pairs
from brimful.tasks.cache import TaskFiles
from brimful.tasks.data import TaskData, load_task_data
from brimful.tasks.encoded import Encoded, warn_of_lost_ends
from brimful.tasks.model import TaskModel, load_task_model
from brimful.tasks.registry import task_of
from brimful.tasks.task import Outputs
from brimful.train.objective import Runtime


def learning_material(
    config: DistilConfig, origin: FinetuneConfig | None, runtime: Runtime, *, computes: bool
) -> Distillation:
    """Load the teachers, the tables and what the students start from, and ask the teachers about the texts.

    Args:
        origin: the teacher's fine-tuning, whose tables and settings are used where none are given.
        computes: whether the teachers are asked; a dry run does not, and its texts have no target of theirs.

    Raises:
        BrimfulError: a teacher, a table, a file of scores or a setting is unusable, or does not go with the
            others.
    """
    ranks = runtime.world
    teachers = _load_teachers(config)
    first = teachers[0] if teachers else None
    tables = _tables(config, origin)
    columns = origin.columns if origin and config.columns == OWN else config.columns
    layout = find_layout(config.layout or (origin.layout if origin else None), columns)
    start = start_of(config, origin, first)
    kind = type(first.model.task) if first else task_of(config.task, layout)
    for each in teachers:
        if type(each.model.task) is not kind or config.task not in (None, kind.name):
            raise BrimfulError(
                f"the teacher {each.name} is a model of {each.model.task.name}, not of"
                f" {config.task or kind.name}"
            )
    data = load_task_data(
        kind,
        start.encoder,
        *tables,
        max_length=start.max_length,
        overlap=start.overlap,
        windows=False,
        split=False,
        layout=layout,
        metric=origin.metric if origin else None,
        ranks=ranks,
    )
    task = data.task
    teachers = [replace(each, order=order_of_labels(each.model, task.labels, each.name)) for each in teachers]
    task.imitation(config.logits.loss, config.temperature)  # so that a wrong setting is refused now
    parts = [data.train.with_text()]
    sizes = [len(data.train)]
    unlabelled = TaskFiles(kind, find_layout(None, columns), ranks, labelled=False)
    assert start.encoder.tokenizer is not None
    for path in config.unlabelled:
        more = unlabelled.encode(task, path, start.encoder.tokenizer, start.max_length, start.overlap)
        require_pairs(more.table, data.train.table.second is not None, data.train.table.path)
        if ranks.is_main:
            warn_of_lost_ends(more.examples.cut, len(more), path, start.max_length, windows=False)
        sizes.append(len(more))
        parts.append(more.with_text())
    student = start.student(data, config.seeds[0])
    imitated = (
        teachers[0] if teachers and all(teachers[0].reads_as(student, each) for each in parts) else None
    )
    if config.layers.epochs and imitated:  # refused now, if it must be
        LayerDistillation(imitated.model.encoder, student.encoder, config.layers.losses)
    elif config.layers.epochs and ranks.is_main:
        why = "does not read the student's tokens" if teachers else "has no layers"
        say(f"the teacher {why}: its outputs alone are imitated, not its layers")
    outputs, taught_test = _outputs(
        config, data, parts, sizes, teachers, imitated, student, runtime, computes=computes
    )
    examples = [
        part.examples if said is None else _with_target(part, said)
        for part, said in zip(parts, outputs, strict=True)
    ]
    chained = Examples.chained(examples)
    if not config.logits.labels:
        chained = replace(chained, targets={k: v for k, v in chained.targets.items() if k == TEACHER})
    count = sum(map(len, parts))
    return Distillation(config, start, teachers, imitated, chained, count, data, taught_test)


def files_of(distillation: Distillation) -> dict[str, Path]:
    """The files that decide the result of a run, by names that are the same on other machines."""
    config, start = distillation.config, distillation.start
    train, dev, test = _tables(config, start.origin)
    files = named_files(unlabelled=config.unlabelled, teacher_scores=config.teacher_scores)
    files |= named_files(train=train, dev=dev, test=test)
    for index, path in enumerate(config.teachers):
        name = f"teacher[{index}]" if index else "teacher"
        if index == 0 and start.origin is not None:
            files[f"{name}/{CONFIG}"] = Path(path) / CONFIG
        files |= model_files(name, ModelFolder.open(path, "model"))
    if config.student is not None:
        files |= model_files("student", ModelFolder.open(config.student, "model"))
    elif start.of_origin:
        assert start.origin is not None
        files |= model_files("encoder", start.origin.encoder_folder)
    return files


def _load_teachers(config: DistilConfig) -> list[ModelTeacher]:
    """The task models, whose labels are put in the order of the data later."""
    found = []
    for path in config.teachers:
        folder = ModelFolder.open(path, "model")
        model, files = load_task_model(folder), model_files("teacher", folder)
        crcs = {name: crc32(file) for name, file in files.items()}
        found.append(ModelTeacher(model, list(range(len(model.task.labels))), path, crcs))
    return found


def _tables(config: DistilConfig, origin: FinetuneConfig | None) -> tuple[str, str | None, str]:
    """Paths of train, dev and test: those given, else those of the teacher's run."""
    known = origin.tables if origin else (None, None, None)
    train, test = config.train or known[0], config.test or known[2]
    dev = config.dev or (None if config.train else known[1])
    if train is None or test is None:
        if not config.teachers:
            raise UsageError(
                "without a model as --teacher, whose tables would be used: give --train and --test"
            )
        raise UsageError(
            f"{config.teachers[0]} is not a run of `brimful finetune`, whose tables would be used: give"
            " --train and --test"
        )
    return train, dev, test


def _with_target(part: Encoded, outputs: Outputs) -> Examples:
    """The examples with what the teacher says: of each example, or of a text in all of its windows."""
    examples = part.examples
    if isinstance(outputs, np.ndarray) and len(outputs) != len(examples):
        outputs = outputs[examples.text_of_example]
    return replace(examples, targets=examples.targets | {TEACHER: outputs})


def _outputs(
    config: DistilConfig,
    data: TaskData,
    parts: list[Encoded],
    sizes: list[int],
    teachers: list[ModelTeacher],
    imitated: ModelTeacher | None,
    student: TaskModel,
    runtime: Runtime,
    *,
    computes: bool,
) -> tuple[list[Any], Any]:
    """What the teachers say of each part, and their answers for test; None where they have none.

    Args:
        sizes: the rows of each part's file, with those of empty texts.
        computes: whether models are asked; else all is None, and files of scores are read, so that wrong ones
            are refused.
    """
    nothing: tuple[list[Any], Any] = [None] * len(parts), None
    task, test = data.task, data.test
    by_text = isinstance(student.head, SequenceHead)
    if imitated is not None and config.single:
        whole = (imitated.model.max_length, imitated.model.overlap) == (student.max_length, student.overlap)
        if whole or not by_text:
            if not computes:
                return nothing
            return [imitated.outputs(part, runtime) for part in parts], imitated.answers(test, runtime)
    if not by_text:
        raise BrimfulError(
            f"{task.name} is imitated token by token: give one model as --teacher, and a student with its"
            " tokenizer"
        )
    tables = [*(part.table for part in parts), test.table]
    scores = [read_scores(path, task, tables, sizes) for path in config.teacher_scores]
    if not computes:
        return nothing
    calibrated = not config.single  # one model is imitated as it is
    scores += [[each.scores(table, runtime, calibrated) for table in tables] for each in teachers]
    *found, of_test = (list(each) for each in zip(*scores, strict=True))
    outputs = [averaged(task, each, table) for each, table in zip(found, tables, strict=False)]
    if not know_all(of_test):
        warn("no teacher has scores of all test texts: the student's metrics stand alone")
        return outputs, None
    return outputs, averaged(task, of_test, test.table)
