"""Rows of CSV and TSV, in the dialect of the file. A quote that is never closed costs only its own line."""

import csv
import re
from collections import deque
from collections.abc import Iterator, Sequence
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
        return _read_quoted(lines, dialect, report, first)
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


def _read_quoted(lines: Lines, dialect: Dialect, report: Report, first: int) -> NumberedFields:
    """Yield the rows of a dialect with quotes.

    An empty line gives an empty row, and so does a row that is given up. A quote counts as never closed if
    the file or 16 MB end before it closes, or if it closes within a word of a later line. Then the first line
    of its row is given up, and the lines after it are read again. Until a good row has been read from new
    lines, lines of another width than the first row are lost.
    """
    csv.field_size_limit(2 * LONGEST_ROW_CHARACTERS)
    reader = partial(
        csv.reader,
        delimiter=dialect.delimiter,
        quotechar=dialect.quote,
        skipinitialspace=dialect.skips_blanks,
    )
    lines_again: deque[str | None] = deque()
    # The lines of the current row, and their cost; `first` is the number of the first one.
    row_lines: list[Any] = []
    cost = 0

    def hold_lines() -> Iterator[Any]:
        """Yield the lines, and hold them until their row ends; None makes the reader fail."""
        nonlocal cost
        while True:
            line = lines_again.popleft() if lines_again else next(lines, "")
            if line == "":  # lines have their ends, so this is the end of the file
                return
            row_lines.append(line)
            cost += len(line or "") + _LINE_CHARACTERS
            yield line if cost <= LONGEST_ROW_CHARACTERS or len(row_lines) == 1 else None

    rows = reader(hold_lines(), strict=True)
    spare, width, is_doubtful = _SPARE_CHARACTERS, 0, False
    while True:
        is_unclosed = False
        try:
            row = next(rows, None)
        except csv.Error as error:
            rows = reader(hold_lines(), strict=True)  # a reader can't go on after an error
            row = []
            is_unclosed = len(row_lines) > 1 or "end of data" in str(error)
            if not is_unclosed and row_lines[0] is not None:
                report.lose(AFTER_QUOTE, first)
                row = next(reader(row_lines, strict=False), [])
        if row is None:
            return
        width = width or len(row)
        lost_lines = range(0)
        if is_unclosed:
            spare -= cost
            yield first, []
            report.lose(UNCLOSED, first)
            is_doubtful = True
            if spare < 0:
                lost_lines = range(1, len(row_lines))
            else:
                lines_again.extendleft(reversed(row_lines[1:]))
                del row_lines[1:]
        elif is_doubtful and len(row) not in (0, width):
            lost_lines = range(len(row_lines))
        else:
            is_doubtful = is_doubtful and bool(lines_again or not row)
            spare += cost
            yield first, row
        for number in lost_lines:
            report.lose(AFTER_UNCLOSED, first + number)
        first += len(row_lines)
        row_lines.clear()
        cost = 0
