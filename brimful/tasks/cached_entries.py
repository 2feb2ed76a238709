"""What is made once and kept: parsed and encoded files, teachers' outputs, groups of alike rows.

An entry is a folder of an Arrow file, which is memory-mapped, and a commit record, written last. It has named
columns, which are written a few rows at a time, so what they hold need not fit in memory. It is named by a
hash of all that decides it, this package's code included, so none is ever out of date. The main rank writes
entries, and all ranks of a machine map the same pages.
"""

import hashlib
import mmap
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from inspect import getfile
from pathlib import Path
from typing import Any, TypedDict

import msgspec
import numpy as np
import pyarrow
import tokenizers

from brimful.base.cache import RECORD, VARIABLE, cache_folder, remove_oldest, touch_entry
from brimful.base.compiled import sources_of
from brimful.base.config import config_hash
from brimful.base.console import record_warnings, warn
from brimful.base.distributed import SINGLE_RANK, World
from brimful.base.errors import BrimfulError
from brimful.base.storage import atomic_directory, commit, find_commit
from brimful.data.ragged import Ragged
from brimful.tables.table import Column, Table
from brimful.tasks.encoded_tables import Encoded
from brimful.tasks.row_groups import group_alike_rows

PACKAGE = Path(__file__).parent.parent
COLUMNS = "columns.arrow"
_PATH = "{path}"
"""Stands for the file in the warnings of an entry: a file of another name may have the same content."""

Facts = dict[str, Any]
"""What else there is to know of an entry, as JSON."""
Rows = Mapping[str, np.ndarray | Ragged | Column]
"""Columns of n rows: numbers (n,) or (n, C), an array of numbers in each row, or a text or JSON in each."""
MakeRows = Callable[[Facts], Iterator[Rows]]
"""Makes an entry, some rows at a time, and puts its facts into the given dictionary."""


class _EntryRecord(TypedDict):
    facts: Facts


@dataclass(frozen=True)
class Entry:
    """Columns by name, and facts."""

    columns: Mapping[str, Any]
    facts: Mapping[str, Any]

    @classmethod
    def of(cls, table: pyarrow.Table, facts: Facts) -> "Entry":
        return cls({name: _from_arrow(table[name]) for name in table.column_names}, facts)


@cache
def hash_code(*files: str) -> str:
    """A hash of source files, of all modules of the package that they import, directly or not, and of the
    fast forms, which compute what the modules of `model` say."""
    digest = hashlib.sha256(f"{tokenizers.__version__} {version('torch')}".encode())
    roots = [*map(Path, files), PACKAGE / "kernels/inference_forms.py"]
    for source in sorted(set().union(*map(sources_of, roots))):
        digest.update(source.read_bytes())
    return digest.hexdigest()


def cache_outputs(
    decides: Facts, data: Encoded, compute: Callable[[], np.ndarray | Ragged], ranks: World
) -> np.ndarray | Ragged:
    """What a model says of examples, out of the cache if it is there, mapped. Every rank calls this.

    Args:
        decides: what decides it, beside the examples and this package's code.
        compute: float32 (n, C), or of each token (tokens, C). The main rank calls it.
    """
    key = {"outputs": decides, "texts": hash_content(data), "code": hash_code(getfile(compute))}
    once = cache(compute)  # what the disk refuses need not be computed again
    made = get_entry(key, lambda facts: iter([{"outputs": once()}]), ranks, "a teacher's outputs", "")
    return made.columns["outputs"]


def cache_groups(table: Table, ranks: World = SINGLE_RANK) -> np.ndarray:
    """Group alike rows, from the cache if they are there, with the warnings. Every rank calls this."""

    def make_rows(facts: Facts) -> Iterator[Rows]:
        yield {"groups": group_alike_rows(table)}

    content = hashlib.sha256(table.fingerprints.data).hexdigest()
    key = {"alike": content, "table": type(table).__name__, "code": hash_code(getfile(group_alike_rows))}
    return get_entry(key, make_rows, ranks, "which rows are alike", table.path).columns["groups"]


