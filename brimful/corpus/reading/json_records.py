"""Records of JSON (docs/prepare.md): lines, arrays, the list of records in an object, SQuAD's paragraphs."""

import json
import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any

from brimful.base.console import escape_controls, quote_for_shell
from brimful.base.errors import BrimfulError
from brimful.base.types import Values
from brimful.corpus.reading.faults import CUT_JSON, NOT_JSON, NOT_RECORD, REPEATED, Report
from brimful.corpus.reading.inputs import split_suffix

JOINED_SENTENCES = "has lists of sentences, joined by line ends"
# An array is read in pieces of at least the first size. Reading ends at an element above the second size.
_LEAST_CHARACTERS = 1 << 16
_MOST_CHARACTERS = 1 << 28
# White space, byte order marks, and commas between the elements of an array.
_BETWEEN_ELEMENTS = re.compile("[ \t\n\r\ufeff,]*")
AROUND_VALUES = " \t\n\r\ufeff\x1e"

# Programs of jq. In the output of the first one, the first row names the columns.
_TRANSPOSE_COLUMNS = "keys_unsorted, ([.[] | [.[]]] | transpose[])"
_FIND_RECORDS = 'def records: if type == "object" and ({}) then . else .[]? | records end; records'


class _RepeatedKeys(dict[str, Any]):
    """An object in which a key occurs twice."""


def _make_object(pairs: list[tuple[str, Any]]) -> Values:
    value = dict(pairs)
    if len(value) < len(pairs):
        return _RepeatedKeys(value)
    return value


_DECODER = json.JSONDecoder(object_pairs_hook=_make_object)


def _describe_error(error: Exception, text: str) -> str:
    """Return why a text is not JSON, in words of our own."""
    if not isinstance(error, json.JSONDecodeError):
        return "is not JSON"
    place = escape_controls(text[error.pos : error.pos + 20].split("\n")[0])
    return f"is not JSON from {place!r} on" if place else "is not JSON: it ends too early"


def is_list_of(value: Any, kinds: Any) -> bool:
    """Return whether a value is a list whose elements have these types."""
    return isinstance(value, list) and all(isinstance(element, kinds) for element in value)


def parse_line(line: str, number: int, report: Report) -> Any:
    """Return the value of a line; None if it is lost."""
    try:
        return _DECODER.decode(line)
    except (ValueError, RecursionError) as error:
        report.lose(NOT_JSON, number, _describe_error(error, line))
        return None


def json_records(
    path: str, chunks: Iterator[str], fields: Sequence[str], report: Report
) -> Iterator[tuple[int, Values | str]]:
    """Yield the records of a file, numbered from 1. One record of an array at a time is held in memory.

    Args:
        chunks: the file's text.
        fields: the names of the columns to look for.

    Raises:
        BrimfulError: the file holds several values, columns or deeper lists instead of records.
    """
    row_names = RowNames(fields)
    head = ""
    while not head and (chunk := next(chunks, "")):
        head = chunk.lstrip(AROUND_VALUES)
    if head.startswith("["):
        values = _read_elements(chain([head], chunks), report)
    else:
        value = _parse_whole(path, head + "".join(chunks), report)
        values = iter(_find_rows(path, value, fields, report))
    rows = chain.from_iterable(_list_paragraphs(value, fields) for value in values)
    for number, row in enumerate(rows, 1):
        if row and is_list_of(row, list):
            raise _refuse(path, "holds lists of paragraphs of sentences", ".[] | flatten")
        record = row_names.make_record(row, number, report)
        if record is not None:
            yield number, record


class RowNames:
    """Names the values of rows that are lists.

    The names are the first row if it has one of the fields, and numbers if a field is a number. Otherwise a
    list of texts is a document, as in files of sentences for BERT.
    """

    def __init__(self, fields: Sequence[str]) -> None:
        self._fields = fields
        self._numbers = list(filter(str.isdecimal, fields))
        self._header: list[str] | None = None

    def make_record(self, row: Any, number: int, report: Report) -> Values | str | None:
        """Return the record of a row of JSON; None if the row is a header, null or lost."""
        if isinstance(row, list):
            return self._name_values(row, report)
        if isinstance(row, _RepeatedKeys):
            report.lose(REPEATED, number)
        if row is None or isinstance(row, dict | str):
            return row
        report.lose(NOT_RECORD, number, f"must be a JSON object, not {json.dumps(row)[:40]}")
        return None

    def _name_values(self, row: list[Any], report: Report) -> Values | str | None:
        are_texts = bool(row) and is_list_of(row, str)
        if self._header is None:
            self._header = []
            if are_texts and not set(row).isdisjoint(self._fields):
                self._header = row
                return None
        if self._header:
            return dict(zip(self._header, row, strict=False))
        if are_texts and not self._numbers:
            report.note(JOINED_SENTENCES)
            return "\n".join(row)
        if are_texts and len(row) > len(self._numbers):
            columns = " and ".join(self._numbers)
            report.note(f"has lists of texts, of which only column {columns} is read")
        return {str(place): value for place, value in enumerate(row, 1)}


