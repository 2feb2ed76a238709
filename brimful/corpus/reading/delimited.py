"""Rows of CSV and TSV, in the dialect of the file."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice

from brimful.corpus.reading.csv_rows import CsvRows
from brimful.corpus.reading.dialects import SAMPLE_CHARACTERS, Dialect, DialectOptions, find_dialect
from brimful.corpus.reading.faults import LATE_QUOTE, Report

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
    opening = f'{delimiter}"'
    for number, line in enumerate(lines, first):
        row = (line or "").rstrip("\r\n")
        if dialect.is_open and '"' in row and (row[0] == '"' or opening in row):
            report.lose(LATE_QUOTE, number)
        yield number, row.split(delimiter) if row else []
