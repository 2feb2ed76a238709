"""Rows of CSV and TSV, in the dialect of the file. A quote that is never closed costs its own line only."""

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

LONGEST_ROW_CHARACTERS = 1 << 24
"""A longer row is taken for an unclosed quote."""
_LINE_CHARACTERS = 16
"""Each line counts this much on top of its characters, to bound the memory of many short lines."""
_SPARE_CHARACTERS = 4 * LONGEST_ROW_CHARACTERS
"""What may be read twice, beside the characters of good rows. This keeps the time linear."""

Lines = Iterator[str | None]
"""The lines of a file, with their ends; None stands for a line that was too long."""
Numbered = Iterator[tuple[int, list[str]]]
"""Rows, each with the number of its first line; an empty one for an empty line or a lost one."""


@dataclass(frozen=True)
class Sheet:
    """A file of delimited rows that has been opened.

    Attributes:
        lines: from its beginning.
    """

    dialect: Dialect
    lines: Lines

    def rows(self, report: Report) -> Numbered:
        """The rows behind the header."""
        skipped = self.dialect.skipped
        rows = read_rows(islice(self.lines, skipped, None), self.dialect, report, skipped + 1)
        if self.dialect.has_header:
            for _, row in rows:
                if row:
                    break
        return rows


def open_sheet(
    lines: Lines, form: str, wanted: Sequence[str], options: DialectOptions, path: str
) -> Sheet | None:
    """Find the dialect of a file; None if it has no line that is not empty.

    Args:
        form: "csv" or "tsv".
        wanted: names of columns, or their numbers from 1 if there is no header.

    Raises:
        BrimfulError: as `find_dialect`.
    """
    head: list[str | None] = []
    characters, complete = 0, True
    for line in lines:
        head.append(line)
        characters += len(line or "") + 1
        if characters > SAMPLE_CHARACTERS:
            complete = False
            break
    sample = [(line or "").rstrip("\r\n") for line in head]
    if not any(sample):
        return None
    dialect = find_dialect(sample, form, wanted, options, path, complete=complete)
    return Sheet(dialect, chain(head, lines))


def read_rows(lines: Lines, dialect: Dialect, report: Report, first: int = 1) -> Numbered:
    """The rows of lines in a dialect.

    Args:
        first: the number of the first line.
    """
    if dialect.quote:
        return iter(CsvRows(lines, dialect, report, first))
    return _plain(lines, dialect, report, first)


def _plain(lines: Lines, dialect: Dialect, report: Report, first: int) -> Numbered:
    delimiter = dialect.delimiter
    mark = re.escape(delimiter)
    enclosed = re.compile(f'(?:^|{mark})"[^{mark}]*"')  # a quote that does not close in its line is text
    for number, line in enumerate(lines, first):
        row = (line or "").rstrip("\r\n")
        if dialect.is_open and '"' in row and enclosed.search(row):
            report.lose(LATE_QUOTE, number)
        yield number, row.split(delimiter) if row else []


class CsvRows:
    """Iterates over the rows of a dialect with quotes, each with the number of its first line.

    An empty line gives an empty row, and so does a row that is given up. A quote counts as never closed if
    the file ends in it, if it closes within a word of a later line, or after 16 MB. Then the first line of
    its row is given up, and the lines after it are read again: those of another width than the first row are
    lost until a good row has been read from new lines.

    Args:
        lines: with their ends; None stands for a line that was too long.
        report: takes the lost lines.
        first: the number of the first line.
    """

    def __init__(self, lines: Iterable[str | None], dialect: Dialect, report: Report, first: int = 1) -> None:
        csv.field_size_limit(2 * LONGEST_ROW_CHARACTERS)
        self._reader = partial(
            csv.reader,
            delimiter=dialect.delimiter,
            quotechar=dialect.quote,
            skipinitialspace=dialect.skips_blanks,
        )
        self._report = report
        self._new = iter(lines)
        self._again: deque[str | None] = deque()
        # The lines of the current row, what they count, and the number of the first one.
        self._held: list[Any] = []
        self._cost = 0
        self._first = first

    def __iter__(self) -> Iterator[tuple[int, list[str]]]:
        rows = self._reader(self._lines(), strict=True)
        spare, width, is_doubtful = _SPARE_CHARACTERS, 0, False
        while True:
            try:
                row = next(rows, None)
            except csv.Error as error:
                rows = self._reader(self._lines(), strict=True)
                if len(self._held) > 1 or "end of data" in str(error):
                    spare -= self._cost
                    yield self._first, []
                    self._give_up(spare < 0)
                    is_doubtful = True
                    continue
                row = self._lenient()
            if row is None:
                return
            width = width or len(row)
            if is_doubtful and len(row) not in (0, width):
                self._lose_lines(0)
            else:
                is_doubtful = is_doubtful and bool(self._again or not row)
                spare += self._cost
                yield self._first, row
            self._drop()

    def _lenient(self) -> list[str]:
        """The row of a line with text behind a closing quote; an empty one of a line that was too long."""
        if self._held[0] is None:
            return []
        self._report.lose(AFTER_QUOTE, self._first)
        return next(self._reader(self._held, strict=False), [])

    def _lines(self) -> Iterator[Any]:
        """The lines, held until their row ends; None makes the reader fail."""
        held = self._held
        while True:
            if self._again:
                line = self._again.popleft()
            else:
                try:
                    line = next(self._new)
                except StopIteration:
                    return
            held.append(line)
            self._cost += len(line or "") + _LINE_CHARACTERS
            yield line if self._cost <= LONGEST_ROW_CHARACTERS or len(held) == 1 else None

    def _give_up(self, all_of_it: bool) -> None:
        """Give up the first held line and read the others again, or give up all of them."""
        self._report.lose(UNCLOSED, self._first)
        if all_of_it:
            self._lose_lines(1)
        else:
            self._again.extendleft(reversed(self._held[1:]))
            del self._held[1:]
        self._drop()

    def _lose_lines(self, begin: int) -> None:
        for number in range(begin, len(self._held)):
            self._report.lose(AFTER_UNCLOSED, self._first + number)

    def _drop(self) -> None:
        """Go on to the next row."""
        self._first += len(self._held)
        self._held.clear()
        self._cost = 0
