"""A cache of tables, their examples, their groups of alike rows, and the outputs of teachers.

An entry is a folder with an Arrow file, which is memory-mapped, and a commit record, which is written last.
Its columns are written a few rows at a time, so they need not fit in memory. Its name is a hash of all that
decides its content, from the bytes of the files to the code of this package, so an entry is never out of
date. The main rank writes entries, and all ranks of a machine map the same pages.
"""

import hashlib
import mmap
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cache, partial
from importlib.metadata import version
from inspect import getfile
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple, TypedDict

import numpy as np
import pyarrow
import tokenizers
from numpy import ndarray
from tokenizers import Tokenizer

from brimful.base.cache import RECORD, VARIABLE, cache_folder, remove_oldest, touch_entry
from brimful.base.compiled import sources_of
from brimful.base.config import config_hash, to_dict
from brimful.base.console import record_warnings, warn
from brimful.base.distributed import SINGLE_RANK, World
from brimful.base.errors import BrimfulError
from brimful.base.storage import atomic_directory, commit, find_commit
from brimful.base.types import Values
from brimful.corpus.text.special_ids import truncation_side
from brimful.data.examples import TEXTS_AT_ONCE, Examples
from brimful.data.ragged import Ragged
from brimful.tables.layouts import OWN_LAYOUT, FileLayout
from brimful.tables.table import Column, Table, Take, take_all
from brimful.tables.table_files import read_file, read_files
from brimful.tables.text_files import files_of_table
from brimful.tasks.encoded_tables import Encoded, encode
from brimful.tasks.prediction_form import Outputs
from brimful.tasks.row_groups import group_alike_rows
from brimful.tasks.task import Task

_TEXT_COLUMNS = ("texts", "second")
_TARGET = "targets."
CONTENT = "encoded task files"
PACKAGE = Path(__file__).parent.parent
COLUMNS = "columns.arrow"
_PATH = "{path}"
"""The place of the file's name in the warnings of an entry, since files of other names may be equal."""

Rows = Mapping[str, ndarray | Ragged | Column]
"""Columns of n rows by name: numbers (n,) or (n, C), ragged arrays of numbers, or texts or JSON."""
MakeRows = Callable[[Values], Iterator[Rows]]
"""Makes the rows of an entry, some at a time, and puts its facts into the given dictionary."""


class _EntryRecord(TypedDict):
    facts: Values


class Entry(NamedTuple):
    """Columns by name, and facts."""

    columns: Values
    facts: Values


@dataclass(frozen=True)
class RunTables:
    """The tables of the run that trained a model.

    Attributes:
        train, dev, test: paths of tables that still exist.
        held_out: the rows of train, int64 from 0, that are test or dev, by these names.
        layout: the layout of the tables.
    """

    train: Path | None = None
    dev: Path | None = None
    test: Path | None = None
    held_out: Mapping[str, ndarray] = field(default_factory=dict)
    layout: FileLayout = OWN_LAYOUT


