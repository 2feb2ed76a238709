"""Entries of the cache: folders of an Arrow file, which is memory-mapped, and a commit record, written last.

An entry has named columns. They are written a few rows at a time, so what they hold need not fit in memory.
"""

import mmap
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

import numpy as np

from brimful.base.storage import atomic_directory, commit, find_commit, sweep
from brimful.data.ragged import Ragged
from brimful.tables.columns import Column

if TYPE_CHECKING:
    import pyarrow

RECORD = "entry.json"
COLUMNS = "columns.arrow"

Facts = dict[str, Any]
"""What else there is to know of an entry, as JSON."""
Rows = Mapping[str, np.ndarray | Ragged | Column]
"""Columns of n rows: numbers (n,) or (n, C), an array of numbers in each row, or a text or JSON in each."""
MakeRows = Callable[[Facts], Iterator[Rows]]
"""Makes an entry, some rows at a time, and puts its facts into the given dictionary."""


class _EntryRecord(TypedDict):
    facts: dict[str, Any]


@dataclass(frozen=True)
class Entry:
    """Columns by name, and facts."""

    columns: Mapping[str, Any]
    facts: Mapping[str, Any]

    @classmethod
    def in_memory(cls, make_rows: MakeRows) -> "Entry":
        """An entry that is not written."""
        import pyarrow

        facts: Facts = {}
        batches = [_record_batch(rows) for rows in make_rows(facts)]
        return cls(_columns(pyarrow.Table.from_batches(batches)), facts)


def write_entry(folder: Path, make_rows: MakeRows, max_bytes: int) -> None:
    """Write an entry; a folder of that name is replaced. Then the entries beside it that were not used for
    longest go, until all have `max_bytes` at most.

    Raises:
        BrimfulError, OSError: it cannot be written.
    """
    import pyarrow

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
    _remove_oldest(folder.parent, max_bytes)


def read_entry(folder: Path, *, verify: bool = False) -> Entry | None:
    """The entry in a folder, mapped; None if it is absent, unfinished or damaged.

    Args:
        verify: compare the CRC of the file; otherwise only its size.
    """
    import pyarrow

    record = find_commit(folder / RECORD, _EntryRecord, verify=verify)
    if record is None:
        return None
    try:
        with open(folder / COLUMNS, "rb") as file:
            content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        columns = _columns(pyarrow.ipc.open_file(pyarrow.py_buffer(content)).read_all())
        with suppress(OSError):
            os.utime(folder / RECORD)  # entries that are used last are removed last
    except (OSError, ValueError):
        return None
    return Entry(columns, record["facts"])


def _remove_oldest(folder: Path, max_bytes: int) -> None:
    sweep(folder)
    entries = []
    for record in folder.glob(f"*/{RECORD}"):
        with suppress(OSError):  # another process removes it
            size = sum(path.stat().st_size for path in record.parent.iterdir())
            entries.append((record.stat().st_mtime_ns, size, record.parent))
    total = sum(size for _, size, _ in entries)
    for _, size, path in sorted(entries)[:-1]:
        if total <= max_bytes:
            return
        shutil.rmtree(path, ignore_errors=True)
        total -= size


def _record_batch(rows: Rows) -> "pyarrow.RecordBatch":
    import pyarrow

    return pyarrow.record_batch({name: _to_arrow(values) for name, values in rows.items()})


def _to_arrow(values: np.ndarray | Ragged | Column) -> "pyarrow.Array":
    import pyarrow

    if isinstance(values, Column):
        return values.values.combine_chunks()
    if isinstance(values, Ragged):
        offsets = np.concatenate([[0], np.cumsum(values.lengths)])
        return pyarrow.LargeListArray.from_arrays(offsets, _to_arrow(values.values))
    flat = pyarrow.array(np.ascontiguousarray(values).reshape(-1))
    if values.ndim == 1:
        return flat
    return pyarrow.FixedSizeListArray.from_arrays(flat, values.shape[1])


def _columns(table: "pyarrow.Table") -> Rows:
    return {name: _from_arrow(table[name]) for name in table.column_names}


def _from_arrow(column: "pyarrow.ChunkedArray") -> np.ndarray | Ragged | Column:
    """Views of the file, but for numbers that were written some rows at a time: they are put together."""
    import pyarrow

    if pyarrow.types.is_large_string(column.type):
        return Column(column)
    if pyarrow.types.is_large_list(column.type):
        chunks = [Ragged.divided(_numbers(chunk.values), chunk.offsets.to_numpy()) for chunk in column.chunks]
        return Ragged.chain(chunks)
    numbers = [_numbers(chunk) for chunk in column.chunks]
    return numbers[0] if len(numbers) == 1 else np.concatenate(numbers)


def _numbers(array: "pyarrow.Array") -> np.ndarray:
    import pyarrow

    if pyarrow.types.is_fixed_size_list(array.type):
        return array.flatten().to_numpy().reshape(-1, array.type.list_size)
    return array.to_numpy()
