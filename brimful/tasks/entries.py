"""Tables and examples as folders of memory-mapped arrays, each with a commit record written last."""

import os
import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, TypedDict

import numpy as np

from brimful.data.examples import Examples
from brimful.data.ragged import Ragged
from brimful.errors import BrimfulError
from brimful.storage import atomic_directory, commit, find_commit, sweep
from brimful.tasks.columns import Column
from brimful.tasks.table import Table

RECORD = "entry.json"
_TEXTS = ("texts", "second")
_RAGGED = ("values", "starts", "lengths")


class _EntryRecord(TypedDict):
    arrays: list[str]
    facts: dict[str, Any]


@dataclass(frozen=True)
class Entry:
    """Arrays by name, and what else there is to know, as JSON."""

    arrays: Mapping[str, np.ndarray]
    facts: Mapping[str, Any]


def read_entry(folder: Path, *, verify: bool = False) -> Entry | None:
    """The entry in a folder, mapped; None if it is absent, unfinished or damaged.

    Args:
        verify: compare the CRC of each file; otherwise only the sizes.
    """
    record = find_commit(folder / RECORD, _EntryRecord, verify=verify)
    if record is None:
        return None
    try:
        arrays = {
            name: np.asarray(np.load(folder / f"{name}.npy", mmap_mode="r", allow_pickle=False))
            for name in record["arrays"]
        }
        with suppress(OSError):
            os.utime(folder / RECORD)  # entries that are used last are removed last
    except (OSError, ValueError, KeyError):
        return None
    return Entry(arrays, record["facts"])


def write_entry(folder: Path, entry: Entry) -> None:
    """Write an entry; a folder of that name is replaced.

    Raises:
        BrimfulError: it cannot be written.
    """
    with atomic_directory(folder) as temporary:
        paths = []
        for name, array in entry.arrays.items():
            paths.append(temporary / f"{name}.npy")
            np.save(paths[-1], array, allow_pickle=False)
        commit(temporary / RECORD, paths, arrays=list(entry.arrays), facts=entry.facts)


def remove_oldest(folder: Path, most: int) -> None:
    """Remove entries, those first that were not used for longest, until at most `most` bytes are left."""
    sweep(folder)
    found = []
    for record in folder.glob(f"*/{RECORD}"):
        with suppress(OSError):
            size = sum(path.stat().st_size for path in record.parent.iterdir())
            found.append((record.stat().st_mtime_ns, size, record.parent))
    total = sum(size for _, size, _ in found)
    for _, size, path in sorted(found)[:-1]:
        if total <= most:
            return
        shutil.rmtree(path, ignore_errors=True)
        total -= size


def entry_of_table(table: Table) -> Entry:
    """A table as arrays.

    Raises:
        TypeError, ValueError: a column cannot be written as JSON.
    """
    arrays: dict[str, np.ndarray] = {"fingerprints": table.fingerprints}
    for field in fields(table):
        value = getattr(table, field.name)
        if field.name == "path" or value is None:
            continue
        if field.name == "lines":
            arrays["lines"] = value
            continue
        column = Column.of(value, str if field.name in _TEXTS else table.types.get(field.name, Any))
        arrays[f"{field.name}.codes"] = column.codes
        _put(arrays, field.name, column.values)
    return Entry(arrays, {"type": type(table).__name__})


def table_of_entry(entry: Entry, path: Path) -> Table:
    """The table of `entry_of_table`, whose columns are decoded when they are read."""
    kinds: list[type[Table]] = [Table, *_subclasses(Table)]
    kind = next(one for one in kinds if one.__name__ == entry.facts["type"])
    columns: dict[str, Any] = {"second": None, "labels": None}
    if "lines" in entry.arrays:
        columns["lines"] = entry.arrays["lines"]
    for name in (key.removesuffix(".codes") for key in entry.arrays if key.endswith(".codes")):
        value_type = str if name in _TEXTS else kind.types.get(name, Any)
        columns[name] = Column(_ragged(entry, name), entry.arrays[f"{name}.codes"], value_type)
    table = kind(path=path, **columns)
    table.__dict__["fingerprints"] = entry.arrays["fingerprints"]
    return table


def entry_of_examples(examples: Examples) -> Entry:
    """Examples as arrays."""
    arrays: dict[str, np.ndarray] = {}
    facts: dict[str, Any] = {"targets": sorted(examples.targets)}
    for field in fields(examples):
        value = getattr(examples, field.name)
        if field.name == "targets":
            for name, target in value.items():
                _put(arrays, f"targets.{name}", target)
        elif isinstance(value, np.ndarray | Ragged):
            _put(arrays, field.name, value)
        elif field.name in ("tokens", "segments"):
            _put(arrays, field.name, Ragged.of(value, np.int32 if field.name == "tokens" else np.uint8))
        elif value is not None:
            facts[field.name] = value
    return Entry(arrays, facts)


def examples_of_entry(entry: Entry) -> Examples:
    """The examples of `entry_of_examples`."""
    known = {field.name for field in fields(Examples)} - {"targets"}
    values: dict[str, Any] = {name: entry.facts[name] for name in known & entry.facts.keys()}
    for name in {key.partition(".")[0] for key in entry.arrays} & known:
        values[name] = _get(entry, name)
    return Examples(
        targets={name: _get(entry, f"targets.{name}") for name in entry.facts["targets"]}, **values
    )


def entry_of_outputs(outputs: np.ndarray | Ragged) -> Entry:
    """A model's outputs as arrays."""
    arrays: dict[str, np.ndarray] = {}
    _put(arrays, "outputs", outputs)
    return Entry(arrays, {})


def outputs_of_entry(entry: Entry) -> np.ndarray | Ragged:
    """The outputs of `entry_of_outputs`."""
    return _get(entry, "outputs")


def _put(arrays: dict[str, np.ndarray], name: str, value: np.ndarray | Ragged) -> None:
    if isinstance(value, np.ndarray):
        arrays[name] = value
    else:
        arrays |= {f"{name}.{part}": getattr(value, part) for part in _RAGGED}


def _get(entry: Entry, name: str) -> np.ndarray | Ragged:
    return entry.arrays[name] if name in entry.arrays else _ragged(entry, name)


def _ragged(entry: Entry, name: str) -> Ragged:
    return Ragged(*(entry.arrays[f"{name}.{part}"] for part in _RAGGED))


def _subclasses(kind: type[Table]) -> list[type[Table]]:
    return [one for child in kind.__subclasses__() for one in (child, *_subclasses(child))]


def try_to_write(folder: Path, entry: Entry, most: int) -> BrimfulError | None:
    """Write an entry and keep the folder above it below `most` bytes; the error if it cannot be written."""
    try:
        write_entry(folder, entry)
        remove_oldest(folder.parent, most)
    except BrimfulError as error:
        return error
    except OSError as error:
        return BrimfulError(f"{folder}: {error.strerror or error}")
    return None
