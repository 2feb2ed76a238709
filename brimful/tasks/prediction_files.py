"""Files of predictions, written as they come: .jsonl, .tsv, .csv, .parquet, or .npy for vectors."""

import csv
import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np
from numpy import ndarray

from brimful.base.errors import BrimfulError
from brimful.base.storage import atomic_file, sweep
from brimful.tasks.prediction_form import Row

if TYPE_CHECKING:
    import pyarrow as pa

TEXT_FORMATS = (".jsonl", ".tsv", ".csv")
FORMATS = (*TEXT_FORMATS, ".parquet")
ARRAYS = ".npy"


@dataclass
class Output:
    """A file that grows.

    Attributes:
        path: its final name, for messages.
        length: the number of rows that it will have, which only .npy has to know.
        schema: the pyarrow schema of a .parquet; None: the first rows give the types of its columns.
        quoted: whether fields of a .tsv are quoted where they need it.
        header: the columns of a .tsv or .csv; None: the columns of the first row.
        has_begun: whether the header is written.
    """

    file: IO[bytes]
    path: Path
    length: int = 0
    schema: Any = None
    quoted: bool = True
    header: list[str] | None = None
    has_begun: bool = False

    def write_rows(self, rows: Iterable[Row]) -> None:
        """Add rows, whose columns are in the header."""
        raise NotImplementedError

    def write_vectors(self, name: str, vectors: ndarray) -> None:
        """Add float32 (n, width): rows with a single column `name`, or in .npy the array."""
        # float64 has the digits that a float32 needs, and JSON writes the shortest that tell it apart.
        self.write_rows({name: list(map(float, map(str, row)))} for row in vectors)

    def close(self) -> None:
        """Write the rows that wait; not called after an error."""


@contextmanager
def open_output(path: Path, length: int = 0, *, to_stdout: bool = False, **options: Any) -> Iterator[Output]:
    """Open a file that gets its name when all rows are written, or stdout.

    In .tsv and .csv, lists and objects are written as JSON.

    Args:
        length, options: as of `Output`.
        to_stdout: whether rows go to stdout; `path` then only names their form.

    Raises:
        BrimfulError: the suffix is unknown, or the file cannot be written.
    """
    kinds: dict[str, type[Output]] = {".jsonl": _Lines, ".tsv": _Fields, ".csv": _Fields, ARRAYS: _Array}
    kinds[".parquet"] = _Parquet
    if path.suffix not in kinds:
        raise BrimfulError(f"{path}: the name must end in {', '.join(kinds)}")
    if to_stdout:
        with open(1, "wb", closefd=False) as stdout:
            yield kinds[path.suffix](stdout, path, length, **options)
        return
    sweep(path.parent, path.name)  # a killed process may have left a temporary as large as this file
    with atomic_file(path) as temporary, open(temporary, "wb") as file:
        output = kinds[path.suffix](file, path, length, **options)
        yield output
        output.close()


class _Lines(Output):
    def write_rows(self, rows: Iterable[Row]) -> None:
        for row in rows:
            self.file.write(json.dumps(row, ensure_ascii=False).encode() + b"\n")


class _Fields(Output):
    """Lines of .tsv or .csv, which end in a line feed. Fields with a delimiter, a quote or a line end are
    quoted, in both forms."""

    def write_rows(self, rows: Iterable[Row]) -> None:
        # Every Python quotes a field with a character of this line end in it, and no other.
        delimiter = "\t" if self.path.suffix == ".tsv" else ","
        writer = csv.writer(_LineFeeds(self.file), delimiter=delimiter, lineterminator="\r\n")
        for row in rows:
            if self.header is None:
                self.header = list(row)
            if not self.has_begun:
                self._write(writer, self.header)
                self.has_begun = True
            self._write(writer, [row.get(name, "") for name in self.header])

    def _write(self, writer: Any, fields: list[Any]) -> None:
        for place, value in enumerate(fields):
            if isinstance(value, list | dict):
                fields[place] = json.dumps(value, ensure_ascii=False)
        if self.quoted:
            writer.writerow(fields)
        else:
            self.file.write("\t".join(map(str, fields)).encode() + b"\n")


class _LineFeeds:
    """The file that csv.writer writes its lines to."""

    def __init__(self, file: IO[bytes]) -> None:
        self.file = file

    def write(self, text: str) -> None:
        self.file.write(text.removesuffix("\r\n").encode() + b"\n")


@dataclass
class _Parquet(Output):
    """Rows wait until the type of every column is known: an empty list does not say what it would hold."""

    def __post_init__(self) -> None:
        self.waiting: list[pa.Table] = []
        self.writer: Any = None
        if self.schema is not None:
            self._open_writer()

    def write_rows(self, rows: Iterable[Row]) -> None:
        import pyarrow as pa

        self._add(pa.Table.from_pylist(list(rows), schema=self.schema))

    def write_vectors(self, name: str, vectors: ndarray) -> None:
        import pyarrow as pa

        column = pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), vectors.shape[1])
        self._add(pa.table({name: column}))

    def close(self) -> None:
        if self.waiting:
            self._add(self.waiting.pop(), is_last=True)
        if self.writer is not None:
            self.writer.close()

    def _add(self, table: "pa.Table", is_last: bool = False) -> None:
        import pyarrow as pa

        if self.writer is None:
            self.waiting.append(table)
            # Permissive: a column of empty lists takes the type of the same column in later rows.
            table = pa.concat_tables(self.waiting, promote_options="permissive")
            if not is_last and any(map(_has_null, table.schema.types)):
                return
            self.waiting = []
            self.schema = table.schema
            self._open_writer()
        self.writer.write_table(table)

    def _open_writer(self) -> None:
        from pyarrow.parquet import ParquetWriter

        self.writer = ParquetWriter(self.file, self.schema, compression="zstd")


def _has_null(kind: "pa.DataType") -> bool:
    """Whether a type is unknown, or holds an unknown one."""
    import pyarrow as pa

    parts = [kind.field(index).type for index in range(kind.num_fields)]
    return pa.types.is_null(kind) or any(map(_has_null, parts))


class _Array(Output):
    """float32 (n, width) after numpy's header; a memory map would count towards the process's memory."""

    def write_rows(self, rows: Iterable[Row]) -> None:
        raise BrimfulError(f"{self.path}: rows of several columns do not fit .npy")

    def write_vectors(self, name: str, vectors: ndarray) -> None:
        if not self.has_begun:
            shape = (self.length, vectors.shape[1])
            header = {"descr": "<f4", "fortran_order": False, "shape": shape}
            np.lib.format.write_array_header_1_0(self.file, header)
            self.has_begun = True
        self.file.write(np.ascontiguousarray(vectors, dtype="<f4").data)
