"""Records of JSON in its usual forms (docs/prepare.md): lines, arrays, objects one after another, the one
list of records in an object, columns of `datasets` and pandas, SQuAD's paragraphs."""

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from brimful.base.console import visible
from brimful.corpus.reading.faults import CUT_JSON, NOT_JSON, NOT_RECORD, REPEATED, Report

# A value of more characters is no record; a file in which records are not found one by one is held whole.
LONGEST = 1 << 28
_SPACE = " \t\n\r\ufeff\x1e"
_END = object()


class _Repeated(dict[str, Any]):
    """An object with a key twice."""


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    return found if len(found) == len(pairs) else _Repeated(found)


def _number(digits: str) -> int | float:
    return int(digits) if len(digits) < 4000 else float(digits)


_DECODER = json.JSONDecoder(object_pairs_hook=_object, parse_int=_number)


def what_is_wrong(error: Exception, text: str) -> str:
    """Why a text is not JSON, in words of our own."""
    if isinstance(error, RecursionError):
        return "is not JSON: it is nested too deeply"
    if isinstance(error, json.JSONDecodeError):
        rest = visible(text[error.pos : error.pos + 20].split("\n")[0])
        return f"is not JSON from {rest!r} on" if rest else "is not JSON: it ends too early"
    return "is not JSON"


def json_line(line: str, number: int, report: Report) -> Any:
    """The value of a line; None if it is lost."""
    try:
        return _DECODER.decode(line)
    except (ValueError, RecursionError) as error:
        report.lose(NOT_JSON, number, what_is_wrong(error, line))
        return None


def check_keys(value: Any, number: int, report: Report) -> None:
    """Report an object in which a key stands twice."""
    if isinstance(value, _Repeated):
        report.lose(REPEATED, number)


def json_records(
    chunks: Iterator[str], wanted: Sequence[str], report: Report
) -> Iterator[tuple[int, dict[str, Any] | str]]:
    """The records of a file, numbered from 1.

    Args:
        chunks: the file's text.
        wanted: the names of columns that are looked for.
    """
    values = _Values(chunks, report)
    first = next(values, _END)
    if first is _END:
        return
    named = Named(wanted)
    for number, row in enumerate(_rows(first, values, wanted, report), 1):
        record = named.record(row, number, report)
        if record is not None:
            yield number, record


class Named:
    """Gives names to rows that are lists: those of a first row with a column that is wanted, or numbers."""

    def __init__(self, wanted: Sequence[str]) -> None:
        self._wanted = wanted
        self._header: list[str] | None = None

    def record(self, row: Any, number: int, report: Report) -> dict[str, Any] | str | None:
        """The record that a row of JSON is; None if it is a header, null or lost."""
        if isinstance(row, list):
            if self._header is None:
                is_header = all(isinstance(name, str) for name in row) and bool({*row} & {*self._wanted})
                self._header = row if is_header else []
                if is_header:
                    return None
            names = self._header or [str(place) for place in range(1, len(row) + 1)]
            return dict(zip(names, row, strict=False))
        if isinstance(row, dict):
            check_keys(row, number, report)
            return row
        if isinstance(row, str):
            return row
        if row is not None:
            report.lose(NOT_RECORD, number, f"must be a JSON object, not {json.dumps(row)[:40]}")
        return None


def _rows(first: Any, values: "_Values", wanted: Sequence[str], report: Report) -> Iterator[Any]:
    """The rows of a file whose first value is this; of a list, the first element."""
    if values.in_list:
        for value in chain([first], values):
            yield from _paragraphs(value, wanted)
        return
    second = next(values, _END)
    if second is not _END or not isinstance(first, dict):
        yield from chain([first], [] if second is _END else [second], values)
    else:
        yield from rows_of_object(first, wanted, report)


