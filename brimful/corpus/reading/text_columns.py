"""The column of text in a Parquet or Arrow file: texts, bytes of texts, or lists of both."""

import os
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

from brimful.base.errors import BrimfulError, suggest_name
from brimful.corpus.reading.faults import Report
from brimful.corpus.reading.inputs import Span
from brimful.corpus.reading.joined_texts import join_texts
from brimful.corpus.reading.tables import (
    convert_groups,
    is_binary,
    is_string,
    list_texts,
    open_groups,
    plain_column,
    require_plain,
)


class MissingFieldError(BrimfulError):
    """The records of a file lack the text field."""


def missing_field(
    path: str, field: str, names: Iterable[str], options: str = "--read.field"
) -> MissingFieldError:
    """Return the error of a file whose records have other fields than the text field."""
    hint = "its values are not texts" if field in names else suggest_name(field, names)
    return MissingFieldError(f"{path} has no text in a field {field!r}: {hint} (set {options})")


def note_repeated_column(names: list[str], field: str, span: Span, report: Report) -> None:
    """Report that several columns have the name of the text field."""
    columns = names.count(field)
    if columns > 1 and not span.begin:
        report.note(f"has {columns} columns {field!r}, the first of which is read")


def read_column(span: Span, form: str, field: str, issues: Counter[str]) -> Iterator[tuple[int, str]]:
    """Yield (row, text) of a column of a "parquet" or "arrow" file; rows count from the span's start.

    Raises:
        BrimfulError: there is no such column, it holds no text, or this machine failed.
        OSError: the file cannot be read at all.
    """
    report = Report(issues)
    require_plain(span.path)
    if form == "arrow" and not os.path.getsize(span.path):
        return
    schema, names, read_groups = open_groups(span, form, report)
    if field not in names:
        raise missing_field(span.path, field, names)
    note_repeated_column(names, field, span, report)
    column_type = schema.types[names.index(field)]
    if not _may_be_text(column_type):
        raise BrimfulError(f"{span.path}: column {field!r} holds {column_type}, not text; set --read.field")

    def convert(batch: Any) -> list[Any]:
        return _list_values(plain_column(batch.column(0)), issues)

    for begin, values in convert_groups(span.path, read_groups([field]), convert, report):
        for number, value in enumerate(values, begin):
            text = join_texts(value, report) if isinstance(value, list) else value
            if text is None:
                issues[f"records without a text {field!r}"] += 1
            else:
                yield number, text


def _may_be_text(kind: Any) -> bool:
    """Return whether values of a type can be texts, bytes of texts, or lists of texts or bytes."""
    inner = getattr(kind, "storage_type", None) or getattr(kind, "value_type", None)
    if inner is not None:
        return _may_be_text(inner)
    return str(kind) == "null" or is_string(kind) or is_binary(kind)


def _list_values(column: Any, issues: Counter[str]) -> list[Any]:
    """Return the texts of a column, None where a text is missing, or lists of texts."""
    if "list" not in str(column.type).partition("<")[0]:
        return list_texts(column, partial(_decode, issues))
    values = []
    for row in column:
        values.append(None if row.values is None else _list_values(plain_column(row.values), issues))
    return values


def _decode(issues: Counter[str], data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        text = data.decode(errors="replace")
    # U+FFFD that the file itself holds do not count.
    issues["undecodable characters"] += text.count("\ufffd") - data.decode(errors="ignore").count("\ufffd")
    return text
