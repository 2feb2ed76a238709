"""Tables with all their columns, read and written in one format."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from brimful.base.console import pluralise, warn
from brimful.base.errors import BrimfulError, suggest_name
from brimful.tables.file_rows import FORMATS, class_names, open_rows
from brimful.tables.layouts import FileLayout
from brimful.tables.text_files import readable
from brimful.tasks.prediction_files import output_file

_AT_ONCE = 1 << 14


@dataclass(frozen=True)
class TableRows:
    """The rows of a table.

    Attributes:
        form: .tsv, .csv, .jsonl or .parquet.
        values: of each row, by column; short lines lack the last ones.
        columns: of all rows.
        texts: the columns of its texts: one, or two of pairs.
        schema: of a Parquet file, pyarrow's.
        quoted: whether fields of a .tsv are quoted where they need it; in layouts of TSV, quotes are text.
    """

    form: str
    values: list[dict[str, Any]]
    columns: list[str]
    texts: list[str]
    schema: Any
    quoted: bool


def read_rows(path: Path, layout: FileLayout) -> TableRows:
    """The rows of a table.

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
    columns: dict[str, None] = {}
    pairs, short = layout.pairs, 0
    place = "row" if form == ".parquet" else "line"
    with readable(path):
        _, rows = open_rows(path, [text, second], layout, every=True)
        for number, row in rows:
            where = f"{path}, {place} {number}"
            columns |= dict.fromkeys(row)
            pairs = pairs or (not values and row.get(second) is not None)
            wanted = [text, second] if pairs else [text]
            missing = [name for name in wanted if row.get(name) is None]
            if missing and layout.form and values:
                short += 1
                continue
            if missing and missing[0] in row:
                raise BrimfulError(f"{where}: {missing[0]} is empty")
            if missing:
                raise BrimfulError(
                    f"{where} has no column {missing[0]!r}: {suggest_name(missing[0], list(row))}"
                )
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
        warn(f"{path}: {pluralise(short, 'row')} without a text are left out")
    texts = [text, second] if pairs else [text]
    schema = _schema(path, texts) if form == ".parquet" else None
    return TableRows(form, values, list(columns), texts, schema, layout.form != ".tsv")


def _schema(path: Path, texts: list[str]) -> Any:
    """The types of a Parquet file's columns, without dictionaries; texts and classes are strings."""
    import pyarrow as pa
    from pyarrow.parquet import read_schema

    found = read_schema(path)
    names = class_names(found.metadata)
    for index, field in enumerate(found):
        if pa.types.is_dictionary(field.type):
            found = found.set(index, field.with_type(field.type.value_type))
        if field.name in names:
            is_list = pa.types.is_list(field.type)
            found = found.set(index, field.with_type(pa.list_(pa.string()) if is_list else pa.string()))
        if field.name in texts and not pa.types.is_large_string(field.type):
            found = found.set(index, field.with_type(pa.string()))
    return found.remove_metadata()


@contextmanager
def table_file(path: Path, table: TableRows) -> Iterator[Callable[[dict[str, Any]], None]]:
    """What adds a row to a file in the format of a table, which gets its name when it is complete.

    Raises:
        BrimfulError: it cannot be written.
    """
    waiting: list[dict[str, Any]] = []
    with output_file(path, schema=table.schema, quoted=table.quoted, header=table.columns) as output:

        def add(row: dict[str, Any]) -> None:
            waiting.append(row)
            if len(waiting) == _AT_ONCE:
                output.rows(waiting)
                waiting.clear()

        yield add
        output.rows(waiting)