@dataclass(frozen=True)
class TaskFiles:
    """The files of a task, all in one layout, with or without labels. The main rank prints warnings."""

    kind: type[Task]
    layout: FileLayout = OWN_LAYOUT
    ranks: World = SINGLE_RANK
    labelled: bool = True
    _tables: dict[Path, tuple[Table, Values]] = field(default_factory=dict)

    def read(self, path: Path | str) -> Table:
        """Read a table; raises as `read_file`."""
        return self._read(Path(path))[0]

    def _read(self, path: Path) -> tuple[Table, Values]:
        """Return the table in a file, and the key of its entry."""
        if path not in self._tables:
            key = self._key(path)
            entry = get_entry(key, partial(self._make_table_rows, path), self.ranks, CONTENT, path)
            self._tables[path] = _unpack_table(entry, path), key
        return self._tables[path]

    def encode(
        self, task: Task, path: Path | str, tokenizer: Tokenizer, max_length: int, overlap: int | None
    ) -> Encoded:
        """Encode a table; raises as `read_file` and `Task.encode`."""
        table, key = self._read(Path(path))
        key = key | {
            "labels": task.labels,
            "max_length": max_length,
            "overlap": overlap,
            "tokenizer": hashlib.sha256(tokenizer.to_str().encode()).hexdigest(),
            "side": truncation_side(tokenizer),
        }

        def make_rows(facts: Values) -> Iterator[Rows]:
            if not task.by_row:
                data = task.encode(table, tokenizer, max_length, overlap, labelled=self.labelled)
                yield _pack_examples(facts, data.examples)
                return
            # All targets at once: a wrong label in a late row is refused before anything is encoded.
            targets = task.targets(table) if self.labelled else {}
            for start in range(0, max(len(table), 1), TEXTS_AT_ONCE):
                rows = np.arange(start, min(start + TEXTS_AT_ONCE, len(table)))
                slice_targets = {name: values[rows] for name, values in targets.items()}
                part = encode(table.take(rows), tokenizer, max_length, overlap=overlap, targets=slice_targets)
                yield _pack_examples(facts, part.examples)

        return Encoded(table, _unpack_examples(get_entry(key, make_rows, self.ranks, CONTENT, path)))

    def _make_table_rows(self, path: Path, facts: Values) -> Iterator[Rows]:
        """Yield the rows of the table in a file for an entry, in slices if the task can read them."""
        files = files_of_table(path)

        def read(file: Path, take: Take = take_all) -> Table:
            return read_file(self.kind, file, labelled=self.labelled, layout=self.layout, take=take)

        can_slice = self.kind.by_row or not self.labelled
        tables = read_files(read, files) if can_slice else map(read, files)
        columns: set[str] = set()
        for table in tables:
            rows = _pack_table(facts, table)
            columns = columns or set(rows)
            if columns != set(rows):
                others = f"other columns or another format than {files[0]}"
                raise BrimfulError(f"{table.path} has {others}: {path} is one table")
            yield rows

    def _key(self, path: Path) -> Values:
        """Return all that decides the table in a file."""
        digests = []
        for each in files_of_table(path):
            try:
                with open(each, "rb") as file:
                    digests.append(hashlib.file_digest(file, "sha256").hexdigest())
            except OSError:  # `read_file` reports it
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


def _pack_table(facts: Values, part: Table) -> Rows:
    """Return the rows of a table, or of its next slice, for an entry."""
    facts["type"] = type(part).__name__
    first = facts.get("rows", 0)
    facts["rows"] = first + len(part)
    if facts.get("last_file") != str(part.path):
        facts["last_file"] = str(part.path)
        facts.setdefault("files", []).append(first)
    rows: Values = {"fingerprints": part.fingerprints}
    for column in fields(part):
        name, value = column.name, getattr(part, column.name)
        if name == "lines" and value is not None:  # numbers; other columns are texts or JSON
            rows[name] = value
        elif name not in ("path", "files") and value is not None:
            rows[name] = Column.of(value, _find_type(type(part), name))
    return rows


def _unpack_table(entry: Entry, path: Path) -> Table:
    """Return the table of `_pack_table`, whose columns are decoded when they are read."""
    kind = _find_table_type(entry.facts["type"])
    columns: Values = {"second": None, "labels": None} | entry.columns
    for name, values in columns.items():
        if isinstance(values, Column):
            columns[name] = replace(values, type=_find_type(kind, name))
    fingerprints = columns.pop("fingerprints")
    files = tuple(zip(entry.facts["files"], map(str, files_of_table(path)), strict=False))
    if len(files) == 1:  # `path` names it
        files = ()
    table = kind(path=path, files=files, **columns)
    table.__dict__["fingerprints"] = fingerprints  # in place of computing them of all texts
    return table


