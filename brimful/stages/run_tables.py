"""The tables that a run of finetune or distil has read, and the rows that it holds out of its training table,
for whoever goes on with its model."""

import hashlib
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, TypedDict

import numpy as np

from brimful.base.config import build, read_yaml
from brimful.base.console import warn
from brimful.base.errors import BrimfulError, UsageError
from brimful.base.storage import crc32, read_object, require_shape, write_json
from brimful.hf.model_folder import ModelFolder
from brimful.runs.directory import CONFIG, SUMMARY, absolute, named_files
from brimful.stages.distil_options import DistilConfig
from brimful.stages.task_options import FinetuneConfig, read_finetuning
from brimful.tables.layouts import FileLayout, LabelOptions, TableOptions, find_layout
from brimful.tables.text_files import files_of_table
from brimful.tasks.cached_tables import RunTables
from brimful.tasks.task_data import TaskData

HELD_OUT_FILE = "held_out_rows.json"
Tables = tuple[str, str | None, str | None]
"""Paths of train, and of dev and test where they are tables of their own."""


class _Record(TypedDict):
    table: str
    crc32: int
    test: list[int] | None
    dev: list[int] | None
    dev_in_train: bool


@dataclass(frozen=True)
class HeldOut:
    """Rows of the training table that are test or dev.

    Attributes:
        parts: the rows of each part, from 0: int64, ascending; without a part that is a table of its own.
        dev_in_train: whether the final training reads the rows of dev too.
    """

    parts: dict[str, np.ndarray]
    dev_in_train: bool

    @classmethod
    def of(cls, config: FinetuneConfig, data: TaskData) -> "HeldOut":
        """What a run holds out."""
        parts = {}
        if config.test is None and data.test.table.rows is not None:
            parts["test"] = data.test.table.rows
        if config.dev_table is None and data.dev is not None and data.dev.table.rows is not None:
            parts["dev"] = data.dev.table.rows
        return cls(parts, data.fit is not data.train)

    def __bool__(self) -> bool:
        return bool(self.parts)

    @property
    def counts(self) -> dict[str, int]:
        """How many rows each part has."""
        return {name: len(rows) for name, rows in self.parts.items()}

    @property
    def key(self) -> str:
        """A hash of the rows."""
        digest = hashlib.sha256()
        for name, rows in self.parts.items():
            digest.update(name.encode())
            digest.update(np.ascontiguousarray(rows, dtype="<i8").data)
        return digest.hexdigest()

    def write(self, run: Path, table: str) -> None:
        """Write `HELD_OUT_FILE`, whose rows count from 1."""
        record = {"table": table, "crc32": _crc32(table), "test": None, "dev": None}
        rows = {name: (part + 1).tolist() for name, part in self.parts.items()}
        write_json(run / HELD_OUT_FILE, record | rows | {"dev_in_train": self.dev_in_train})


def _crc32(table: str) -> int:
    """The CRC of a table, or of the CRCs of its files."""
    numbers = [crc32(file) for file in files_of_table(table)]
    return numbers[0] if len(numbers) == 1 else zlib.crc32(repr(numbers).encode())


def read_held_out(run: Path, table: str) -> HeldOut:
    """What a run has held out of its training table.

    Raises:
        BrimfulError: it does not say that, or the table is not what the run has read.
    """
    remedy = "give --train and --test"
    record: dict[str, Any] = read_object(run / HELD_OUT_FILE)
    require_shape(record, _Record, run / HELD_OUT_FILE, remedy)
    try:
        same = _crc32(table) == record["crc32"]
    except OSError as error:
        raise BrimfulError(f"cannot read {table}: {error.strerror or error}; {remedy}") from error
    if not same:
        raise BrimfulError(
            f"{table} is not what {run} was trained on, so the rows held out are not known: put it back as it"
            f" was, or {remedy}"
        )
    parts = {}
    for name in ("test", "dev"):
        if record[name] is not None:
            parts[name] = np.array(record[name], dtype=np.int64) - 1
    return HeldOut(parts, record["dev_in_train"])


