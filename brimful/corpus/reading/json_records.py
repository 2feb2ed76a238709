"""Records of JSON (docs/prepare.md): lines, arrays, the list of records in an object, SQuAD's paragraphs."""

import json
import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any

from brimful.base.console import escape_controls, quote_for_shell
from brimful.base.errors import BrimfulError
from brimful.corpus.reading.faults import CUT_JSON, NOT_JSON, NOT_RECORD, REPEATED, Report
from brimful.corpus.reading.inputs import split_suffix
from brimful.corpus.reading.values import JOINED_SENTENCES

# An array is read in pieces of so many characters; an element of more is no record.
_LEAST_CHARACTERS = 1 << 16
_MOST_CHARACTERS = 1 << 28
# White space, byte order marks, and what stands between the elements of an array.
_BETWEEN_ELEMENTS = re.compile("[ \t\n\r\ufeff,]*")
_AROUND = " \t\n\r\ufeff\x1e"

# Programs of jq. In a list, a first row names columns.
_COLUMNS = "keys_unsorted, ([.[] | [.[]]] | transpose[])"
_DEEPER = 'def records: if type == "object" and ({}) then . else .[]? | records end; records'


class _Repeated(dict[str, Any]):
    """An object with a key twice."""


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    return found if len(found) == len(pairs) else _Repeated(found)


_DECODER = json.JSONDecoder(object_pairs_hook=_object)


def _what_is_wrong(error: Exception, text: str) -> str:
    """Why a text is not JSON, in words of our own."""
    if isinstance(error, json.JSONDecodeError):
        rest = escape_controls(text[error.pos : error.pos + 20].split("\n")[0])
        return f"is not JSON from {rest!r} on" if rest else "is not JSON: it ends too early"
    return "is not JSON"


def json_line(line: str, number: int, report: Report) -> Any:
    """The value of a line; None if it is lost."""
    try:
        return _DECODER.decode(line)
    except (ValueError, RecursionError) as error:
        report.lose(NOT_JSON, number, _what_is_wrong(error, line))
        return None


def check_keys(value: Any, number: int, report: Report) -> None:
    """Report an object in which a key stands twice."""
    if isinstance(value, _Repeated):
        report.lose(REPEATED, number)


def json_records(
    path: str, chunks: Iterator[str], wanted: Sequence[str], report: Report
) -> Iterator[tuple[int, dict[str, Any] | str]]:
    """The records of a file, numbered from 1. Of an array, one record at a time is held in memory.

    Args:
        chunks: the file's text.
        wanted: the names of columns that are looked for.

    Raises:
        BrimfulError: it holds several values, columns or deeper lists instead of records.
    """
    named = Named(wanted)
    head = ""
    while not head and (chunk := next(chunks, "")):
        head = chunk.lstrip(_AROUND)
    if head.startswith("["):
        values = _elements(chain([head], chunks), report)
    else:
        values = iter(_rows_of_object(path, _whole(path, head + "".join(chunks), report), wanted, report))
    rows = chain.from_iterable(_paragraphs(value, wanted) for value in values)
    for number, row in enumerate(rows, 1):
        if row and _is_list_of(row, list):
            raise _refusal(path, "holds lists of paragraphs of sentences", ".[] | flatten")
        record = named.record(row, number, report)
        if record is not None:
            yield number, record


class Named:
    """Gives names to rows that are lists: those of a first row with a column that is wanted, or numbers where
    a number is wanted. Else a list of texts is a document, as in files of sentences for BERT."""

    def __init__(self, wanted: Sequence[str]) -> None:
        self._wanted = wanted
        self._numbers = [name for name in wanted if name.isdecimal()]
        self._header: list[str] | None = None

    def record(self, row: Any, number: int, report: Report) -> dict[str, Any] | str | None:
        """The record that a row of JSON is; None if it is a header, null or lost."""
        if isinstance(row, list):
            return self._record_of_list(row, report)
        if isinstance(row, dict):
            check_keys(row, number, report)
            return row
        if isinstance(row, str):
            return row
        if row is not None:
            report.lose(NOT_RECORD, number, f"must be a JSON object, not {json.dumps(row)[:40]}")
        return None

    def _record_of_list(self, row: list[Any], report: Report) -> dict[str, Any] | str | None:
        are_texts = bool(row) and _is_list_of(row, str)
        if self._header is None:
            is_header = are_texts and not {*row}.isdisjoint(self._wanted)
            self._header = row if is_header else []
            if is_header:
                return None
        if self._header:
            return dict(zip(self._header, row, strict=False))
        if are_texts and not self._numbers:
            report.note(JOINED_SENTENCES)
            return "\n".join(row)
        if are_texts and len(row) > len(self._numbers):
            columns = " and ".join(self._numbers)
            report.note(f"has lists of texts, of which only column {columns} is read")
        return {str(place): each for place, each in enumerate(row, 1)}


