"""What the students of a task learn from: tables, texts, a teacher, and what it says of the texts."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from brimful.base.console import pluralise, say
from brimful.base.distributed import World
from brimful.base.errors import BrimfulError
from brimful.data.examples import Examples
from brimful.hf.model_folder import ModelFolder
from brimful.model.heads import SequenceHead
from brimful.objectives.imitation import TEACHER
from brimful.runs.directory import CONFIG, model_files
from brimful.stages.distil_options import DistilConfig
from brimful.stages.run_tables import (
    HELD_OUT_FILE,
    HeldOut,
    held_out_of,
    named_tables,
    table_options,
    tables_of,
)
from brimful.stages.students import ModelTeacher, StudentStart, load_teacher
from brimful.stages.task_options import read_finetuning
from brimful.tables.layouts import find_layout
from brimful.tables.table import require_pairs
from brimful.tasks.cached_tables import TaskFiles
from brimful.tasks.encoded_tables import Encoded, warn_of_lost_ends
from brimful.tasks.prediction_form import Outputs
from brimful.tasks.row_groups import find_held_out_copies
from brimful.tasks.task_data import TaskData, load_task_data
from brimful.tasks.task_model import TaskModel
from brimful.train.objective import Runtime


@dataclass(frozen=True)
class Material:
    """What students learn from, before the teacher is asked.

    Attributes:
        held_out: rows of train that the teacher's run has held out, where its training table is used.
        parts: the texts of train and of each unlabelled file, without empty ones.
        reads_alike: whether the teacher reads the student's tokens, so that its layers can be imitated.
        by_example: whether it teaches by its outputs for the student's own examples, else by those for each
            text, which it reads with its own tokenizer.
    """

    start: StudentStart
    tables: tuple[str, str | None, str | None]
    held_out: HeldOut | None
    data: TaskData
    parts: list[Encoded]
    teacher: ModelTeacher
    reads_alike: bool
    by_example: bool

    @property
    def count(self) -> int:
        """How many texts there are; a long one may be several examples."""
        return sum(map(len, self.parts))

    @property
    def files(self) -> dict[str, Path]:
        """Those that decide the result of a run, by names that are the same on other machines."""
        config, (train, dev, test) = self.start.config, self.tables
        files = named_tables(unlabelled=config.unlabelled, train=train, dev=dev, test=test)
        assert config.teacher is not None
        if self.start.origin is not None:
            files[f"teacher/{CONFIG}"] = Path(config.teacher) / CONFIG
        if self.held_out is not None:
            files[f"teacher/{HELD_OUT_FILE}"] = Path(config.teacher) / HELD_OUT_FILE
        files |= model_files("teacher", ModelFolder.open(config.teacher, "model"))
        return files | self.start.files

    def taught(self, runtime: Runtime) -> tuple[Examples, Any]:
        """Ask the teacher: the examples with the target `TEACHER`, and the answers for test.

        Raises:
            BrimfulError: the teacher's outputs are not finite.
        """
        if self.by_example:
            outputs: list[Outputs] = [self.teacher.outputs(part, runtime) for part in self.parts]
            answers = self.teacher.answers(self.data.test, runtime)
        else:
            outputs = [self.teacher.row_outputs(part.table, runtime) for part in self.parts]
            answers = self.teacher.row_outputs(self.data.test.table, runtime)
        examples = [_with_target(*each) for each in zip(self.parts, outputs, strict=True)]
        return Examples.chained(examples), answers


def read_material(config: DistilConfig, ranks: World) -> tuple[Material, TaskModel]:
    """Load the teacher, and read the tables and the texts.

    Returns:
        what students learn from, and the first student before training.

    Raises:
        BrimfulError: the teacher or a table is unusable, or does not go with the others.
    """
    assert config.teacher is not None
    teacher, origin = load_teacher(config.teacher), read_finetuning(config.teacher)
    kind = type(teacher.model.task)
    if config.task not in (None, kind.name):
        raise BrimfulError(f"the teacher {teacher.name} is a model of {kind.name}, not of {config.task}")
    options = table_options(config, origin)
    layout = find_layout(options)
    tables = tables_of(config, origin)
    held_out = held_out_of(config, origin, tables)
    rows = dict(held_out.parts) if held_out else {}
    if config.dev or (held_out and held_out.dev_in_train):
        rows.pop("dev", None)
    start = StudentStart.of(config, origin, teacher)
    data = load_task_data(
        kind,
        start.encoder,
        *tables,
        max_length=start.max_length,
        overlap=start.overlap,
        test_rows=rows.get("test") if tables[2] is None else None,
        dev_rows=rows.get("dev"),
        layout=layout,
        metric=origin.metric if origin else None,
        ranks=ranks,
    )
    teacher = replace(teacher, order=teacher.order_of(data.task.labels))
    files = TaskFiles(kind, find_layout(replace(options, layout=None)), ranks, labelled=False)
    parts = [data.train.drop_empty()]
    parts += [_unlabelled(path, files, data, start).drop_empty() for path in config.unlabelled]
    student = start.student(data, config.seeds[0])
    reads_alike = all(teacher.reads_as(student, part) for part in parts)
    has_teachers_windows = (student.max_length, student.overlap) == (
        teacher.model.max_length,
        teacher.model.overlap,
    )
    by_token = not isinstance(student.head, SequenceHead)
    if by_token and not reads_alike:
        raise BrimfulError(
            f"{kind.name} is imitated token by token: give a student with its teacher's tokenizer"
        )
    by_example = reads_alike and (by_token or has_teachers_windows)
    return Material(start, tables, held_out, data, parts, teacher, reads_alike, by_example), student


def _unlabelled(path: str, files: TaskFiles, data: TaskData, start: StudentStart) -> Encoded:
    """The texts of a file, but for those that equal rows which were held out of train."""
    tokenizer, train, is_main = start.encoder.tokenizer, data.train.table, files.ranks.is_main
    assert tokenizer is not None
    more = files.encode(data.task, path, tokenizer, start.max_length, start.overlap)
    require_pairs(more.table, train.second is not None, train.path)
    if is_main:
        warn_of_lost_ends(more.examples.cut, len(more), path, start.max_length)
    # Test and dev, where they were cut from the file of train.
    cut = [p.table for p in (data.test, data.dev) if p is not None and p.table.rows is not None]
    if cut and (copies := find_held_out_copies(more.table, cut, train)).any():
        if is_main:
            rows = "test or dev" if len(cut) > 1 else "held-out"
            number = pluralise(int(copies.sum()), "text")
            say(f"{path}: left out {number}, equal or nearly equal to {rows} rows")
        more = more.take(np.flatnonzero(~copies))
    return more


def _with_target(part: Encoded, outputs: Outputs) -> Examples:
    """The examples, whose only target is what the teacher says of each, or of a text in all its windows."""
    examples = part.examples
    if isinstance(outputs, np.ndarray) and len(outputs) != len(examples):
        outputs = outputs[examples.text_of_example]
    return replace(examples, targets={TEACHER: outputs})
