"""Rows of CSV and TSV, in the dialect of the file. A quote that is never closed costs only its own line."""

import csv
import re
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from typing import Any

from brimful.corpus.reading.dialects import SAMPLE_CHARACTERS, Dialect, DialectOptions, find_dialect
from brimful.corpus.reading.faults import AFTER_QUOTE, AFTER_UNCLOSED, LATE_QUOTE, UNCLOSED, Report

# A longer row is taken for an unclosed quote.
LONGEST_ROW_CHARACTERS = 1 << 24
# Each line costs this much on top of its characters, to bound the memory of many short lines.
_LINE_CHARACTERS = 16
# Characters that may be read twice, in addition to the characters of good rows. This keeps the time linear.
_SPARE_CHARACTERS = 4 * LONGEST_ROW_CHARACTERS

Lines = Iterator[str | None]
"""The lines of a file, with their ends; None stands for a line that was too long."""
NumberedFields = Iterator[tuple[int, list[str]]]
"""Rows, each with the number of its first line; an empty row for an empty line or a lost one."""


@dataclass(frozen=True)
class Sheet:
    """A file of delimited rows that has been opened: its dialect, and its lines from the beginning."""

    dialect: Dialect
    lines: Lines

    def rows(self, report: Report) -> NumberedFields:
        """Return the rows after the header."""
        skipped = self.dialect.skipped
        rows = read_rows(islice(self.lines, skipped, None), self.dialect, report, skipped + 1)
        if self.dialect.has_header:
            for _, row in rows:
                if row:  # empty lines may stand before the header
                    break
        return rows


def open_sheet(
    lines: Lines, form: str, columns: Sequence[str], options: DialectOptions, path: str
) -> Sheet | None:
    """Find the dialect of a file; None if all its lines are empty.

    Args:
        form: "csv" or "tsv".
        columns: names of columns to look for, or their numbers from 1 in a file without a header.

    Raises:
        BrimfulError: `find_dialect` refuses the file.
    """
    head = []
    characters = 0
    for line in lines:
        head.append(line)
        characters += len(line or "") + 1
        if characters > SAMPLE_CHARACTERS:
            break
    sample = [(line or "").rstrip("\r\n") for line in head]
    if not any(sample):
        return None
    dialect = find_dialect(sample, form, columns, options, path, complete=characters <= SAMPLE_CHARACTERS)
    return Sheet(dialect, chain(head, lines))


def read_rows(lines: Lines, dialect: Dialect, report: Report, first: int = 1) -> NumberedFields:
    """Return the rows of lines in a dialect.

    Args:
        first: the number of the first line.
    """
    if dialect.quote:
        return iter(_QuotedRows(lines, dialect, report, first))
    return _split_lines(lines, dialect, report, first)


def _split_lines(lines: Lines, dialect: Dialect, report: Report, first: int) -> NumberedFields:
    delimiter = dialect.delimiter
    mark = re.escape(delimiter)
    enclosed = re.compile(f'(?:^|{mark})"[^{mark}]*"')  # a quote that does not close in its line is text
    for number, line in enumerate(lines, first):
        row = (line or "").rstrip("\r\n")
        if dialect.is_open and '"' in row and enclosed.search(row):
            report.lose(LATE_QUOTE, number)
        yield number, row.split(delimiter) if row else []


class _QuotedRows:
    """Iterates over the rows of a dialect with quotes, each with the number of its first line.

    An empty line gives an empty row, and so does a row that is given up. A quote counts as never closed if
    the file or 16 MB end before it closes, or if it closes within a word of a later line. Then the first line
    of its row is given up, and the lines after it are read again. Until a good row has been read from new
    lines, lines of another width than the first row are lost.

    Args:
        lines: lines with their ends; None stands for a line that was too long.
        report: takes the lost lines.
        first: the number of the first line.
    """

    def __init__(self, lines: Iterable[str | None], dialect: Dialect, report: Report, first: int) -> None:
        csv.field_size_limit(2 * LONGEST_ROW_CHARACTERS)
        self._reader = partial(
            csv.reader,
            delimiter=dialect.delimiter,
            quotechar=dialect.quote,
            skipinitialspace=dialect.skips_blanks,
        )
        self._report = report
        self._new_lines = iter(lines)
        self._lines_again: deque[str | None] = deque()
        # The lines of the current row, their cost, and the number of the first one.
        self._row_lines: list[Any] = []
        self._cost = 0
        self._first = first

    def __iter__(self) -> Iterator[tuple[int, list[str]]]:
        rows = self._reader(self._hold_lines(), strict=True)
        spare, width, is_doubtful = _SPARE_CHARACTERS, 0, False
        while True:
            try:
                row = next(rows, None)
            except csv.Error as error:
                rows = self._reader(self._hold_lines(), strict=True)  # a reader can't go on after an error
                if len(self._row_lines) > 1 or "end of data" in str(error):
                    spare -= self._cost
                    yield self._first, []
                    self._give_up(whole_row=spare < 0)
                    is_doubtful = True
                    continue
                row = self._read_leniently()
            if row is None:
                return
            width = width or len(row)
            if is_doubtful and len(row) not in (0, width):
                self._lose_lines(0)
            else:
                is_doubtful = is_doubtful and bool(self._lines_again or not row)
                spare += self._cost
                yield self._first, row
            self._go_on()

    def _read_leniently(self) -> list[str]:
        """Return the row of a line with text after a closing quote; an empty row if the line is too long."""
        if self._row_lines[0] is None:
            return []
        self._report.lose(AFTER_QUOTE, self._first)
        return next(self._reader(self._row_lines, strict=False), [])

    def _hold_lines(self) -> Iterator[Any]:
        """Yield the lines, and hold them until their row ends; None makes the reader fail."""
        while True:
            if self._lines_again:
                line = self._lines_again.popleft()
            else:
                try:
                    line = next(self._new_lines)
                except StopIteration:
                    return
            self._row_lines.append(line)
            self._cost += len(line or "") + _LINE_CHARACTERS
            yield line if self._cost <= LONGEST_ROW_CHARACTERS or len(self._row_lines) == 1 else None

    def _give_up(self, *, whole_row: bool) -> None:
        """Give up the first line of a row and read its other lines again; or give up the whole row."""
        self._report.lose(UNCLOSED, self._first)
        if whole_row:
            self._lose_lines(1)
        else:
            self._lines_again.extendleft(reversed(self._row_lines[1:]))
            del self._row_lines[1:]
        self._go_on()

    def _lose_lines(self, begin: int) -> None:
        for number in range(begin, len(self._row_lines)):
            self._report.lose(AFTER_UNCLOSED, self._first + number)

    def _go_on(self) -> None:
        """Go on to the next row."""
        self._first += len(self._row_lines)
        self._row_lines.clear()
        self._cost = 0
