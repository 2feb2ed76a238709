"""Rows of table files, read by the readers of `prepare`. A row that they count and skip is an error here."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from brimful.base.console import pluralise
from brimful.base.errors import BrimfulError
from brimful.corpus.reading.delimited import open_sheet
from brimful.corpus.reading.dialects import MISSING
from brimful.corpus.reading.faults import Refusing
from brimful.corpus.reading.forms import form_of
from brimful.corpus.reading.json_records import RowNames, json_records, parse_line
from brimful.corpus.reading.tables import rows_of_columns
from brimful.tables.layouts import FileLayout, FileRow
from brimful.tables.text_files import suffix_of, text_lines

FORMATS = (".tsv", ".csv", ".jsonl", ".parquet")
"""The formats of tables that are written; `.json`, `.ndjson` and `.arrow` are read, too."""
RECORD_SUFFIXES = (".json", ".jsonl", ".ndjson", ".parquet", ".arrow")
"""The suffixes of files whose rows can hold lists and objects."""
BY_NUMBER = "--columns.text 1 --columns.label 2"
"""The options that name columns without a header."""
_PLACES = {".parquet": "row", ".arrow": "row", ".json": "record"}
"""What the number of a row counts; in other formats, a row has the number of its first line."""

_UNLABELLED = -1
"""The class that `datasets` writes for a row without a label."""

NumberedRows = Iterator[tuple[int, FileRow]]
"""The line, or the number from 1, and the values by column of each row."""


def open_rows(
    path: Path, columns: Sequence[str], layout: FileLayout, *, every: bool = False
) -> tuple[str, NumberedRows]:
    """Return what the numbers of a table's rows count ("line", "row" or "record"), and the rows.

    Args:
        columns: the columns to read.
        every: whether the other columns are read, too.

    Raises:
        BrimfulError: the file holds no table; while its rows are read: a row has a fault.
    """
    form = _find_form(path, columns, layout)
    place = _PLACES.get(form, "line")
    return place, _read_rows(path, form, place, columns, layout, every=every)


def _find_form(path: Path, columns: Sequence[str], layout: FileLayout) -> str:
    # A layout finds its columns by position, with or without a header.
    fields = [*columns, "1"] if layout.form == ".tsv" else columns
    kind = form_of(str(path), fields, by_number=BY_NUMBER)
    if layout.form and kind in ("text", layout.form[1:]):
        return layout.form
    if kind == "text" and (layout.dialect.delimiter or any(name.isdecimal() for name in columns)):
        return ".csv"  # the delimiter is the option's, or the one that the file shows
    if kind in ("text", "html"):
        raise BrimfulError(
            f"{path}: tables are {', '.join(FORMATS)}, .json, .ndjson or .arrow files with columns text,"
            f" text_b, label; columns without a header have numbers ({BY_NUMBER})"
        )
    return f".{kind}"


def is_text(path: Path, columns: Sequence[str]) -> bool:
    """Whether a file has one text per line: it is named .txt and holds no table with these columns."""
    return suffix_of(path) == ".txt" and form_of(str(path), columns, by_number=BY_NUMBER) == "text"


def _read_rows(
    path: Path, form: str, place: str, columns: Sequence[str], layout: FileLayout, *, every: bool
) -> NumberedRows:
    if form in (".parquet", ".arrow"):
        return _read_columns(path, form, None if every else columns, () if every else layout.labels)
    if form == ".json":
        return _read_records(path, place, columns)
    if form == ".jsonl":
        return _read_lines(path, columns)
    return _read_delimited(path, form, columns, layout)


def _read_delimited(path: Path, form: str, columns: Sequence[str], layout: FileLayout) -> NumberedRows:
    """Yield the rows of a sheet. A row whose width is not the header's is refused, except in a layout."""
    sheet = open_sheet(text_lines(path, newline=""), form[1:], columns, layout.dialect, str(path))
    if sheet is None:
        return
    if layout.bare and layout.columns.text not in sheet.dialect.header:
        bare = replace(sheet.dialect, header=list(layout.bare), has_header=False)
        sheet = replace(sheet, dialect=bare)
    header = sheet.dialect.header
    _require_single(path, header, columns)
    for line, fields in sheet.rows(Refusing(path=path)):
        if not any(fields):
            # An empty line is a row (with the empty text) only if the table has one column. Excel writes
            # lines of delimiters.
            if len(header) > 1:
                continue
            fields = [""]
        if len(fields) != len(header) and not layout.form:
            has_tab = sheet.dialect.delimiter == "\t" and not sheet.dialect.quote
            is_longer = len(fields) > len(header)
            hint = "; a tab within a text must become a space" if has_tab and is_longer else ""
            raise BrimfulError(
                f"{path}, line {line} has {pluralise(len(fields), 'field')}, the header {len(header)}{hint}"
            )
        row: FileRow = dict(zip(header, fields, strict=False))
        for name in row:
            if row[name] == MISSING:
                row[name] = None
        yield line, row