def table_options(config: DistilConfig, origin: FinetuneConfig | None) -> TableOptions:
    """How the tables are read: as the options say, each of them, else as those of the teacher's run."""
    options = {}
    for field in fields(TableOptions):
        value = getattr(config, field.name)
        if origin is not None and value == getattr(DistilConfig, field.name):
            value = getattr(origin, field.name)
        options[field.name] = value
    return TableOptions(**options)


def tables_of(config: DistilConfig, origin: FinetuneConfig | None) -> Tables:
    """The tables that are given, else those of the teacher's run.

    Raises:
        UsageError: there are none, or test rows may be in train.
    """
    of_run: Sequence[str | None] = origin.tables if origin else (None, None, None)
    train, test = config.train or of_run[0], config.test or of_run[2]
    dev = config.dev or (None if config.train else of_run[1])
    if train is not None and test is not None:
        return train, dev, test
    if train is not None and origin is not None:
        if absolute(train) == origin.train:
            return absolute(train), dev, None
        raise UsageError(
            f"{config.teacher} has held its test rows out of {origin.train}, and {train} may hold them or"
            " copies of them: give --test too"
        )
    raise UsageError(
        f"{config.teacher} is not a run of `brimful finetune` of this version, so its tables are not known:"
        " give --train and --test"
    )


def held_out_of(config: DistilConfig, origin: FinetuneConfig | None, tables: Tables) -> HeldOut | None:
    """The rows that the teacher's run has held out, where its tables are used again.

    Raises:
        BrimfulError: they are not known any more.
    """
    if origin is None or (tables[2] and (config.train or config.test)):
        return None
    assert config.teacher is not None
    run = Path(config.teacher)
    if tables[2] is not None and not (run / HELD_OUT_FILE).is_file():
        return None
    return read_held_out(run, tables[0])


def tables_of_run(model: ModelFolder) -> RunTables:
    """The tables of a finished run of finetune, or of distil: its teacher's where it was given none.

    Rows that a run held out of its training table are test or dev as well. Where they are not known any more,
    that table is left out, with a warning. Of runs of other versions the layout alone is known.
    """
    run = model.path.parent
    if not (run / SUMMARY).is_file() or not (run / CONFIG).is_file():
        return RunTables()
    if (own := read_finetuning(run)) is not None:
        layout = find_layout(own)
        known = own.test is not None and not (run / HELD_OUT_FILE).is_file()
        return _found(own.tables, layout, lambda: None if known else read_held_out(run, own.tables[0]))
    options = read_yaml(run / CONFIG)
    try:
        config = build(DistilConfig, options)
        origin = read_finetuning(config.teacher) if config.teacher else None
        tables = tables_of(config, origin)
        layout = find_layout(table_options(config, origin))
    except BrimfulError as error:
        if "logits" in options:  # of distil: a run of pretrain has no such tables
            warn(f"the tables of {run} are not used: {str(error).partition(': ')[0]}")
        return RunTables(layout=_layout_of(options))
    return _found(tables, layout, lambda: held_out_of(config, origin, tables))


def _found(tables: Tables, layout: FileLayout, held_out: Callable[[], HeldOut | None]) -> RunTables:
    """Those that are still there."""
    train, dev, test = (_present(path) for path in tables)
    try:
        found = None if train is None else held_out()
    except BrimfulError as error:
        warn(f"the rows of {train} that were held out are not known, so it is left out: {error}")
        return RunTables(dev=dev, test=test, layout=layout)
    return RunTables(train, dev, test, found.parts if found else {}, layout)


def _present(path: str | None) -> Path | None:
    try:
        return Path(path) if path and files_of_table(path)[0].is_file() else None
    except BrimfulError:  # no file matches any more
        return None


def _layout_of(options: Mapping[str, Any]) -> FileLayout:
    """The layout that any options name."""
    names = [field.name for field in fields(LabelOptions)]
    return find_layout(build(LabelOptions, {name: options[name] for name in names if name in options}))


def named_tables(**tables: str | Sequence[str] | None) -> dict[str, Path]:
    """The files of the tables that options name, as `named_files`."""
    files: dict[str, str | Sequence[str] | None] = {}
    for name, value in tables.items():
        if value is None:
            continue
        several: list[str] = []
        for path in [value] if isinstance(value, str) else value:
            several += map(str, files_of_table(path))
        files[name] = several[0] if isinstance(value, str) and len(several) == 1 else several
    return named_files(**files)
