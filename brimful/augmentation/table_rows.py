"""Read and write tables with all their columns, in one format."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from brimful.base.console import pluralise, warn
from brimful.base.errors import BrimfulError, suggest_name
from brimful.base.storage import readable
from brimful.base.types import Values
from brimful.tables.file_rows import FORMATS, class_names, open_rows
from brimful.tables.layouts import FileLayout
from brimful.tasks.prediction_files import open_output

_ROWS_AT_ONCE = 1 << 14


@dataclass(frozen=True)
class TableRows:
    """The rows of a table.

    Attributes:
        form: .tsv, .csv, .jsonl or .parquet.
        values: the values of each row, by column; short lines lack the last ones.
        columns: the columns that any row has.
        texts: the columns of its texts: one, or two in a table of pairs.
        schema: pyarrow's schema of a Parquet file.
        quoted: whether fields of a .tsv are quoted where they need it; in layouts of TSV, quotes are text.
    """

    form: str
    values: list[Values]
    columns: list[str]
    texts: list[str]
    schema: Any
    quoted: bool


def read_rows(path: Path, layout: FileLayout) -> TableRows:
    """Read the rows of a table.

    Raises:
        BrimfulError: the file cannot be read; a row has no text; or other columns would not fit new texts.
    """
    form = path.suffix
    if form not in FORMATS and layout.form:
        form = layout.form
    if form not in FORMATS or layout.task in ("question-answering", "token-classification"):
        what = f"the layout {layout.name}" if layout.name and form in FORMATS else str(path)
        raise BrimfulError(
            f"{what} cannot be augmented as a file: tables are {', '.join(FORMATS)} files of whole texts and"
            " their labels"
        )
    text, second = layout.columns.text, layout.columns.text_b
    values: list[Values] = []
    columns: dict[str, None] = {}
    pairs, short = layout.pairs, 0
    place = "row" if form == ".parquet" else "line"
    with readable(path):
        _, rows = open_rows(path, [text, second], layout, every=True)
        for number, row in rows:
            where = f"{path}, {place} {number}"
            columns |= dict.fromkeys(row)
            # The first row shows whether there are pairs.
            pairs = pairs or (not values and row.get(second) is not None)
            texts = [text, second] if pairs else [text]
            missing = [name for name in texts if row.get(name) is None]
            if missing and layout.form and values:
                short += 1  # lines of the layouts of benchmarks may end early
                continue
            for name in missing:
                if name in row:
                    raise BrimfulError(f"{where}: {name} is empty")
                raise BrimfulError(f"{where} has no column {name!r}: {suggest_name(name, list(row))}")
            if isinstance(row.get("spans"), list):
                raise BrimfulError(f"{where} has spans, which would not fit a text with other words")
            for name in texts:
                if isinstance(row[name], int | float):
                    row[name] = str(row[name])
                if not isinstance(row[name], str):
                    raise BrimfulError(f"{where}: {name!r} is {row[name]!r:.60}, not a text")
            values.append(row)
    if not values:
        raise BrimfulError(f"{path} has no rows; expected a header and one row for each text")
    if short:
        warn(f"{path}: {pluralise(short, 'row')} without a text are left out")
    schema = _read_schema(path, texts) if form == ".parquet" else None
    return TableRows(form, values, list(columns), texts, schema, layout.form != ".tsv")


def _read_schema(path: Path, texts: list[str]) -> Any:
    """Return the types of a Parquet file's columns, without dictionaries; texts and classes are strings."""
    import pyarrow as pa
    from pyarrow.parquet import read_schema

    schema = read_schema(path)
    classes = class_names(schema.metadata)
    for index, field in enumerate(schema):
        kind = field.type
        if pa.types.is_dictionary(kind):
            kind = kind.value_type
        if field.name in classes:
            kind = pa.list_(pa.string()) if pa.types.is_list(field.type) else pa.string()
        if field.name in texts and not pa.types.is_large_string(field.type):
            kind = pa.string()
        schema = schema.set(index, field.with_type(kind))
    return schema.remove_metadata()


@contextmanager
def table_file(path: Path, table: TableRows) -> Iterator[Callable[[Values], None]]:
    """Open a file in the format of a table; it gets its name when it is complete.

    Yields:
        a function that adds a row.

    Raises:
        BrimfulError: it cannot be written.
    """
    waiting: list[Values] = []
    with open_output(path, schema=table.schema, quoted=table.quoted, header=table.columns) as output:

        def add(row: Values) -> None:
            waiting.append(row)
            if len(waiting) == _ROWS_AT_ONCE:
                output.write_rows(waiting)
                waiting.clear()

        yield add
        output.write_rows(waiting)
