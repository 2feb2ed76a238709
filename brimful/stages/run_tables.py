"""The tables that a finished run has read: a distillation and an export use them again."""

from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

import numpy as np

from brimful.base.config import build, read_yaml
from brimful.base.console import warn
from brimful.base.errors import BrimfulError, UsageError
from brimful.base.seals import CONFIG, SUMMARY
from brimful.base.storage import read_object, require_shape
from brimful.hf.model_folder import ModelFolder
from brimful.stages.distil_options import DistilConfig
from brimful.stages.held_out import HELD_OUT_FILE, HeldOut, HeldOutRecord, crc32_of_table
from brimful.stages.task_options import FinetuneConfig
from brimful.tables.layouts import FileLayout, LabelOptions, TableOptions, TablePaths, find_layout
from brimful.tables.text_files import files_of_table
from brimful.tasks.cached_tables import RunTables


def merge_table_options(config: DistilConfig, teacher_run: FinetuneConfig | None) -> TableOptions:
    """Return how the tables of a distillation are read: as its options say, or as in the teacher's run."""
    options = {}
    for field in fields(TableOptions):
        value = getattr(config, field.name)
        # An option at its default counts as one that was not given.
        if teacher_run is not None and value == getattr(DistilConfig, field.name):
            value = getattr(teacher_run, field.name)
        options[field.name] = value
    return TableOptions(**options)


def choose_tables(config: DistilConfig, teacher_run: FinetuneConfig | None) -> TablePaths:
    """Return the tables that the options of a distillation name, or the tables of the teacher's run.

    Raises:
        UsageError: no table is known, or test rows may be in train.
    """
    run_train, run_dev, run_test = teacher_run.tables if teacher_run else (None, None, None)
    train, test = config.train or run_train, config.test or run_test
    dev = config.dev or (None if config.train else run_dev)
    if train is not None and test is not None:
        return train, dev, test
    if train is not None and teacher_run is not None:
        path = str(Path(train).absolute())
        if path == teacher_run.train:
            return path, dev, None
        raise UsageError(
            f"{config.teacher} has held its test rows out of {teacher_run.train}, and {train} may hold them"
            " or copies of them: give --test too"
        )
    raise UsageError(
        f"{config.teacher} is not a run of `brimful finetune` of this version, so its tables are not known:"
        " give --train and --test"
    )


def read_held_out(run: Path, table: str) -> HeldOut:
    """Read the rows that a run has held out of its training table.

    Raises:
        BrimfulError: the run has no record of them, or the table has changed since.
    """
    remedy = "give --train and --test"
    record = read_object(run / HELD_OUT_FILE)
    require_shape(record, HeldOutRecord, run / HELD_OUT_FILE, remedy)
    try:
        has_changed = crc32_of_table(table) != record["crc32"]
    except OSError as error:
        raise BrimfulError(f"cannot read {table}: {error.strerror or error}; {remedy}") from error
    if has_changed:
        raise BrimfulError(
            f"{table} is not what {run} was trained on, so the rows held out are not known: put it back as it"
            f" was, or {remedy}"
        )
    parts = {}
    for name in ("test", "dev"):
        if record[name] is not None:
            parts[name] = np.array(record[name], dtype=np.int64) - 1
    return HeldOut(parts, record["dev_in_train"])


def find_held_out(
    config: DistilConfig, teacher_run: FinetuneConfig | None, tables: TablePaths
) -> HeldOut | None:
    """Return the rows that the teacher's run has held out, where a distillation uses its tables again."""
    train, _, test = tables
    # With tables of the user's own, the rows of the run do not matter.
    if teacher_run is None or (test and (config.train or config.test)):
        return None
    assert config.teacher is not None
    run = Path(config.teacher)
    if test is not None and not (run / HELD_OUT_FILE).is_file():
        return None
    return read_held_out(run, train)


def find_run_tables(model: ModelFolder) -> RunTables:
    """Return the tables of a finished run of finetune or distil; a student may have used its teacher's.

    Rows that a run held out of its training table count as test or dev. Where these rows are not known any
    more, the table is left out, with a warning. A run of another version gives its layout only.
    """
    run = model.path.parent  # the model of a run lies in RUN/model
    if not (run / SUMMARY).is_file() or not (run / CONFIG).is_file():
        return RunTables()
    finetuning = read_finetuning(run)
    if finetuning is not None:
        has_record = finetuning.test is None or (run / HELD_OUT_FILE).is_file()

        def read_rows() -> HeldOut | None:
            return read_held_out(run, finetuning.tables[0]) if has_record else None

        return _existing_tables(finetuning.tables, find_layout(finetuning), read_rows)
    options = read_yaml(run / CONFIG)
    try:
        config = build(DistilConfig, options)
        teacher_run = read_finetuning(config.teacher) if config.teacher else None
        tables = choose_tables(config, teacher_run)
        layout = find_layout(merge_table_options(config, teacher_run))
    except BrimfulError as error:
        if "logits" in options:  # an option of distil: a run of pretrain has no tables to warn about
            warn(f"the tables of {run} are not used: {str(error).partition(': ')[0]}")
        names = {field.name for field in fields(LabelOptions)}
        labels = {name: value for name, value in options.items() if name in names}
        return RunTables(layout=find_layout(build(LabelOptions, labels)))
    return _existing_tables(tables, layout, lambda: find_held_out(config, teacher_run, tables))


def _existing_tables(
    tables: TablePaths, layout: FileLayout, read_rows: Callable[[], HeldOut | None]
) -> RunTables:
    """The tables whose files still exist, with the rows that are held out of the first."""
    train, dev, test = (_existing_path(path) for path in tables)
    if train is None:
        return RunTables(dev=dev, test=test, layout=layout)
    try:
        held_out = read_rows()
    except BrimfulError as error:
        warn(f"the rows of {train} that were held out are not known, so it is left out: {error}")
        return RunTables(dev=dev, test=test, layout=layout)
    return RunTables(train, dev, test, held_out.parts if held_out else {}, layout)


def _existing_path(path: str | None) -> Path | None:
    try:
        if path and files_of_table(path)[0].is_file():
            return Path(path)
    except BrimfulError:  # no file matches any more
        pass
    return None


def read_finetuning(run: Path | str) -> FinetuneConfig | None:
    """Read the configuration of a run of `brimful finetune`: students and exports use its tables and encoder.

    Returns:
        None for another folder, and, with a warning, for a run of another version of Brimful.
    """
    try:
        options = read_yaml(Path(run) / CONFIG)
    except BrimfulError:
        return None
    if not (options.get("encoder") and options.get("train")):  # a run of another verb
        return None
    try:
        return build(FinetuneConfig, options)
    except BrimfulError as error:
        problem = str(error).partition(": ")[0]
        warn(
            f"{run} was written by another version of Brimful: {problem}: its tables and metric are not used;"
            " give students its layout and columns"
        )
        return None
