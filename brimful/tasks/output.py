"""Files of predictions, written as they come: .jsonl, .tsv, .csv, .parquet, or .npy for vectors."""

import csv
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Protocol

import numpy as np

from brimful.base.errors import BrimfulError
from brimful.base.storage import atomic_file, sweep
from brimful.tasks.form import Row

if TYPE_CHECKING:
    import pyarrow as pa

FORMATS = (".jsonl", ".tsv", ".csv", ".parquet")
ARRAYS = ".npy"


class Output(Protocol):
    """A file that grows."""

    def rows(self, rows: Sequence[Row]) -> None:
        """Add rows, which have the columns of the first."""

    def vectors(self, name: str, vectors: np.ndarray) -> None:
        """Add float32 (n, width): rows with a single column `name`, or in .npy the array."""

    def close(self) -> None:
        """Write what is left; not after an error."""


@contextmanager
def output_file(path: Path, length: int = 0, *, schema: Any = None, quoted: bool = True) -> Iterator[Output]:
    """A file that gets its name when all rows are written.

    In .tsv and .csv, lists and objects are written as JSON.

    Args:
        length: of an .npy, its rows.
        schema: of a .parquet, pyarrow's; by default, the first rows tell the types of its columns.
        quoted: whether fields of a .tsv are quoted where they need it.

    Raises:
        BrimfulError: the suffix is unknown, or the file cannot be written.
    """
    kinds: dict[str, Callable[[IO[bytes]], Output]] = {
        ".jsonl": _Lines,
        ".tsv": partial(_Fields, form=".tsv", quoted=quoted),
        ".csv": partial(_Fields, form=".csv"),
        ".parquet": partial(_Parquet, schema=schema),
        ARRAYS: partial(_Array, path=path, length=length),
    }
    if path.suffix not in kinds:
        raise BrimfulError(f"{path}: the name must end in {', '.join(kinds)}")
    sweep(path.parent, path.name)  # what a killed process left may be as large as this file
    with atomic_file(path) as temporary, open(temporary, "wb") as file:
        output = kinds[path.suffix](file)
        yield output
        output.close()


def write_rows(path: Path, rows: Sequence[Row]) -> None:
    """Write rows of the same columns as .jsonl, .tsv, .csv or .parquet, by the path's suffix; atomically."""
    with output_file(path) as output:
        output.rows(rows)


class _Text:
    """Rows as lines of text."""

    def __init__(self, file: IO[bytes]) -> None:
        self.file = file

    def rows(self, rows: Iterable[Row]) -> None:
        raise NotImplementedError

    def vectors(self, name: str, vectors: np.ndarray) -> None:
        # float64 has the digits that a float32 needs, and JSON writes the shortest that tell it apart.
        self.rows({name: [float(str(value)) for value in row]} for row in vectors)

    def close(self) -> None:
        """Every line is written already."""


class _Lines(_Text):
    def rows(self, rows: Iterable[Row]) -> None:
        self.file.writelines(json.dumps(row, ensure_ascii=False).encode() + b"\n" for row in rows)


class _Fields(_Text):
    """Lines of .tsv or .csv, which end in a line feed, in UTF-8. Fields with a delimiter, a quote or a line
    end are quoted, in both forms."""

    def __init__(self, file: IO[bytes], form: str, quoted: bool = True) -> None:
        super().__init__(file)
        self.header: list[str] = []
        # Every Python quotes a field with a character of this line end in it, and no other.
        options: dict[str, Any] = {"delimiter": "\t" if form == ".tsv" else ",", "lineterminator": "\r\n"}
        if not quoted:
            options |= {"quoting": csv.QUOTE_NONE, "quotechar": None}
        self.writer = csv.writer(_Encoded(file), **options)

    def rows(self, rows: Iterable[Row]) -> None:
        for row in rows:
            if not self.header:
                self.header = list(row)
                self.writer.writerow(self.header)
            self.writer.writerow([_cell(row.get(name, "")) for name in self.header])


class _Encoded:
    """What csv.writer writes to."""

    def __init__(self, file: IO[bytes]) -> None:
        self.file = file

    def write(self, text: str) -> None:
        self.file.write(text.removesuffix("\r\n").encode() + b"\n")


def _cell(value: Any) -> Any:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, list | dict) else value


class _Parquet:
    """Rows wait until the type of every column is known: an empty list does not tell what it would hold."""

    def __init__(self, file: IO[bytes], schema: Any = None) -> None:
        from pyarrow.parquet import ParquetWriter

        self.file = file
        self.waiting: list[pa.Table] = []
        self.writer: Any = None if schema is None else ParquetWriter(file, schema, compression="zstd")

    def rows(self, rows: Sequence[Row]) -> None:
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


class _Array:
    """float32 (n, width) after numpy's header; a memory map would count towards the process's memory."""

    def __init__(self, file: IO[bytes], path: Path, length: int) -> None:
        self.file = file
        self.path = path
        self.length = length
        self.begun = False

    def rows(self, rows: Sequence[Row]) -> None:
        raise BrimfulError(f"{self.path}: rows of several columns do not fit .npy")

    def vectors(self, name: str, vectors: np.ndarray) -> None:
        if not self.begun:
            shape = (self.length, vectors.shape[1])
            header = {"descr": "<f4", "fortran_order": False, "shape": shape}
            np.lib.format.write_array_header_1_0(self.file, header)
            self.begun = True
        self.file.write(np.ascontiguousarray(vectors, dtype="<f4").data)

    def close(self) -> None:
        """Every value is written already."""
