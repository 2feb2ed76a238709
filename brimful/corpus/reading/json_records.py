"""Records of JSON in its usual forms (docs/prepare.md): lines, arrays, objects one after another, the one
list of records in an object, columns of `datasets` and pandas, SQuAD's paragraphs."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from brimful.base.console import visible
from brimful.corpus.reading.faults import CUT_JSON, NOT_JSON, NOT_RECORD, REPEATED, Report

# A value of more characters is no record; a file in which records are not found one by one is held whole.
LONGEST = 1 << 28
_READ_CHARACTERS = 1 << 16
# White space, byte order marks, and the mark before each value of a JSON text sequence.
_SPACES = re.compile("[ \t\n\r\ufeff\x1e]*")


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
    named = Named(wanted)
    for number, row in enumerate(_rows(_values(_Text(chunks), report), wanted, report), 1):
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
            if self._header is None:
                is_header = all(isinstance(name, str) for name in row) and bool({*row} & {*self._wanted})
                self._header = row if is_header else []
                if is_header:
                    return None
            if self._header:
                return dict(zip(self._header, row, strict=False))
            if row and all(isinstance(each, str) for each in row):
                if not self._numbers:
                    report.note("has lists of sentences, joined by line ends")
                    return "\n".join(row)
                if len(row) > len(self._numbers):
                    columns = " and ".join(self._numbers)
                    report.note(f"has lists of texts, of which only column {columns} is read")
            return {str(place): each for place, each in enumerate(row, 1)}
        if isinstance(row, dict):
            check_keys(row, number, report)
            return row
        if isinstance(row, str):
            return row
        if row is not None:
            report.lose(NOT_RECORD, number, f"must be a JSON object, not {json.dumps(row)[:40]}")
        return None


def _rows(values: Iterator[tuple[Any, bool]], wanted: Sequence[str], report: Report) -> Iterator[Any]:
    """The rows of a file with these values."""
    first, is_in_list = next(values, (None, False))
    second = next(values, None)
    if second is None and isinstance(first, dict) and not is_in_list:
        yield from rows_of_object(first, wanted, report)
        return
    for value, is_element in chain([(first, is_in_list)], filter(None, [second]), values):
        yield from _paragraphs(value, wanted) if is_element else [value]


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


def _values(text: "_Text", report: Report) -> Iterator[tuple[Any, bool]]:
    """The values of a text, one after the other; where it is a list, or several, their elements.

    Returns:
        each value, and whether it is an element.
    """
    count, in_lists, is_open = 0, False, False
    while mark := text.mark():
        why = ""
        if mark == "[" and not is_open and (in_lists or not count):
            in_lists = is_open = True
        elif mark == "]" and is_open:
            is_open = False
        elif mark != ",":  # commas stand between elements, also where a list lacks its brackets
            if in_lists and not is_open:
                why = "is not JSON: a list is expected"
            try:
                value = None if why else text.value()
            except (ValueError, RecursionError) as error:
                why = what_is_wrong(error, text.held)
            if why:
                report.lose(CUT_JSON, count + 1, f"{why} (line {text.line:,})")
                return
            count += 1
            yield value, in_lists
            continue
        text.at += 1
    if is_open:
        report.lose(CUT_JSON, count + 1, f"is not JSON: its list is not closed (line {text.line:,})")


class _Text:
    """A text of which a part is held: from where reading stands to about where it will be looked at.

    Attributes:
        held: the part.
        at: where reading stands in it.
    """

    def __init__(self, chunks: Iterator[str]) -> None:
        self.held = ""
        self.at = 0
        self._chunks = chunks
        self._lines_before = 0
        self._is_whole = False

    @property
    def line(self) -> int:
        """The line where reading stands, from 1."""
        return 1 + self._lines_before + self.held.count("\n", 0, self.at)

    def mark(self) -> str:
        """The next character that is no white space; empty at the end."""
        while True:
            self.at = _SPACES.match(self.held, self.at).end()  # type: ignore[union-attr]
            if self.at < len(self.held):
                return self.held[self.at]
            if self._is_whole:
                return ""
            self._read_on()

    def value(self) -> Any:
        """The value that begins here.

        Raises:
            ValueError: it is not JSON; `at` is where.
            RecursionError: it is nested too deeply.
        """
        while True:
            try:
                value, end = _DECODER.raw_decode(self.held, self.at)
            except json.JSONDecodeError as error:
                if self._is_whole or len(self.held) >= LONGEST:
                    self.at = error.pos
                    raise
            else:
                # A number may go on in the next chunk.
                if end < len(self.held) or self._is_whole:
                    self.at = end
                    return value
            self._read_on()

    def _read_on(self) -> None:
        """Hold twice as much, without what has been read."""
        self._lines_before += self.held.count("\n", 0, self.at)
        parts = [self.held[self.at :]]
        wanted = max(len(parts[0]), _READ_CHARACTERS)
        while wanted > 0 and (chunk := next(self._chunks, "")):
            parts.append(chunk)
            wanted -= len(chunk)
        self._is_whole = wanted > 0
        self.held, self.at = "".join(parts), 0
