"""What the students of a task learn from: tables, texts, teachers, and what the teachers say of the texts."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from brimful.base.config import build, read_yaml
from brimful.base.console import counted, say, warn
from brimful.base.distributed import World
from brimful.base.errors import BrimfulError, UsageError
from brimful.data.examples import Examples
from brimful.hf.model_folder import ModelFolder
from brimful.model.encoder import Encoder
from brimful.model.heads import SequenceHead
from brimful.objectives.imitation import TEACHER
from brimful.runs.directory import CONFIG, SUMMARY, absolute, model_files, named_files
from brimful.stages.distil_options import DistilConfig, TaskOptions
from brimful.stages.finetune_config import FinetuneConfig, finetuning_of
from brimful.stages.held_out_rows import FILE, HeldOut, read_held_out
from brimful.stages.teachers import ModelTeacher, averaged, load_teacher, order_of_labels, read_scores
from brimful.tables.layouts import OWN, Columns, FileLayout, find_layout
from brimful.tables.table import Table, require_pairs
from brimful.tasks.alike import held_out_copies, rows_alike
from brimful.tasks.data import TaskData, load_task_data
from brimful.tasks.encoded import Encoded, warn_of_lost_ends
from brimful.tasks.form import Outputs
from brimful.tasks.model import TaskModel
from brimful.tasks.registry import task_of
from brimful.tasks.task import Task
from brimful.tasks.task_files import RunTables, TaskFiles
from brimful.train.objective import Runtime


class Reader(Protocol):
    """How a student reads texts: whose tokenizer, how many tokens, and how many its windows share."""

    @property
    def encoder(self) -> Encoder: ...
    @property
    def max_length(self) -> int: ...
    @property
    def overlap(self) -> int | None: ...


@dataclass(frozen=True)
class Sources:
    """Who teaches, and on which tables.

    Attributes:
        origin: the first teacher's fine-tuning, whose tables and settings are used where none are given.
        tables: paths of train, and of dev and test where they are tables of their own.
        held_out: rows of train that the teacher's run has held out, where its training table is used.
    """

    config: TaskOptions
    origin: FinetuneConfig | None
    teachers: list[ModelTeacher]
    tables: tuple[str, str | None, str | None]
    held_out: HeldOut | None = None

    @property
    def first(self) -> ModelTeacher | None:
        """The teacher that students start from."""
        return self.teachers[0] if self.teachers else None

    @property
    def files(self) -> dict[str, Path]:
        """Those that decide the result of a run, by names that are the same on other machines."""
        config, (train, dev, test) = self.config, self.tables
        files = named_files(unlabelled=config.unlabelled, teacher_scores=config.teacher_scores)
        files |= named_files(train=train, dev=dev, test=test)
        for index, path in enumerate(config.teachers):
            name = f"teacher[{index}]" if index else "teacher"
            if index == 0 and self.origin is not None:
                files[f"{name}/{CONFIG}"] = Path(path) / CONFIG
                if self.held_out is not None:
                    files[f"{name}/{FILE}"] = Path(path) / FILE
            files |= model_files(name, ModelFolder.open(path, "model"))
        return files

    @property
    def layout(self) -> FileLayout:
        """How the tables are laid out."""
        name = self.config.layout or (self.origin.layout if self.origin else None)
        return find_layout(name, self.columns)

    @property
    def columns(self) -> Columns:
        """The names of columns, in unlabelled files too."""
        given = self.config.columns
        return self.origin.columns if self.origin and given == OWN else given


def open_sources(config: TaskOptions) -> Sources:
    """Load the teachers, and find the tables.

    Raises:
        BrimfulError: a teacher is no model of the task.
        UsageError: there are no tables.
    """
    origin = finetuning_of(config.teachers[0]) if config.teachers else None
    teachers = [load_teacher(path) for path in config.teachers]
    for each in teachers:
        kind, wanted = each.model.task, config.task or teachers[0].model.task.name
        if type(kind) is not type(teachers[0].model.task) or kind.name != wanted:
            raise BrimfulError(f"the teacher {each.name} is a model of {kind.name}, not of {wanted}")
    tables = tables_of(config, origin)
    return Sources(config, origin, teachers, tables, held_out_of(config, origin, tables))


@dataclass(frozen=True)
class Material:
    """What students learn from, before the teachers are asked.

    Attributes:
        parts: the texts of train and of each unlabelled file, without empty ones.
        imitated: the teacher that reads the student's tokens; None if there is none.
        by_example: whether it alone teaches, and its examples are the student's.
        scores: of each file of scores, those of each part and of test.
    """

    sources: Sources
    data: TaskData
    parts: list[Encoded]
    imitated: ModelTeacher | None
    by_example: bool
    scores: list[list[np.ndarray]]

    @property
    def count(self) -> int:
        """How many texts there are; a long one may be several examples."""
        return sum(map(len, self.parts))

    def taught(self, runtime: Runtime) -> tuple[Examples, Any]:
        """Ask the teachers: the examples with the target `TEACHER` and the labels that there are; and the
        answers for test, None where the teachers have none.

        Raises:
            BrimfulError: a teacher's outputs are not finite, or a text has no scores.
        """
        outputs, answers = self._outputs(runtime)
        examples = [_with_target(*each) for each in zip(self.parts, outputs, strict=True)]
        return Examples.chained(examples), answers

    def _outputs(self, runtime: Runtime) -> tuple[list[Outputs], Any]:
        """What the teachers say of each part, and their answers for test."""
        parts, test, task = self.parts, self.data.test, self.data.task
        if self.by_example:
            assert self.imitated is not None
            found = [self.imitated.outputs(part, runtime) for part in parts]
            return found, self.imitated.answers(test, runtime)
        tables = [*(part.table for part in parts), test.table]
        calibrated = not self.sources.config.single  # one model is imitated as it is
        asked = [
            [each.scores(table, runtime, calibrated) for table in tables] for each in self.sources.teachers
        ]
        *learned, of_test = (list(each) for each in zip(*self.scores, *asked, strict=True))
        outputs: list[Outputs] = [
            averaged(task, each, part.table) for each, part in zip(learned, parts, strict=True)
        ]
        known = np.isfinite(np.stack(of_test)).all(2).any(0)
        if not known.all():  # a row of test has scores of no teacher
            if runtime.world.is_main:
                warn("no teacher has scores of all test texts: the student's metrics stand alone")
            return outputs, None
        return outputs, averaged(task, of_test, test.table)


def read_material(
    sources: Sources, reader: Reader, student_of: Callable[[TaskData], TaskModel], ranks: World
) -> tuple[Material, TaskModel]:
    """Read the tables, the texts and the files of scores.

    Args:
        student_of: the student before training, whose tokens and head decide how it is taught.

    Returns:
        what students learn from, and that student.

    Raises:
        BrimfulError: a table or a file of scores is unusable, or does not go with the teachers.
    """
    config, origin, teachers = sources.config, sources.origin, sources.teachers
    held_out = sources.held_out
    encoder, max_length, overlap = reader.encoder, reader.max_length, reader.overlap
    kind = type(teachers[0].model.task) if teachers else task_of(config.task, sources.layout)
    data = load_task_data(
        kind,
        encoder,
        *sources.tables,
        max_length=max_length,
        overlap=overlap,
        test_rows=held_out.test if held_out and sources.tables[2] is None else None,
        dev_rows=held_out.dev if held_out and not held_out.dev_in_train and not config.dev else None,
        layout=sources.layout,
        metric=origin.metric if origin else None,
        ranks=ranks,
    )
    if ranks.is_main:
        _warn_of_learned_tests(config, kind, data)
    task = data.task
    teachers = [replace(each, order=order_of_labels(each.model, task.labels, each.name)) for each in teachers]
    parts = [data.train.with_text()]
    unlabelled = TaskFiles(kind, find_layout(None, sources.columns), ranks, labelled=False)
    assert encoder.tokenizer is not None
    cut = [part.table for part in _parts_of_train(data)]
    for path in config.unlabelled:
        more = unlabelled.encode(task, path, encoder.tokenizer, max_length, overlap)
        require_pairs(more.table, data.train.table.second is not None, data.train.table.path)
        if ranks.is_main:
            warn_of_lost_ends(more.examples.cut, len(more), path, max_length)
        if cut and (copies := held_out_copies(more.table, cut, data.train.table)).any():
            if ranks.is_main:
                rows = "test or dev" if len(cut) > 1 else "held-out"
                number = counted(int(copies.sum()), "text")
                say(f"{path}: left out {number}, equal or nearly equal to {rows} rows")
            more = more.take(np.flatnonzero(~copies))
        parts.append(more.with_text())
    student = student_of(data)
    first = teachers[0] if teachers else None
    imitated = first if first is not None and all(first.reads_as(student, each) for each in parts) else None
    by_text = isinstance(student.head, SequenceHead)
    by_example = False
    if imitated is not None and config.single:
        same = (imitated.model.max_length, imitated.model.overlap) == (student.max_length, student.overlap)
        by_example = same or not by_text
    if not (by_text or by_example):
        raise BrimfulError(
            f"{task.name} is imitated token by token: give one model as --teacher, and a student with its"
            " tokenizer"
        )
    tables = [*(part.table for part in parts), data.test.table]
    scores = [read_scores(path, task, tables) for path in config.teacher_scores]
    if not (teachers or config.dry_run):  # a text that no file knows; a model may still come to a dry run
        for each, table in zip(zip(*scores, strict=True), tables[:-1], strict=False):
            averaged(task, each, table)
    found = Material(replace(sources, teachers=teachers), data, parts, imitated, by_example, scores)
    return found, student


def tables_of(config: TaskOptions, origin: FinetuneConfig | None) -> tuple[str, str | None, str | None]:
    """Paths of train, dev and test: those given, else those of the teacher's run.

    Raises:
        UsageError: there are none, or test rows may be in train.
    """
    known: Sequence[str | None] = origin.tables if origin else (None, None, None)
    train, test = config.train or known[0], config.test or known[2]
    dev = config.dev or (None if config.train else known[1])
    if train is not None and test is not None:
        return train, dev, test
    if train is not None and origin is not None:
        if absolute(train) == origin.train:
            return absolute(train), dev, None
        raise UsageError(
            f"{config.teachers[0]} has held its test rows out of {origin.train}, and {train} may hold them or"
            " copies of them: give --test too"
        )
    if config.teachers:
        raise UsageError(
            f"{config.teachers[0]} is not a run of `brimful finetune`, whose tables would be used: give"
            " --train and --test"
        )
    raise UsageError("without a model as --teacher, whose tables would be used: give --train and --test")


def held_out_of(
    config: TaskOptions, origin: FinetuneConfig | None, tables: tuple[str, str | None, str | None]
) -> HeldOut | None:
    """The rows that the teacher's run has held out, where its tables are used again.

    Raises:
        BrimfulError: they are not known any more.
    """
    if origin is None or (tables[2] is not None and (config.train or config.test)):
        return None
    run = Path(config.teachers[0])
    if tables[2] is not None and not (run / FILE).is_file():
        return None
    return read_held_out(run, tables[0])


def _warn_of_learned_tests(config: TaskOptions, kind: type[Task], data: TaskData) -> None:
    """Warn of other teachers that were trained on test rows; the first one's tables are those of the run."""
    test = data.test.table
    for path in config.teachers[1:]:
        try:
            learned = _learned(path, kind)
        except BrimfulError as error:
            warn(f"{path}: whether it was trained on test rows is not known: {error}")
            continue
        if learned is None:
            continue
        known = np.flatnonzero(rows_alike(test, learned))
        if len(known):
            warn(
                f"{path} was trained on {len(known):,} of {counted(len(test), 'test row')} or on rows alike,"
                f" such as {test.where(int(known[0]))}, so test metrics of teachers and student are too"
                " optimistic"
            )