def _pack_examples(facts: Values, part: Examples) -> Rows:
    """Return the examples of a table, or of its next rows, for an entry."""
    before = facts.get("texts", 0)
    facts["texts"] = before + len(part.first_of_text)
    facts["windows"] = facts.get("windows", False) or part.texts is not None
    facts["cut"] = facts.get("cut", 0) + part.cut
    facts |= {"max_length": part.max_length, "pad": part.pad, "overlap": part.overlap}
    rows: Values = {
        "texts": part.text_of_example + before,
        "tokens": Ragged.of(part.tokens, np.int32),
        "segments": Ragged.of(part.segments, np.uint8),
    }
    if part.characters is not None:
        rows["characters"] = part.characters
    for name, target in part.targets.items():
        rows[_TARGET + name] = target
    return rows


def _unpack_examples(entry: Entry) -> Examples:
    """Return the examples of `_pack_examples`."""
    (columns, facts), targets = entry, {}
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
    """Return the type of the values of a column."""
    return str if column in _TEXT_COLUMNS else table.types.get(column, Any)


def _find_table_type(name: str) -> type[Table]:
    """Return the type of tables of that name: `Table` or a subclass."""
    types: list[type[Table]] = [Table]
    for kind in types:
        types += kind.__subclasses__()  # which the loop then reaches
    return next(kind for kind in types if kind.__name__ == name)


@cache
def hash_code(*files: str) -> str:
    """Hash source files, all modules that they import, directly or not, and the fast forms of `model`."""
    digest = hashlib.sha256(f"{tokenizers.__version__} {version('torch')}".encode())
    sources = set[Path]()
    for file in [*map(Path, files), PACKAGE / "kernels/forms.py"]:
        sources.update(sources_of(file))
    for source in sorted(sources):
        digest.update(source.read_bytes())
    return digest.hexdigest()


def cache_groups(table: Table, ranks: World) -> ndarray:
    """Return the groups of alike rows, from the cache if it has them, and warn as `group_alike_rows`. Every
    rank calls this."""
    content = hashlib.sha256(table.fingerprints.data).hexdigest()
    key = {"groups": content, "table": type(table).__name__, "code": hash_code(getfile(group_alike_rows))}
    return cache_column(key, partial(group_alike_rows, table), ranks, "which rows are alike", table.path)


def cache_column(
    key: Values, compute: Callable[[], Outputs], ranks: World, what: str, path: Path | str
) -> Any:
    """Return the only column of an entry; arguments as for `get_entry`."""
    compute_once = cache(compute)  # the same values serve in memory if the disk refuses them

    def make_rows(facts: Values) -> Iterator[Rows]:
        yield {"values": compute_once()}

    return get_entry(key, make_rows, ranks, what, path).columns["values"]


def get_entry(key: Values, make_rows: MakeRows, ranks: World, what: str, path: Path | str) -> Entry:
    """Return an entry from the cache, or make it and keep it there; in memory, if it cannot be kept.

    All ranks call this. The main rank writes the entry and prints its warnings. If it fails, the other ranks
    do not wait for it.

    Args:
        key: all that decides the entry, with its code.
        what: the content of the entry, for the warning that it cannot be kept.
        path: the file of the content, for warnings.
    """
    is_kept = 0
    folder = place = problem = entry = None
    try:
        folder = cache_folder()
        place = folder / config_hash(key) if folder else None
        if place and ranks.is_main and _read(place, verify=True) is None:
            _write(place, _record_warnings(make_rows, path))
        is_kept = int(place is not None)
    except (BrimfulError, OSError) as error:
        problem = error
    finally:  # also after any other exception, since the other ranks wait here
        is_kept = ranks.least(is_kept)
    if is_kept and place:
        entry = _read(place)
    if entry is None:
        facts: Values = {}
        batches = map(_record_batch, _record_warnings(make_rows, path)(facts))
        # An exception that the disk did not cause comes again here.
        entry = _make_entry(pyarrow.Table.from_batches(list(batches)), facts)
        if problem is not None:
            reason = str(problem).replace(str(place), str(folder))
            warn(f"{what} are not kept ({reason}); {VARIABLE}=off does without")
    if ranks.is_main:
        for line in entry.facts["warnings"]:
            warn(line.replace(_PATH, str(path)))
    return entry