def _find_rows(path: str, value: Any, fields: Sequence[str], report: Report) -> Iterable[Any]:
    """Return the rows of the one value of a file: the elements of its list, or the value itself."""
    if not isinstance(value, dict):
        return [value]
    if not set(fields).isdisjoint(value):
        # pandas writes a table as an object of columns of one length.
        sizes = {len(column) if isinstance(column, list | dict) else -1 for column in value.values()}
        if len(sizes) == 1 and sizes != {-1}:
            what = "holds columns, not a list of records (a record of lists is read from a .jsonl)"
            raise _refuse(path, what, _TRANSPOSE_COLUMNS)
        return [value]
    columns = value.get("columns")
    if "data" in value and isinstance(columns, list) and any(field in columns for field in fields):
        return [columns, *value["data"]]  # a table as pandas splits it
    lists = [inner for inner in value.values() if inner and is_list_of(inner, dict | str | list)]
    if len(lists) > 1:
        if len(lists) == len(value) and all(is_list_of(inner, str) for inner in lists):
            raise _refuse(path, "holds lists of texts by name, not a list of records", ".[]")
        lists = [inner for inner in lists if is_list_of(inner, dict)]
    if not lists and _holds_record(value, fields):
        condition = " or ".join(f"has({json.dumps(field)})" for field in fields)
        raise _refuse(path, "holds its records within other objects", _FIND_RECORDS.format(condition))
    if len(lists) > 1:
        report.note(f"has {len(lists)} lists of records: all of them are read")
    return chain.from_iterable(lists) if lists else [value]


def _holds_record(value: Any, fields: Sequence[str]) -> bool:
    """Return whether a value is an object with one of the fields, or holds one, however deep."""
    if isinstance(value, dict):
        if not set(fields).isdisjoint(value):
            return True
        value = list(value.values())
    return isinstance(value, list) and any(_holds_record(inner, fields) for inner in value)


def _refuse(path: str, what: str, program: str) -> BrimfulError:
    """Return the error of a file that a program of jq can convert."""
    compression = split_suffix(path)[1]
    source = path[: len(path) - len(compression)]
    unpack = "unpack it, then " if compression else ""
    command = f"jq -c {shlex.quote(program)} {quote_for_shell(source)} > {quote_for_shell(source + '.jsonl')}"
    return BrimfulError(f"{path} {what}; {unpack}convert it: {command}")


def _list_paragraphs(value: Any, fields: Sequence[str]) -> Iterator[Any]:
    """Yield a record, or the paragraphs of an article of SQuAD, each with the article's other entries."""
    paragraphs = value.get("paragraphs") if isinstance(value, dict) else None
    if not paragraphs or not is_list_of(paragraphs, dict) or not set(fields).isdisjoint(value):
        yield value
        return
    for paragraph in paragraphs:
        record = {**value, **paragraph}
        if "paragraphs" not in paragraph:
            del record["paragraphs"]
        yield record


def _parse_whole(path: str, text: str, report: Report) -> Any:
    """Return the one value of a file; None if the file is not JSON."""
    try:
        value, end = _DECODER.raw_decode(text)
    except (ValueError, RecursionError) as error:
        if text:
            report.lose(CUT_JSON, 1, _describe_error(error, text))
        return None
    if text[end:].strip(AROUND_VALUES):
        raise _refuse(path, "holds several values, not one a line", ".")
    return value


def _read_elements(chunks: Iterable[str], report: Report) -> Iterator[Any]:
    """Yield the elements of an array, or of several, one after the other."""
    number, is_open = 1, False
    parts = []
    size, goal = 0, _LEAST_CHARACTERS
    for chunk in chain(chunks, [""]):  # an empty chunk ends the file
        parts.append(chunk)
        size += len(chunk)
        if chunk and size < goal:
            continue
        text = "".join(parts)
        at = 0
        while True:
            at = _BETWEEN_ELEMENTS.match(text, at).end()  # type: ignore[union-attr]
            if text.startswith("]" if is_open else "[", at):
                is_open = not is_open
                at += 1
                continue
            if at == len(text) and not is_open:
                break
            try:
                value, end = _DECODER.raw_decode(text, at)
            except (ValueError, RecursionError) as error:
                if not chunk or len(text) >= _MOST_CHARACTERS:
                    report.lose(CUT_JSON, number, _describe_error(error, text))
                    return
                break
            # A number may go on in the next chunk.
            if chunk and end == len(text):
                break
            yield value
            number += 1
            at = end
        # An incomplete element is parsed again when twice as much text is held, so the time stays linear.
        parts, size = [text[at:]], len(text) - at
        goal = max(2 * size, _LEAST_CHARACTERS)