def rows_of_object(value: dict[str, Any], wanted: Sequence[str], report: Report) -> Iterator[Any]:
    """The rows of an object that is a whole file."""
    names, data = value.get("columns"), value.get("data")
    if isinstance(names, list) and _is_list_of(data, list):
        yield from (dict(zip(map(str, names), row, strict=False)) for row in data or [])
        return
    found = [name for name in wanted if name in value]
    if found and all(_is_list_of(each, (str, int, float, type(None))) for each in value.values()):
        columns = {len(each) for each in value.values()}
        if len(columns) == 1:
            yield from (dict(zip(value, row, strict=True)) for row in zip(*value.values(), strict=True))
            return
    if found and all(isinstance(each, Mapping) for each in value.values()):
        rows = dict.fromkeys(chain.from_iterable(value.values()))
        yield from ({name: column.get(row) for name, column in value.items()} for row in rows)
        return
    if found:
        yield value
        return
    lists = [name for name, each in value.items() if _is_list_of(each, (dict, str, list)) and each]
    if len(lists) > 1:
        lists = [name for name in lists if _is_list_of(value[name], dict)]
    if lists:
        if len(lists) > 1:
            report.note(f"has several lists of records, {', '.join(lists)}: all of them are read")
        for name in lists:
            for each in value[name]:
                yield from _paragraphs(each, wanted)
    elif len(value) > 1 and all(isinstance(each, dict) for each in value.values()):
        yield from value.values()
    else:
        yield value


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


class _Values:
    """The values of a text, one after the other; where it is a list, or several, their elements.

    Attributes:
        in_list: whether the text is a list; known after the first value.
    """

    def __init__(self, chunks: Iterator[str], report: Report) -> None:
        self._chunks = chunks
        self._report = report
        self._text = ""
        self._at = 0
        self._line = 1
        self._is_whole = False
        self._is_open = False
        self._count = 0
        self.in_list = False

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        mark = self._mark()
        self.in_list = self.in_list or (mark == "[" and not self._count)
        while mark and self.in_list and (mark in ",]" or not self._is_open):
            if (mark == "[") == self._is_open and mark != ",":
                self._lose("is not JSON: a list is expected")
            self._is_open = mark != "]" and (self._is_open or mark == "[")
            self._at += 1
            mark = self._mark()
        while mark == "," and self._count and not self.in_list:  # what is left of a list without brackets
            self._at += 1
            mark = self._mark()
        if not mark:
            if self._is_open:
                self._lose("is not JSON: its list is not closed")
            raise StopIteration
        value = self._value()
        self._count += 1
        return value

    def _lose(self, why: str) -> None:
        line = self._line + self._text.count("\n", 0, self._at)
        self._report.lose(CUT_JSON, self._count + 1, f"{why} (line {line:,})")
        self._at, self._text, self._is_open = 0, "", False
        self._chunks = iter(())
        raise StopIteration

    def _mark(self) -> str:
        """The next character that is no white space; empty at the end."""
        while True:
            rest = len(self._text)
            while self._at < rest and self._text[self._at] in _SPACE:
                self._at += 1
            if self._at < rest:
                return self._text[self._at]
            if self._is_whole:
                return ""
            self._read_on()

    def _read_on(self) -> None:
        """Hold twice as much, without what has been read."""
        held = self._text[self._at :]
        self._line += self._text.count("\n", 0, self._at)
        parts, wanted = [held], max(len(held), 1 << 16)
        while wanted > 0 and (chunk := next(self._chunks, "")):
            parts.append(chunk)
            wanted -= len(chunk)
        self._is_whole = wanted > 0
        self._text, self._at = "".join(parts), 0

    def _value(self) -> Any:
        while True:
            try:
                value, end = _DECODER.raw_decode(self._text, self._at)
            except (ValueError, RecursionError) as error:
                is_cut = isinstance(error, json.JSONDecodeError) and not self._is_whole
                if is_cut and len(self._text) < LONGEST:
                    self._read_on()
                    continue
                self._at = getattr(error, "pos", self._at)
                self._lose(what_is_wrong(error, self._text))
            if end < len(self._text) or self._is_whole:
                self._at = end
                return value
            self._read_on()
