"""Files of predictions, written as they come: .jsonl, .tsv, .csv, .parquet, or .npy for vectors."""

import csv
import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from brimful.base.errors import BrimfulError
from brimful.base.storage import atomic_file, sweep
from brimful.tasks.prediction_form import Row

if TYPE_CHECKING:
    import pyarrow as pa

FORMATS = (".jsonl", ".tsv", ".csv", ".parquet")
ARRAYS = ".npy"


class Output:
    """A file that grows.

    Args:
        path: its final name, for messages.
        length: how many rows it will have, which only .npy has to know.
        schema: of a .parquet, pyarrow's; None: the first rows tell the types of its columns.
        quoted: whether fields of a .tsv are quoted where they need it.
        header: the columns of a .tsv or .csv; None: those of the first row.
    """

    def __init__(
        self,
        file: IO[bytes],
        path: Path,
        length: int = 0,
        schema: Any = None,
        quoted: bool = True,
        header: list[str] | None = None,
    ) -> None:
        self.file = file
        self.path = path
        self.length = length
        self.schema = schema
        self.quoted = quoted
        self.header = header

    def rows(self, rows: Iterable[Row]) -> None:
        """Add rows, whose columns are in the header."""
        raise NotImplementedError

    def vectors(self, name: str, vectors: np.ndarray) -> None:
        """Add float32 (n, width): rows with a single column `name`, or in .npy the array."""
        # float64 has the digits that a float32 needs, and JSON writes the shortest that tell it apart.
        self.rows({name: [float(str(value)) for value in row]} for row in vectors)

    def close(self) -> None:
        """Write what is left; not after an error."""


@contextmanager
def output_file(path: Path, length: int = 0, **options: Any) -> Iterator[Output]:
    """A file that gets its name when all rows are written.

    In .tsv and .csv, lists and objects are written as JSON.

    Args:
        length, options: as of `Output`.

    Raises:
        BrimfulError: the suffix is unknown, or the file cannot be written.
    """
    kinds: dict[str, type[Output]] = {".jsonl": _Lines, ".tsv": _Fields, ".csv": _Fields}
    kinds |= {".parquet": _Parquet, ARRAYS: _Array}
    if path.suffix not in kinds:
        raise BrimfulError(f"{path}: the name must end in {', '.join(kinds)}")
    sweep(path.parent, path.name)  # what a killed process left may be as large as this file
    with atomic_file(path) as temporary, open(temporary, "wb") as file:
        output = kinds[path.suffix](file, path, length, **options)
        yield output
        output.close()


class _Lines(Output):
    def rows(self, rows: Iterable[Row]) -> None:
        self.file.writelines(json.dumps(row, ensure_ascii=False).encode() + b"\n" for row in rows)


class _Fields(Output):
    """Lines of .tsv or .csv, which end in a line feed. Fields with a delimiter, a quote or a line end are
    quoted, in both forms."""

    begun = False

    def rows(self, rows: Iterable[Row]) -> None:
        # Every Python quotes a field with a character of this line end in it, and no other.
        delimiter = "\t" if self.path.suffix == ".tsv" else ","
        quoting = csv.writer(_Encoded(self.file), delimiter=delimiter, lineterminator="\r\n")
        write = quoting.writerow if self.quoted else self._write_plain
        for row in rows:
            if self.header is None:
                self.header = list(row)
            if not self.begun:
                write(self.header)
                self.begun = True
            write([_cell(row.get(name, "")) for name in self.header])

    def _write_plain(self, fields: Iterable[Any]) -> None:
        self.file.write("\t".join(map(str, fields)).encode() + b"\n")


class _Encoded:
    """What csv.writer writes to."""

    def __init__(self, file: IO[bytes]) -> None:
        self.file = file

    def write(self, text: str) -> None:
        self.file.write(text.removesuffix("\r\n").encode() + b"\n")


def _cell(value: Any) -> Any:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, list | dict) else value


class _Parquet(Output):
    """Rows wait until the type of every column is known: an empty list does not tell what it would hold."""

    def __init__(self, file: IO[bytes], path: Path, length: int = 0, **options: Any) -> None:
        from pyarrow.parquet import ParquetWriter

        super().__init__(file, path, length, **options)
        self.waiting: list[pa.Table] = []
        known = self.schema is not None
        self.writer: Any = ParquetWriter(file, self.schema, compression="zstd") if known else None

    def rows(self, rows: Iterable[Row]) -> None:
        import pyarrow as pa

        self._add(pa.Table.from_pylist(list(rows), schema=self.writer and self.writer.schema))

    def vectors(self, name: str, vectors: np.ndarray) -> None:
        import pyarrow as pa

        column = pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), vectors.shape[1])
        self._add(pa.table({name: column}))

    def _add(self, table: "pa.Table", last: bool = False) -> None:
        import pyarrow as pa
        from pyarrow.parquet import ParquetWriter

        if self.writer is None:
            self.waiting.append(table)
            table = pa.concat_tables(self.waiting, promote_options="permissive")
            if not last and any(_is_unknown(field.type) for field in table.schema):
                return
            self.waiting = []
            self.writer = ParquetWriter(self.file, table.schema, compression="zstd")
        self.writer.write_table(table)

    def close(self) -> None:
        if self.waiting:
            self._add(self.waiting.pop(), last=True)
        if self.writer is not None:
            self.writer.close()


def _is_unknown(kind: "pa.DataType") -> bool:
    """Whether a type has null in it."""
    import pyarrow as pa

    parts = [kind.field(index).type for index in range(kind.num_fields)]
    return pa.types.is_null(kind) or any(map(_is_unknown, parts))


class _Array(Output):
    """float32 (n, width) after numpy's header; a memory map would count towards the process's memory."""

    begun = False

    def rows(self, rows: Iterable[Row]) -> None:
        raise BrimfulError(f"{self.path}: rows of several columns do not fit .npy")

    def vectors(self, name: str, vectors: np.ndarray) -> None:
        if not self.begun:
            shape = (self.length, vectors.shape[1])
            header = {"descr": "<f4", "fortran_order": False, "shape": shape}
            np.lib.format.write_array_header_1_0(self.file, header)
            self.begun = True
        self.file.write(np.ascontiguousarray(vectors, dtype="<f4").data)
