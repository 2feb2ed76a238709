"""The files of a task, parsed and encoded once: tables and examples are mapped from the cache.

An entry is named by a hash of the file's bytes and of all that decides the result: the task and its labels,
the layout, the tokenizer, the lengths, and this package's code.
"""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import partial
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
    """What the run of a model has read.

    Attributes:
        train, dev, test: tables that are still there.
        held_out: of parts that are rows of train, the rows, int64, from 0.
        layout: of the tables.
    """

    train: Path | None = None
    dev: Path | None = None
    test: Path | None = None
    held_out: Mapping[str, np.ndarray] = field(default_factory=dict)
    layout: FileLayout = OWN_LAYOUT


@dataclass(frozen=True)
class TaskFiles:
    """The files of a task, read with one layout. The main rank prints what there is to warn of.

    Attributes:
        labelled: whether rows have labels.
    """

    kind: type[Task]
    layout: FileLayout = OWN_LAYOUT
    ranks: World = SINGLE_RANK
    labelled: bool = True
    _tables: dict[Path, tuple[Table, Facts]] = field(default_factory=dict)

    def read(self, path: Path | str) -> Table:
        """A table.

        Raises:
            BrimfulError: as `read_file`.
        """
        path = Path(path)
        if path not in self._tables:
            key = self._key(path)
            entry = self._kept(key, path, lambda facts: map(partial(_table_rows, facts), self._slices(path)))
            self._tables[path] = (_table_of(entry, path), key)
        return self._tables[path][0]

    def encode(
        self, task: Task, path: Path | str, tokenizer: Tokenizer, max_length: int, overlap: int | None
    ) -> Encoded:
        """The examples of a table.

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

        return Encoded(table, _examples_of(self._kept(key, Path(path), make_rows)))

    def _slices(self, path: Path) -> Iterator[Table]:
        """The table in a file, in the slices that its task can read."""

        files = files_of_table(path)
        layout = layout_of_files(files, self.layout) if self.labelled else self.layout

        def read(file: Path, take: Take) -> Table:
            return read_file(self.kind, file, labelled=self.labelled, layout=layout, take=take)

        if self.labelled and not self.kind.by_row:
            return (read(file, take_all) for file in files)
        return read_files(read, files)

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

    def _kept(self, key: Facts, path: Path, make_rows: MakeRows) -> Entry:
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
    for each in fields(part):
        value = getattr(part, each.name)
        if value is None or each.name in ("path", "files"):
            continue
        is_text_or_json = each.name != "lines"
        rows[each.name] = Column.of(value, _type_of(type(part), each.name)) if is_text_or_json else value
    return rows


def _table_of(entry: Entry, path: Path) -> Table:
    """The table of `_table_rows`, whose columns are decoded when they are read."""
    kind = next(one for one in _table_types(Table) if one.__name__ == entry.facts["type"])
    columns: dict[str, Any] = {"second": None, "labels": None}
    for name, values in entry.columns.items():
        is_column = isinstance(values, Column)
        columns[name] = replace(values, type=_type_of(kind, name)) if is_column else values
    fingerprints = columns.pop("fingerprints")
    names = map(str, files_of_table(path))
    files = tuple(zip(entry.facts["files"], names, strict=False)) if len(entry.facts["files"]) > 1 else ()
    table = kind(path=path, files=files, **columns)
    table.__dict__["fingerprints"] = fingerprints  # in place of computing them of all texts
    return table


def _example_rows(facts: Facts, part: Examples) -> Rows:
    """Examples of a table, or of its next rows, for an entry."""
    before = facts.get("texts", 0)
    facts["texts"] = before + len(part.first_of_text)
    facts["windows"] = facts.get("windows", False) or part.texts is not None
    facts["cut"] = facts.get("cut", 0) + part.cut
    facts |= {name: getattr(part, name) for name in ("max_length", "pad", "overlap")}
    rows: dict[str, Any] = {
        "texts": part.text_of_example + before,
        "tokens": as_ragged(part.tokens, np.int32),
        "segments": as_ragged(part.segments, np.uint8),
    }
    if part.characters is not None:
        rows["characters"] = part.characters
    return rows | {f"{_TARGET}{name}": target for name, target in part.targets.items()}


def _examples_of(entry: Entry) -> Examples:
    """The examples of `_example_rows`."""
    columns, facts = entry.columns, entry.facts
    targets = [name for name in columns if name.startswith(_TARGET)]
    return Examples(
        tokens=columns["tokens"],
        segments=columns["segments"],
        targets={name.removeprefix(_TARGET): columns[name] for name in targets},
        texts=columns["texts"] if facts["windows"] else None,
        characters=columns.get("characters"),
        **{name: facts[name] for name in ("max_length", "pad", "overlap", "cut")},
    )


def _type_of(table: type[Table], column: str) -> Any:
    """The type of the values of a column."""
    return str if column in _TEXT_COLUMNS else table.types.get(column, Any)


def _table_types(root: type[Table]) -> list[type[Table]]:
    """A type of tables, and all that derive from it."""
    return [root, *(each for child in root.__subclasses__() for each in _table_types(child))]