def _record_warnings(make_rows: MakeRows, path: Path | str) -> MakeRows:
    """Return a function that yields the same rows, and puts the warnings about them into the facts."""

    def make(facts: Values) -> Iterator[Rows]:
        slices, warnings = make_rows(facts), dict[str, None]()
        while True:
            # Only while rows are made: a warning about the disk is not one about the file.
            with record_warnings() as lines:
                rows = next(slices, None)
            for line in lines:
                warnings[line.replace(str(path), _PATH) if path else line] = None
            if rows is None:
                break
            yield rows
        facts["warnings"] = list(warnings)

    return make


def _write(folder: Path, make_rows: MakeRows) -> None:
    """Write an entry, replace a folder of the same name, and remove the oldest of too many entries."""
    facts: Values = {}
    with atomic_directory(folder) as temporary:
        file = temporary / COLUMNS
        batches = map(_record_batch, make_rows(facts))
        first = next(batches)
        with open(file, "wb") as sink, pyarrow.ipc.new_file(sink, first.schema) as writer:
            for batch in chain([first], batches):
                writer.write(batch)
        commit(temporary / RECORD, [file], facts=facts)
    remove_oldest(folder.parent)


def _read(folder: Path, *, verify: bool = False) -> Entry | None:
    """Map the entry in a folder; None if it is absent, unfinished or damaged (`verify`: by its CRC)."""
    record = find_commit(folder / RECORD, _EntryRecord, verify=verify)
    if record is None:
        return None
    try:
        with open(folder / COLUMNS, "rb") as file:
            content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        table = pyarrow.ipc.open_file(pyarrow.py_buffer(content)).read_all()
        touch_entry(folder)
    except (OSError, ValueError):
        return None
    return _make_entry(table, record["facts"])


def _make_entry(table: pyarrow.Table, facts: Values) -> Entry:
    return Entry({name: _from_arrow(table[name]) for name in table.column_names}, facts)


def _record_batch(rows: Rows) -> pyarrow.RecordBatch:
    return pyarrow.record_batch(list(map(_to_arrow, rows.values())), names=list(rows))


def _to_arrow(values: ndarray | Ragged | Column) -> pyarrow.Array:
    if isinstance(values, Column):
        return values.values.combine_chunks()
    if isinstance(values, Ragged):
        offsets = np.concatenate([[0], np.cumsum(values.lengths)])
        return pyarrow.LargeListArray.from_arrays(offsets, _to_arrow(values.values))
    flat = pyarrow.array(np.ascontiguousarray(values).reshape(-1))
    if values.ndim == 1:
        return flat
    return pyarrow.FixedSizeListArray.from_arrays(flat, values.shape[1])


def _from_arrow(column: pyarrow.ChunkedArray) -> ndarray | Ragged | Column:
    """Return views of the file. Numbers that were written some rows at a time are copied into one array."""
    if pyarrow.types.is_large_string(column.type):
        return Column(column)
    if pyarrow.types.is_large_list(column.type):
        parts = []
        for chunk in column.chunks:
            parts.append(Ragged.split(_to_numbers(chunk.values), chunk.offsets.to_numpy()))
        return Ragged.chain(parts)
    numbers = list(map(_to_numbers, column.chunks))
    return numbers[0] if len(numbers) == 1 else np.concatenate(numbers)


def _to_numbers(array: pyarrow.Array) -> ndarray:
    if pyarrow.types.is_fixed_size_list(array.type):
        return array.flatten().to_numpy().reshape(-1, array.type.list_size)
    return array.to_numpy()
