"""The files of a task, parsed and encoded once: tables and examples are mapped from the cache.

The name of an entry is a hash of the file's bytes and of all that decides the result: the task and its
labels, the layout, the tokenizer, the lengths, and this package's code.
"""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from inspect import getfile
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from brimful.base.config import to_dict
from brimful.base.distributed import SINGLE_RANK, World
from brimful.corpus.text.special_ids import truncation_side
from brimful.data.examples import Examples, as_ragged
from brimful.tables.annotations import layout_of_files
from brimful.tables.layouts import OWN_LAYOUT, FileLayout
from brimful.tables.table import Column, Table, Take, take_all
from brimful.tables.table_files import read_file, read_files
from brimful.tables.text_files import files_of_table
from brimful.tasks.cached_entries import Entry, Facts, MakeRows, Rows, get_entry, hash_code
from brimful.tasks.encoded_tables import Encoded
from brimful.tasks.task import Task

_TEXT_COLUMNS = ("texts", "second")
_TARGET = "targets."


@dataclass(frozen=True)
class RunTables:
    """The tables that the run of a model has read.

    Attributes:
        train, dev, test: tables that are still there.
        held_out: the rows of train, int64 from 0, that are another part, by the part's name.
        layout: the layout of the tables.
    """

    train: Path | None = None
    dev: Path | None = None
    test: Path | None = None
    held_out: Mapping[str, np.ndarray] = field(default_factory=dict)
    layout: FileLayout = OWN_LAYOUT


@dataclass(frozen=True)
class TaskFiles:
    """The files of a task, read with one layout. The main rank prints their warnings.

    Attributes:
        labelled: whether rows have labels.
    """

    kind: type[Task]
    layout: FileLayout = OWN_LAYOUT
    ranks: World = SINGLE_RANK
    labelled: bool = True
    _tables: dict[Path, tuple[Table, Facts]] = field(default_factory=dict)

    def read(self, path: Path | str) -> Table:
        """Read a table.

        Raises:
            BrimfulError: as `read_file`.
        """
        path = Path(path)
        if path not in self._tables:
            key = self._key(path)
            entry = self._get_entry(key, path, lambda facts: self._make_table_rows(path, facts))
            self._tables[path] = (_table_of(entry, path), key)
        return self._tables[path][0]

    def encode(
        self, task: Task, path: Path | str, tokenizer: Tokenizer, max_length: int, overlap: int | None
    ) -> Encoded:
        """Encode a table.

        Raises:
            BrimfulError: as `read_file` and `Task.encode`.
        """
        table = self.read(path)
        key = self._tables[Path(path)][1] | {
            "labels": task.labels,
            "max_length": max_length,
            "overlap": overlap,
            "tokenizer": hashlib.sha256(tokenizer.to_str().encode()).hexdigest(),
            "side": truncation_side(tokenizer),
        }

        def make_rows(facts: Facts) -> Iterator[Rows]:
            labelled = self.labelled
            for part in task.encode_slices(table, tokenizer, max_length, overlap, labelled=labelled):
                yield _example_rows(facts, part)

        return Encoded(table, _examples_of(self._get_entry(key, Path(path), make_rows)))

    def _make_table_rows(self, path: Path, facts: Facts) -> Iterator[Rows]:
        """The table in a file for an entry, in the slices that its task can read."""
        files = files_of_table(path)
        layout = layout_of_files(files, self.layout) if self.labelled else self.layout

        def read(file: Path, take: Take) -> Table:
            return read_file(self.kind, file, labelled=self.labelled, layout=layout, take=take)

        if self.kind.by_row or not self.labelled:
            tables = read_files(read, files)
        else:
            tables = (read(file, take_all) for file in files)
        for table in tables:
            yield _table_rows(facts, table)

    def _key(self, path: Path) -> Facts:
        """What decides the table in a file."""
        digests = []
        for each in files_of_table(path):
            try:
                with open(each, "rb") as file:
                    digests.append(hashlib.file_digest(file, "sha256").hexdigest())
            except OSError:  # reading it will say so
                digests.append("unreadable")
        return {
            "files": digests,
            "suffix": path.suffix,
            "task": self.kind.name,
            "layout": self.layout.name,
            "columns": to_dict(self.layout.columns),
            "dialect": to_dict(self.layout.dialect),
            "offsets": self.layout.offsets,
            "labelled": self.labelled,
            "code": hash_code(__file__, getfile(self.kind)),
        }

    def _get_entry(self, key: Facts, path: Path, make_rows: MakeRows) -> Entry:
        return get_entry(key, make_rows, self.ranks, "encoded task files", path)


