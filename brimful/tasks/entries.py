"""Tables and examples as folders of memory-mapped arrays, each with a commit record written last.

An entry is written in slices of a table or its examples, so a large one is never in memory.
"""

import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import IO, Any, TypedDict

import numpy as np

from brimful.base.errors import BrimfulError
from brimful.base.storage import atomic_directory, commit, find_commit, sweep
from brimful.data.examples import Examples, as_ragged
from brimful.data.ragged import Ragged
from brimful.tables.columns import Column
from brimful.tables.table import Table

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


class Growing:
    """The arrays of an entry that is being written: each grows at its first axis.

    Attributes:
        lengths: of each array so far, by name.
        facts: what else there is to know, as JSON.
    """

    def __init__(self, folder: Path) -> None:
        self.lengths: dict[str, int] = {}
        self.facts: dict[str, Any] = {}
        self._folder = folder
        self._files: dict[str, IO[bytes]] = {}
        self._kinds: dict[str, tuple[np.dtype, tuple[int, ...]]] = {}

    def add(self, name: str, array: np.ndarray) -> None:
        """Put an array behind what its name has."""
        if name not in self._files:
            self._files[name] = open(self._path(name), "wb")  # noqa: SIM115
            self._files[name].write(bytes(_HEADER))
            self._kinds[name] = array.dtype, array.shape[1:]
            self.lengths[name] = 0
        np.ascontiguousarray(array, dtype=self._kinds[name][0]).tofile(self._files[name])
        self.lengths[name] += len(array)

    def add_ragged(self, name: str, arrays: Ragged) -> None:
        """Put ragged arrays behind those that the name has."""
        before = self.lengths.get(f"{name}.values", 0)
        self.add(f"{name}.values", arrays.values)
        self.add(f"{name}.starts", arrays.starts + before)
        self.add(f"{name}.lengths", arrays.lengths)

    def add_column(self, name: str, column: Column) -> None:
        """Put values behind those that the name has."""
        before = self.lengths.get(f"{name}.lengths", 0)
        self.add(f"{name}.codes", column.codes + np.int32(before))
        self.add_ragged(name, column.values)

    def close(self) -> list[Path]:
        """Write the shapes of all arrays; their files."""
        for name, file in self._files.items():
            dtype, width = self._kinds[name]
            file.seek(0)
            file.write(_header(dtype, (self.lengths[name], *width)))
            file.close()
        return [self._path(name) for name in self._files]

    def _path(self, name: str) -> Path:
        return self._folder / f"{name}.npy"


_HEADER = 128
"""Bytes of the header of a .npy."""


def _header(dtype: np.dtype, shape: tuple[int, ...]) -> bytes:
    """The header of format 1.0, padded to one length, since it is written before the shape is known."""
    magic = np.lib.format.magic(1, 0)
    kind = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    length = _HEADER - len(magic) - 2
    return magic + length.to_bytes(2, "little") + repr(kind).encode().ljust(length - 1) + b"\n"


@contextmanager
def growing_entry(folder: Path) -> Iterator[Growing]:
    """An entry that is written in pieces, and exists when the block ends; a folder of that name is replaced.

    Raises:
        BrimfulError: it cannot be written.
    """
    with atomic_directory(folder) as temporary:
        growing = Growing(temporary)
        try:
            yield growing
        finally:
            paths = growing.close()
        commit(temporary / RECORD, paths, arrays=list(growing.lengths), facts=growing.facts)


def write_entry(folder: Path, entry: Entry) -> None:
    """Write an entry; a folder of that name is replaced.

    Raises:
        BrimfulError: it cannot be written.
    """
    with growing_entry(folder) as growing:
        for name, array in entry.arrays.items():
            growing.add(name, array)
        growing.facts |= entry.facts


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


def add_table(growing: Growing, table: Table) -> None:
    """Put the rows of a table, or of the next slice of it, into an entry.

    Raises:
        TypeError, ValueError: a column cannot be written as JSON.
    """
    growing.facts["type"] = type(table).__name__
    growing.add("fingerprints", table.fingerprints)
    for field in fields(table):
        value = getattr(table, field.name)
        if field.name == "path" or value is None:
            continue
        if field.name == "lines":
            growing.add("lines", value)
            continue
        kind = str if field.name in _TEXTS else table.types.get(field.name, Any)
        growing.add_column(field.name, Column.of(value, kind))


def table_of_entry(entry: Entry, path: Path) -> Table:
    """The table of `add_table`, whose columns are decoded when they are read."""
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


def add_examples(growing: Growing, examples: Examples) -> None:
    """Put examples of a table, or of its next rows, into an entry."""
    facts = growing.facts
    growing.add("texts", examples.text_of_example + facts.get("rows", 0))
    facts["rows"] = facts.get("rows", 0) + len(examples.first_of_text)
    facts["windows"] = facts.get("windows", False) or examples.texts is not None
    facts["cut"] = facts.get("cut", 0) + examples.cut
    facts["targets"] = sorted(examples.targets)
    facts |= {name: getattr(examples, name) for name in ("max_length", "pad", "overlap", "together")}
    growing.add_ragged("tokens", as_ragged(examples.tokens, np.int32))
    growing.add_ragged("segments", as_ragged(examples.segments, np.uint8))
    if examples.characters is not None:
        growing.add_ragged("characters", examples.characters)
    for name, target in examples.targets.items():
        if isinstance(target, Ragged):
            growing.add_ragged(f"targets.{name}", target)
        else:
            growing.add(f"targets.{name}", target)


def examples_of_entry(entry: Entry) -> Examples:
    """The examples of `add_examples`."""
    facts = entry.facts
    return Examples(
        tokens=_ragged(entry, "tokens"),
        segments=_ragged(entry, "segments"),
        targets={name: _get(entry, f"targets.{name}") for name in facts["targets"]},
        texts=entry.arrays["texts"] if facts["windows"] else None,
        characters=_ragged(entry, "characters") if "characters.values" in entry.arrays else None,
        **{name: facts[name] for name in ("max_length", "pad", "overlap", "cut", "together")},
    )


def entry_of_outputs(outputs: np.ndarray | Ragged) -> Entry:
    """A model's outputs as arrays."""
    if isinstance(outputs, np.ndarray):
        return Entry({"outputs": outputs}, {})
    return Entry({f"outputs.{part}": getattr(outputs, part) for part in _RAGGED}, {})


def outputs_of_entry(entry: Entry) -> np.ndarray | Ragged:
    """The outputs of `entry_of_outputs`."""
    return _get(entry, "outputs")


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