def _learned(path: str, kind: type[Task]) -> Table | None:
    """The rows that the training of a teacher has read; None for a folder that is no run of finetune.

    Raises:
        BrimfulError: its table is gone or has changed.
    """
    origin = finetuning_of(path)
    if origin is None:
        return None
    assert origin.train is not None
    table = TaskFiles(kind, find_layout(origin.layout, origin.columns)).read(origin.train)
    if not (Path(path) / FILE).is_file():
        return table
    held_out = read_held_out(Path(path), origin.train)
    parts = [held_out.test, None if held_out.dev_in_train else held_out.dev]
    rows = [part for part in parts if part is not None]
    return table.take(np.setdiff1d(np.arange(len(table)), np.concatenate(rows))) if rows else table


def _parts_of_train(data: TaskData) -> list[Encoded]:
    """Test and dev, where they were cut from the file of train."""
    return [part for part in (data.test, data.dev) if part is not None and part.table.rows is not None]


def _with_target(part: Encoded, outputs: Outputs) -> Examples:
    """The examples with what the teacher says: of each example, or of a text in all of its windows."""
    examples = part.examples
    if isinstance(outputs, np.ndarray) and len(outputs) != len(examples):
        outputs = outputs[examples.text_of_example]
    return replace(examples, targets=examples.targets | {TEACHER: outputs})