def _table_rows(facts: Facts, part: Table) -> Rows:
    """The rows of a table, or of the next slice of it, for an entry."""
    facts["type"] = type(part).__name__
    first = facts.get("rows", 0)
    facts["rows"] = first + len(part)
    if facts.get("last_file") != str(part.path):
        facts["last_file"] = str(part.path)
        facts.setdefault("files", []).append(first)
    rows: dict[str, Any] = {"fingerprints": part.fingerprints}
    for column in fields(part):
        name, value = column.name, getattr(part, column.name)
        if name == "lines" and value is not None:  # numbers; other columns are texts or JSON
            rows[name] = value
        elif name not in ("path", "files") and value is not None:
            rows[name] = Column.of(value, _find_type(type(part), name))
    return rows


def _table_of(entry: Entry, path: Path) -> Table:
    """The table of `_table_rows`, whose columns are decoded when they are read."""
    kind = _find_table_type(entry.facts["type"])
    columns: dict[str, Any] = {"second": None, "labels": None} | dict(entry.columns)
    for name, values in columns.items():
        if isinstance(values, Column):
            columns[name] = replace(values, type=_find_type(kind, name))
    fingerprints = columns.pop("fingerprints")
    first_rows = entry.facts["files"]
    files = tuple(zip(first_rows, map(str, files_of_table(path)), strict=False))
    table = kind(path=path, files=files if len(first_rows) > 1 else (), **columns)
    table.__dict__["fingerprints"] = fingerprints  # in place of computing them of all texts
    return table


def _example_rows(facts: Facts, part: Examples) -> Rows:
    """Examples of a table, or of its next rows, for an entry."""
    before = facts.get("texts", 0)
    facts["texts"] = before + len(part.first_of_text)
    facts["windows"] = facts.get("windows", False) or part.texts is not None
    facts["cut"] = facts.get("cut", 0) + part.cut
    facts |= {"max_length": part.max_length, "pad": part.pad, "overlap": part.overlap}
    rows: dict[str, Any] = {
        "texts": part.text_of_example + before,
        "tokens": as_ragged(part.tokens, np.int32),
        "segments": as_ragged(part.segments, np.uint8),
    }
    if part.characters is not None:
        rows["characters"] = part.characters
    for name, target in part.targets.items():
        rows[_TARGET + name] = target
    return rows


def _examples_of(entry: Entry) -> Examples:
    """The examples of `_example_rows`."""
    columns, facts, targets = entry.columns, entry.facts, {}
    for name, values in columns.items():
        if name.startswith(_TARGET):
            targets[name.removeprefix(_TARGET)] = values
    return Examples(
        tokens=columns["tokens"],
        segments=columns["segments"],
        targets=targets,
        max_length=facts["max_length"],
        pad=facts["pad"],
        texts=columns["texts"] if facts["windows"] else None,
        characters=columns.get("characters"),
        overlap=facts["overlap"],
        cut=facts["cut"],
    )


def _find_type(table: type[Table], column: str) -> Any:
    """The type of the values of a column."""
    return str if column in _TEXT_COLUMNS else table.types.get(column, Any)


def _find_table_type(name: str) -> type[Table]:
    """The type of tables of that name: `Table` or a class that derives from it."""
    types: list[type[Table]] = [Table]
    for kind in types:
        types += kind.__subclasses__()  # which the loop then reaches
    return next(kind for kind in types if kind.__name__ == name)