def _require_single(path: Path, header: Sequence[str], columns: Iterable[str]) -> None:
    """Refuse a header in which a column stands twice."""
    for name in columns:
        if header.count(name) > 1:
            raise BrimfulError(f"{path} has {header.count(name)} columns {name!r}: keep one of them")


def _read_lines(path: Path, columns: Sequence[str]) -> NumberedRows:
    """Yield the rows of lines of JSON: objects, lists (whose columns are numbered) or texts."""
    report, row_names = Refusing(path=path), RowNames(columns)
    for number, line in enumerate(text_lines(path), 1):
        if not line.strip():
            continue
        value = parse_line(line, number, report)
        if "\\u" in line:  # only an escape can spell half a pair
            _require_characters(value, f"{path}, line {number}")
        record = row_names.make_record(value, number, report)
        if record is not None:
            yield number, _as_row(record, columns)


def _read_records(path: Path, place: str, columns: Sequence[str]) -> NumberedRows:
    """Yield the rows of a file that is JSON as a whole."""
    report = Refusing(path=path, place=place)
    for number, record in json_records(str(path), text_lines(path), columns, report):
        _require_characters(record, f"{path}, {place} {number}")
        yield number, _as_row(record, columns)


def _as_row(record: str | FileRow, columns: Sequence[str]) -> FileRow:
    return {columns[0]: record} if isinstance(record, str) else record


def _require_characters(row: Any, where: str) -> None:
    """Refuse half a surrogate pair, which JSON can hold as an escape and tokenizers cannot read."""
    try:
        json.dumps(row, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        half = error.object[error.start]
        raise BrimfulError(f"{where} holds half a surrogate pair, {half!a}, which is no character") from error


def _read_columns(
    path: Path, form: str, columns: Sequence[str] | None, labels: Sequence[str] = ()
) -> NumberedRows:
    """Yield the rows of a Parquet or Arrow file, with some of its columns, or all if None. If a layout has
    labels, classes with other names stay numbers."""
    schema, rows = rows_of_columns(str(path), form[1:], columns)
    _require_single(path, schema.names, schema.names if columns is None else columns)
    classes = class_names(schema.metadata)
    if labels:
        classes = {column: names for column, names in classes.items() if {*names} <= {*labels}}
    for number, row in enumerate(rows, 1):
        if number == 1:  # a message about a missing column names all columns of the file
            row = dict.fromkeys(schema.names) | row
        for column in classes.keys() & row.keys():
            row[column] = _name_class(row[column], classes[column], f"{path}, row {number}")
        yield number, row


def class_names(metadata: Mapping[bytes, bytes] | None) -> dict[str, list[str]]:
    """Return the class names of each column in which `datasets` wrote classes or lists of classes."""
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


def _name_class(value: Any, names: Sequence[str], where: str) -> Any:
    """Return the name of a class, or the names of a list of classes."""
    if isinstance(value, list):
        return [_name_class(each, names, where) for each in value]
    if value is None or value == _UNLABELLED:
        return None
    if type(value) is not int or not 0 <= value < len(names):
        raise BrimfulError(f"{where}: {value!r:.40} is not one of the {len(names)} classes of the file")
    return names[value]
