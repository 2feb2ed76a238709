"""Rows of files of tables, read by the readers of `prepare`; what these would count and skip is refused."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from brimful.base.console import counted
from brimful.base.errors import BrimfulError
from brimful.corpus.reading.delimited import open_sheet
from brimful.corpus.reading.dialects import MISSING
from brimful.corpus.reading.faults import Refusing
from brimful.corpus.reading.forms import form_of
from brimful.corpus.reading.json_records import RowNames, json_records, parse_line
from brimful.corpus.reading.tables import rows_of_columns
from brimful.tables.layouts import FileLayout
from brimful.tables.text_files import suffix_of, text_lines

FORMATS = (".tsv", ".csv", ".jsonl", ".parquet")
"""The formats of tables that are written; `.json`, `.ndjson` and `.arrow` are read, too."""
PLACES = {".parquet": "row", ".arrow": "row", ".json": "record"}
"""What rows are counted in; in other formats, in the lines that they begin at."""

_UNLABELLED = -1
"""What `datasets` writes for a row without a label."""

NumberedRows = Iterator[tuple[int, dict[str, Any]]]
"""The line, or the number from 1, and the values by column of each row."""


def open_rows(
    path: Path, wanted: Sequence[str], layout: FileLayout, *, every: bool = False
) -> tuple[str, NumberedRows]:
    """The format that a table is found to have, and its rows.

    Args:
        wanted: columns that are looked for.
        every: whether the other columns are read, too.

    Raises:
        BrimfulError: it is no table; while its rows are read: a row has a fault.
    """
    form = _form(path, wanted, layout)
    return form, _rows(path, form, wanted, layout, every=every)


def _form(path: Path, wanted: Sequence[str], layout: FileLayout) -> str:
    # The columns of a layout have places, with or without a header.
    kind = form_of(str(path), [*wanted, "1"] if layout.form == ".tsv" else wanted)
    if layout.form and kind in ("text", layout.form[1:]):
        return layout.form
    if kind == "text" and (layout.dialect.delimiter or any(name.isdecimal() for name in wanted)):
        return ".csv"  # which is divided as the options say, or as the file shows
    if kind in ("text", "html"):
        raise BrimfulError(
            f"{path}: tables are {', '.join(FORMATS)}, .json, .ndjson or .arrow files with columns text,"
            " text_b, label; columns without a header have numbers (--columns.text 1 --columns.label 2)"
        )
    return f".{kind}"


def is_text(path: Path, wanted: Sequence[str]) -> bool:
    """Whether a file has a text a line: it is named .txt, and its content is no table with such a column."""
    return suffix_of(path) == ".txt" and form_of(str(path), wanted) == "text"


def _rows(path: Path, form: str, wanted: Sequence[str], layout: FileLayout, *, every: bool) -> NumberedRows:
    if form in (".parquet", ".arrow"):
        all_columns = every or layout.rewrite is not None
        rows = _columns(path, form, None if all_columns else wanted, () if every else layout.labels)
    elif form == ".json":
        rows = _records(path, wanted)
    elif form == ".jsonl":
        rows = _lines(path, wanted)
    else:
        rows = _delimited(path, form, wanted, layout)
    if layout.rewrite is None:
        yield from rows
        return
    for number, row in rows:
        try:
            yield number, layout.rewrite(row)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            place = PLACES.get(form, "line")
            raise BrimfulError(f"{path}, {place} {number} is not in the layout {layout.name}") from error


def _delimited(path: Path, form: str, wanted: Sequence[str], layout: FileLayout) -> NumberedRows:
    """A row of another width than the header is refused; in a known layout it may be longer, and what it
    lacks is missing."""

    sheet = open_sheet(text_lines(path, newline=""), form[1:], wanted, layout.dialect, str(path))
    if sheet is None:
        return
    if layout.bare and layout.columns.text not in sheet.dialect.header:
        bare = replace(sheet.dialect, header=list(layout.bare), has_header=False)
        sheet = replace(sheet, dialect=bare)
    header = sheet.dialect.header
    _check_repeats(path, header, wanted)
    for line, fields in sheet.rows(Refusing(path=path)):
        if not any(fields):
            if len(header) > 1:
                # An empty line is a row (with the empty text) only if the table has one column. Excel writes
                # delimiters alone.
                continue
            fields = [""]
        if len(fields) != len(header) and not layout.form:
            longer = len(fields) > len(header) and sheet.dialect.delimiter == "\t" and not sheet.dialect.quote
            hint = "; a tab within a text must become a space" if longer else ""
            raise BrimfulError(
                f"{path}, line {line} has {counted(len(fields), 'field')}, the header {len(header)}{hint}"
            )
        values = [None if field == MISSING else field for field in fields]
        yield line, dict(zip(header, values, strict=False))


def _check_repeats(path: Path, header: Sequence[str], wanted: Iterable[str]) -> None:
    """Refuse a header in which a column stands twice."""
    for name in wanted:
        if header.count(name) > 1:
            raise BrimfulError(f"{path} has {header.count(name)} columns {name!r}: keep one of them")


def _lines(path: Path, wanted: Sequence[str]) -> NumberedRows:
    """Of lines of JSON: objects, lists (whose columns are numbered) or texts."""
    report, row_names = Refusing(path=path), RowNames(wanted)
    for number, value in _line_values(path, report):
        record = row_names.make_record(value, number, report)
        if record is not None:
            yield number, {wanted[0]: record} if isinstance(record, str) else record


def _line_values(path: Path, report: Refusing) -> Iterator[tuple[int, Any]]:
    for number, line in enumerate(text_lines(path), 1):
        if line.strip():
            value = parse_line(line, number, report)
            if "\\u" in line:
                check_characters(value, f"{path}, line {number}")
            yield number, value


def _records(path: Path, wanted: Sequence[str]) -> NumberedRows:
    """Of a file that is JSON as a whole."""
    report = Refusing(path=path, place=PLACES[".json"])
    for number, record in json_records(str(path), text_lines(path), wanted, report):
        check_characters(record, f"{path}, {PLACES['.json']} {number}")
        yield number, {wanted[0]: record} if isinstance(record, str) else record


def check_characters(row: Any, where: str) -> None:
    """Refuse half a surrogate pair, which JSON can hold as an escape and tokenizers cannot read.

    Raises:
        BrimfulError: a text of the row holds one.
    """
    try:
        json.dumps(row, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        half = error.object[error.start]
        raise BrimfulError(f"{where} holds half a surrogate pair, {half!a}, which is no character") from error


def _columns(path: Path, form: str, wanted: Sequence[str] | None, labels: Sequence[str] = ()) -> NumberedRows:
    """The rows of a Parquet or Arrow file; of its columns only those that are wanted, or all.

    Args:
        labels: the labels of a layout; classes with other names keep their numbers.
    """
    schema, rows = rows_of_columns(str(path), form[1:], wanted)
    known = schema.names
    _check_repeats(path, known, known if wanted is None else wanted)
    classes = class_names(schema.metadata)
    if labels:
        classes = {column: names for column, names in classes.items() if {*names} <= {*labels}}
    for number, row in enumerate(rows, 1):
        # A message about a missing column names all that there are.
        row = dict.fromkeys(known) | row if number == 1 else row
        for column in classes.keys() & row.keys():
            row[column] = _named(row[column], classes[column], f"{path}, row {number}")
        yield number, row


def class_names(metadata: Mapping[bytes, bytes] | None) -> dict[str, list[str]]:
    """The names of the classes of each column that `datasets` wrote of classes, or of lists of them."""
    try:
        features = json.loads((metadata or {})[b"huggingface"])["info"]["features"]
    except (ValueError, KeyError, TypeError):
        return {}
    names: dict[str, list[str]] = {}
    for column, feature in features.items():
        inner = feature.get("feature", feature) if isinstance(feature, dict) else feature
        if isinstance(inner, list) and len(inner) == 1:
            inner = inner[0]
        if isinstance(inner, dict) and inner.get("_type") == "ClassLabel" and "names" in inner:
            names[column] = inner["names"]
    return names


def _named(value: Any, names: Sequence[str], where: str) -> Any:
    """The name of a class, or of each of a list.

    Raises:
        BrimfulError: there is no such class.
    """
    if isinstance(value, list):
        return [_named(each, names, where) for each in value]
    if value is None or value == _UNLABELLED:
        return None
    if type(value) is not int or not 0 <= value < len(names):
        raise BrimfulError(f"{where}: {value!r:.40} is not one of the {len(names)} classes of the file")
    return names[value]