def get_entry(key: Facts, make_rows: MakeRows, ranks: World, what: str, path: Path | str) -> Entry:
    """What `make_rows` makes, out of the cache if it is there, else kept there and mapped, or in memory where
    it cannot be kept. All ranks call this; the main one keeps it, repeats its warnings, and if it fails, the
    others do not wait.

    Args:
        key: all that decides it, code included.
        what: it is, for the warning that it cannot be kept.
        path: of the file that it is made of, which warnings name.
    """
    is_there = 0
    folder: Path | None = None
    place: Path | None = None
    problem: Exception | None = None
    entry: Entry | None = None
    try:
        folder = cache_folder()
        place = folder / config_hash(key) if folder else None
        if place and ranks.is_main and _read(place, verify=True) is None:
            _write(place, _with_warnings(make_rows, path))
        is_there = int(place is not None)
    except (BrimfulError, OSError) as error:
        problem = error
    finally:
        is_there = ranks.least(is_there)
    if is_there and place:
        entry = _read(place)
    if entry is None:
        facts: Facts = {}
        rows = [_record_batch(some) for some in _with_warnings(make_rows, path)(facts)]
        entry = Entry.of(pyarrow.Table.from_batches(rows), facts)  # what is not the disk's fault comes again
        if problem is not None:
            reason = str(problem).replace(str(place), str(folder))
            warn(f"{what} are not kept ({reason}); {VARIABLE}=off does without")
    if ranks.is_main:
        for line in entry.facts["warnings"]:
            warn(line.replace(_PATH, str(path)))
    return entry


def _with_warnings(make_rows: MakeRows, path: Path | str) -> MakeRows:
    """The same, with the warnings among the facts."""

    def make(facts: Facts) -> Iterator[Rows]:
        slices, lines = make_rows(facts), dict[str, None]()
        while True:
            with record_warnings() as of_slice:  # not while rows are written, which may fail
                rows = next(slices, None)
            lines |= dict.fromkeys(line.replace(str(path), _PATH) if path else line for line in of_slice)
            if rows is None:
                break
            yield rows
        facts["warnings"] = list(lines)

    return make


def _write(folder: Path, make_rows: MakeRows) -> None:
    """Write an entry; a folder of that name is replaced. Then the entries beside it that were not used for
    longest go, until all have `MAX_CACHE_BYTES` at most.

    Raises:
        BrimfulError, OSError: it cannot be written.
    """
    facts: Facts = {}
    with atomic_directory(folder) as temporary:
        file = temporary / COLUMNS
        batches = (_record_batch(rows) for rows in make_rows(facts))
        first = next(batches)
        with open(file, "wb") as sink, pyarrow.ipc.new_file(sink, first.schema) as writer:
            writer.write(first)
            for batch in batches:
                writer.write(batch)
        commit(temporary / RECORD, [file], facts=facts)
    remove_oldest(folder.parent)


def _read(folder: Path, *, verify: bool = False) -> Entry | None:
    """The entry in a folder, mapped; None if it is absent, unfinished or damaged.

    Args:
        verify: compare the CRC of the file; otherwise only its size.
    """
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
    return Entry.of(table, record["facts"])


def _record_batch(rows: Rows) -> pyarrow.RecordBatch:
    return pyarrow.record_batch({name: _to_arrow(values) for name, values in rows.items()})


def _to_arrow(values: np.ndarray | Ragged | Column) -> pyarrow.Array:
    if isinstance(values, Column):
        return values.values.combine_chunks()
    if isinstance(values, Ragged):
        offsets = np.concatenate([[0], np.cumsum(values.lengths)])
        return pyarrow.LargeListArray.from_arrays(offsets, _to_arrow(values.values))
    flat = pyarrow.array(np.ascontiguousarray(values).reshape(-1))
    if values.ndim == 1:
        return flat
    return pyarrow.FixedSizeListArray.from_arrays(flat, values.shape[1])


def _from_arrow(column: pyarrow.ChunkedArray) -> np.ndarray | Ragged | Column:
    """Views of the file, but for numbers that were written some rows at a time: they are put together."""
    if pyarrow.types.is_large_string(column.type):
        return Column(column)
    if pyarrow.types.is_large_list(column.type):
        chunks = [Ragged.divided(_numbers(chunk.values), chunk.offsets.to_numpy()) for chunk in column.chunks]
        return Ragged.chain(chunks)
    numbers = [_numbers(chunk) for chunk in column.chunks]
    return numbers[0] if len(numbers) == 1 else np.concatenate(numbers)


def _numbers(array: pyarrow.Array) -> np.ndarray:
    if pyarrow.types.is_fixed_size_list(array.type):
        return array.flatten().to_numpy().reshape(-1, array.type.list_size)
    return array.to_numpy()


def hash_content(data: Encoded) -> str:
    """A hash of a table's name, texts, labels and tokens."""
    head = f"{data.table.path}\n{data.examples.max_length}"
    digest = hashlib.sha256(head.encode("utf-8", "surrogateescape"))
    digest.update(data.table.fingerprints.data)
    for label in data.table.labels or ():
        digest.update(msgspec.json.encode(label) + b"\n")
    for ids in data.examples.tokens:
        digest.update(ids.data)
    return digest.hexdigest()