def encoder_before(origin: FinetuneConfig, remedy: str) -> ModelFolder:
    """The folder of the encoder that the teacher was fine-tuned from.

    Args:
        remedy: what to do where it is gone.

    Raises:
        BrimfulError: it is there no more.
    """
    try:
        return origin.encoder_folder
    except BrimfulError as error:
        raise BrimfulError(
            "the student would start from the encoder that the teacher was fine-tuned from, but"
            f" {error}; {remedy}"
        ) from error


def tables_of_run(model: ModelFolder) -> RunTables:
    """The tables of a finished run of finetune, or of distil: its teacher's where it was given none.

    Rows that a run held out of its training table are test or dev as well. Where they are not known any more,
    that table is left out, with a warning. Of other runs the layout alone is known.
    """
    run = model.path.parent
    if not (run / SUMMARY).is_file() or not (run / CONFIG).is_file():
        return RunTables()
    if (own := finetuning_of(run)) is not None:
        layout = find_layout(own.layout, own.columns)
        known = own.test is not None and not (run / FILE).is_file()
        return _found(own.tables, layout, lambda: None if known else read_held_out(run, own.tables[0]))
    options = read_yaml(run / CONFIG)
    try:
        config = build(DistilConfig, options)
        origin = finetuning_of(config.teachers[0]) if config.teachers else None
        tables = tables_of(config, origin)
        layout = Sources(config, origin, [], tables).layout
    except BrimfulError:
        return RunTables(layout=_layout_of(options))
    return _found(tables, layout, lambda: held_out_of(config, origin, tables))


def _found(
    tables: tuple[str, str | None, str | None], layout: FileLayout, held_out: Callable[[], HeldOut | None]
) -> RunTables:
    """Those that are still there."""
    train, dev, test = (Path(path) if path and Path(path).is_file() else None for path in tables)
    try:
        found = None if train is None else held_out()
    except BrimfulError as error:
        warn(f"the rows of {train} that were held out are not known, so it is left out: {error}")
        return RunTables(dev=dev, test=test, layout=layout)
    return RunTables(train, dev, test, found.parts if found else {}, layout)


def _layout_of(options: Mapping[str, Any]) -> FileLayout:
    """The layout that any options name."""
    columns = options.get("columns")
    known = dict(columns) if isinstance(columns, Mapping) else {}
    names = {name: known[name] for name in vars(Columns()) if isinstance(known.get(name), str)}
    return find_layout(options.get("layout"), Columns(**names))
