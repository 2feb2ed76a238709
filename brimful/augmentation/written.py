"""Tables with all their columns, read and written in one format."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Self

from brimful.base.console import counted, warn
from brimful.base.errors import BrimfulError, nearest
from brimful.base.storage import atomic_file, sweep
from brimful.tables.file_rows import FORMATS, all_rows
from brimful.tables.layouts import FileLayout
from brimful.tables.text_files import readable
from brimful.tasks.output import row_writer

_AT_ONCE = 1 << 14


@dataclass(frozen=True)
class TableRows:
    """The rows of a table.

    Attributes:
        form: .tsv, .csv, .jsonl or .parquet.
        values: of each row, by column.
        columns: of the table.
        schema: of a Parquet file, pyarrow's.
        quoted: whether fields of a .tsv are quoted where they need it; in layouts of TSV, quotes are text.
    """

    form: str
    values: list[dict[str, Any]]
    columns: list[str]
    schema: Any = None
    quoted: bool = True


def read_rows(path: Path, layout: FileLayout) -> tuple[TableRows, list[str]]:
    """The rows of a table, and the columns of its texts: one, or two of pairs.

    Raises:
        BrimfulError: the file cannot be read; a row has no text; or other columns would not fit new texts.
    """
    form = path.suffix if path.suffix in FORMATS else layout.form or path.suffix
    if form not in FORMATS or layout.rewrite or layout.task == "question-answering":
        what = f"the layout {layout.name}" if layout.name and form in FORMATS else str(path)
        raise BrimfulError(
            f"{what} cannot be augmented as a file: tables are {', '.join(FORMATS)} files of whole texts and"
            " their labels"
        )
    text, second = layout.columns.text, layout.columns.text_b
    values: list[dict[str, Any]] = []
    columns: list[str] = []
    pairs, short = layout.pairs, 0
    place = "row" if form == ".parquet" else "line"
    with readable(path):
        for number, row in all_rows(path, form, layout):
            where = f"{path}, {place} {number}"
            columns += [name for name in row if name not in columns]
            pairs = pairs or (not values and row.get(second) is not None)
            wanted = [text, second] if pairs else [text]
            missing = [name for name in wanted if row.get(name) is None]
            if missing and layout.form and values:
                short += 1
                continue
            if missing and missing[0] in row:
                raise BrimfulError(f"{where}: {missing[0]} is empty")
            if missing:
                raise BrimfulError(f"{where} has no column {missing[0]!r}: {nearest(missing[0], list(row))}")
            if isinstance(row.get("spans"), list):
                raise BrimfulError(f"{where} has spans, which would not fit a text with other words")
            row |= {name: str(row[name]) for name in wanted if isinstance(row[name], int | float)}
            for name in wanted:
                if not isinstance(row[name], str):
                    raise BrimfulError(f"{where}: {name!r} is {row[name]!r:.60}, not a text")
            values.append(row)
    if not values:
        raise BrimfulError(f"{path} has no rows; expected a header and one row for each text")
    if short:
        warn(f"{path}: {counted(short, 'row')} without a text are left out")
    wanted = [text, second] if pairs else [text]
    schema = _schema(path, wanted) if form == ".parquet" else None
    return TableRows(form, values, columns, schema, layout.form != ".tsv"), wanted


def _schema(path: Path, texts: list[str]) -> Any:
    """The types of a Parquet file's columns, without dictionaries; texts are strings, numbers too."""
    import pyarrow as pa
    from pyarrow.parquet import read_schema

    found = read_schema(path)
    for index, field in enumerate(found):
        if pa.types.is_dictionary(field.type):
            found = found.set(index, field.with_type(field.type.value_type))
        if field.name in texts and not pa.types.is_large_string(field.type):
            found = found.set(index, field.with_type(pa.string()))
    return found.remove_metadata()


class RowFile:
    """A table that is being written."""

    def __init__(self, file: IO[bytes], rows: TableRows) -> None:
        self._file = file
        self._rows = rows
        self._waiting: list[dict[str, Any]] = []
        self._parquet: Any = None

    @classmethod
    @contextmanager
    def opened(cls, path: Path, rows: TableRows) -> Iterator[Self]:
        """A file with the format and the columns of `rows`, which gets its name when it is complete.

        Raises:
            BrimfulError: it cannot be written.
        """
        sweep(path.parent, path.name)
        with atomic_file(path) as temporary, open(temporary, "wb") as file:
            made = cls(file, rows)
            if rows.form in (".tsv", ".csv"):
                made.add({name: name for name in rows.columns})
            yield made
            made._flush()
            if rows.form == ".parquet":
                made._parquet.close()

    def add(self, row: dict[str, Any]) -> None:
        """Add a row."""
        self._waiting.append(row)
        if len(self._waiting) == _AT_ONCE:
            self._flush()

    def _flush(self) -> None:
        rows, self._waiting = self._waiting, []
        names = self._rows.columns
        if self._rows.form == ".parquet":
            import pyarrow as pa
            from pyarrow.parquet import ParquetWriter

            self._parquet = self._parquet or ParquetWriter(self._file, self._rows.schema)
            if rows:
                self._parquet.write_table(pa.Table.from_pylist(rows, schema=self._rows.schema))
        elif self._rows.form == ".jsonl":
            self._file.writelines(json.dumps(row, ensure_ascii=False).encode() + b"\n" for row in rows)
        elif self._rows.form == ".tsv" and not self._rows.quoted:
            lines = ("\t".join(str(row.get(name, "")) for name in names) for row in rows)
            self._file.writelines(line.encode() + b"\n" for line in lines)
        else:
            row_writer(self._file, self._rows.form).writerows(
                [row.get(name, "") for name in names] for row in rows
            )