def _rows_of_object(path: str, value: Any, wanted: Sequence[str], report: Report) -> Iterable[Any]:
    """The rows of a value that is a whole file: the elements of its list, or itself.

    Raises:
        BrimfulError: it is an object of columns, as pandas writes it, or its records lie deeper.
    """
    if not isinstance(value, dict):
        return [value]
    sizes = {len(each) if isinstance(each, list | dict) else -1 for each in value.values()}
    if any(name in value for name in wanted):
        if len(sizes) == 1 and sizes != {-1}:
            what = "holds columns, not a list of records (a record of lists is read from a .jsonl)"
            raise _refusal(path, what, _COLUMNS)
        return [value]
    names = value.get("columns")
    if "data" in value and isinstance(names, list) and any(name in names for name in wanted):
        return [names, *value["data"]]  # as pandas splits a table
    lists = [each for each in value.values() if each and _is_list_of(each, dict | str | list)]
    if len(lists) > 1:
        if len(lists) == len(value) and all(_is_list_of(each, str) for each in lists):
            raise _refusal(path, "holds lists of texts by name, not a list of records", ".[]")
        lists = [each for each in lists if _is_list_of(each, dict)]
    if not lists and _holds_record(value, wanted):
        choice = " or ".join(f"has({json.dumps(name)})" for name in wanted)
        raise _refusal(path, "holds its records within other objects", _DEEPER.format(choice))
    if len(lists) > 1:
        report.note(f"has {len(lists)} lists of records: all of them are read")
    return chain.from_iterable(lists) if lists else [value]


def _holds_record(value: Any, wanted: Sequence[str]) -> bool:
    """Is there an object with a wanted field, however deep?"""
    if isinstance(value, dict) and any(name in value for name in wanted):
        return True
    inner = value.values() if isinstance(value, dict) else value
    return isinstance(value, dict | list) and any(_holds_record(each, wanted) for each in inner)


def _refusal(path: str, what: str, program: str) -> BrimfulError:
    """The error of a file that a program of jq can convert."""
    compression = split_suffix(path)[1]
    source = path[: len(path) - len(compression)]
    unpack = "unpack it, then " if compression else ""
    command = f"jq -c {shlex.quote(program)} {quote_for_shell(source)} > {quote_for_shell(source + '.jsonl')}"
    return BrimfulError(f"{path} {what}; {unpack}convert it: {command}")


def _is_list_of(value: Any, kinds: Any) -> bool:
    return isinstance(value, list) and all(isinstance(each, kinds) for each in value)


def _paragraphs(value: Any, wanted: Sequence[str]) -> Iterator[Any]:
    """A record, or the paragraphs of an article of SQuAD."""
    inner = value.get("paragraphs") if isinstance(value, dict) else None
    if _is_list_of(inner, dict) and inner and not any(name in value for name in wanted):
        around = {name: each for name, each in value.items() if name != "paragraphs"}
        yield from ({**around, **each} for each in inner)
    else:
        yield value


def _whole(path: str, text: str, report: Report) -> Any:
    """The one value of a file; None if it is none."""
    try:
        value, end = _DECODER.raw_decode(text)
    except (ValueError, RecursionError) as error:
        if text:
            report.lose(CUT_JSON, 1, _what_is_wrong(error, text))
        return None
    if text[end:].strip(_AROUND):
        raise _refusal(path, "holds several values, not one a line", ".")
    return value


def _elements(chunks: Iterable[str], report: Report) -> Iterator[Any]:
    """The elements of an array, or of several, one after the other."""
    number, is_open = 1, False
    parts: list[str] = []
    size, goal = 0, _LEAST_CHARACTERS
    for chunk in chain(chunks, [""]):
        parts.append(chunk)
        size += len(chunk)
        if chunk and size < goal:
            continue
        held = "".join(parts)
        at = 0
        while True:
            at = _BETWEEN_ELEMENTS.match(held, at).end()  # type: ignore[union-attr]
            if held.startswith("]" if is_open else "[", at):
                is_open = not is_open
                at += 1
                continue
            if at == len(held) and not is_open:
                break
            try:
                value, end = _DECODER.raw_decode(held, at)
            except (ValueError, RecursionError) as error:
                if not chunk or len(held) >= _MOST_CHARACTERS:
                    report.lose(CUT_JSON, number, _what_is_wrong(error, held))
                    return
                break
            # A number may go on in the next chunk.
            if chunk and end == len(held):
                break
            yield value
            number += 1
            at = end
        # An element that is not whole is looked at again when twice as much is held.
        parts, size = [held[at:]], len(held) - at
        goal = max(2 * size, _LEAST_CHARACTERS)
