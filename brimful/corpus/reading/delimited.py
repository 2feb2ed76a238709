"""Rows of CSV and TSV, in the dialect that the file shows."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice

from brimful.corpus.reading.csv_rows import CsvRows
from brimful.corpus.reading.dialects import SAMPLE, Dialect, Shown, find_dialect, joined_rows
from brimful.corpus.reading.faults import Report

Lines = Iterator[str | None]
"""The lines of a file, with their ends; None stands for a line that was too long."""
Numbered = Iterator[tuple[int, list[str]]]
"""Rows, each with the number of its first line; an empty one for an empty line or a lost one."""


@dataclass(frozen=True)
class Sheet:
    """A file of delimited rows that has been opened.

    Attributes:
        rows: without the header.
    """

    shown: Shown
    rows: Numbered


def open_sheet(
    lines: Lines,
    form: str,
    wanted: Sequence[str],
    report: Report,
    known: Callable[[Shown], Shown] = lambda shown: shown,
) -> Sheet | None:
    """Find the dialect and the header of a file; None if it has no line that is not empty.

    Args:
        form: "csv" or "tsv".
        wanted: names of columns, or their numbers from 1 if there is no header.
        known: corrects what the file shows by what is known of it.
    """
    head, complete = _ahead(lines)
    bare = [_without_end(line) for line in head]
    if not any(bare):
        return None
    shown = known(find_dialect(bare, form, wanted, complete=complete))
    return sheet_of(chain(head, lines), shown, report)


def sheet_of(lines: Lines, shown: Shown, report: Report) -> Sheet:
    """The sheet of lines from the beginning of a file, in a dialect that is known."""
    for message in filter(None, (shown.otherwise, shown.doubt)):
        report.note(message)
    rows = read_rows(islice(lines, shown.skipped, None), shown, report, shown.skipped + 1)
    if shown.has_header:
        for _, row in rows:
            if row:
                break
    return Sheet(shown, rows)


def _ahead(lines: Lines) -> tuple[list[str | None], bool]:
    """The next lines, and whether they are all that there are."""
    ahead = []
    size = 0
    for line in lines:
        ahead.append(line)
        size += len(line or "") + 1
        if size > SAMPLE:
            return ahead, False
    return ahead, True


def _without_end(line: str | None) -> str:
    return (line or "").rstrip("\r\n")


def read_rows(lines: Lines, shown: Shown, report: Report, first: int = 1) -> Numbered:
    """The rows of lines in a dialect that is known.

    Args:
        first: the number of the first line.
    """
    dialect = shown.dialect
    if dialect.quote:
        return iter(CsvRows(lines, dialect, report, first))
    if dialect.is_plain:
        return _plain(lines, shown, first)
    return _escaped(lines, dialect, first)


def _escaped(lines: Lines, dialect: Dialect, first: int) -> Numbered:
    for row in joined_rows(map(_without_end, lines)):
        yield first, dialect.split(row) if row else []
        first += 1 + row.count("\n")


def _plain(lines: Lines, shown: Shown, first: int) -> Numbered:
    delimiter = shown.dialect.delimiter
    for number, line in enumerate(lines, first):
        yield number, _without_end(line).split(delimiter) if line and line.strip("\r\n") else []
