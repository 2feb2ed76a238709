"""The dialect of a file of delimited rows: options name it, or two strict rules find it.

The delimiter is the tab, comma, semicolon or vertical bar with which the header has the columns to look for
and all rows of a sample have the same number of fields; in a .tsv it is the tab if the header has one. Quotes
are as in RFC 4180: a field that begins with a quote ends with one, and doubles the quotes within. In a .tsv,
some field must need its quotes; if none does and a field continues after its closing quote, quotes are text.

A file that these rules leave in doubt is refused with a message that names the option.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mode

from brimful.base.console import quote_for_shell
from brimful.base.errors import BrimfulError

# Characters at the beginning of a file that show its dialect.
SAMPLE_CHARACTERS = 1 << 18
# PostgreSQL and MySQL write this for a missing value.
MISSING = r"\N"
_DELIMITERS = ",;|\t"
# The delimiter of a file of one column, whose lines may hold any usual delimiter.
_UNUSED_DELIMITER = "\x1f"
# The first line with which Excel names the delimiter.
_SEPARATOR_LINE = re.compile(r'"?sep=(.)"?\s*', re.IGNORECASE)
_CONVERTER = (
    "PYTHONIOENCODING=utf-8 python3 -c 'import csv, sys; csv.writer(sys.stdout).writerows("
    "csv.reader(sys.stdin, delimiter=chr({}), doublequote=False, escapechar=chr(92)))'"
)


@dataclass(frozen=True, kw_only=True)
class DialectOptions:
    """The delimiter and the quote of delimited files, where the user names them."""

    delimiter: str = ""
    """Character between the fields of .csv and .tsv, or the word tab. By default it is detected."""
    quote: str = ""
    """Character around fields of .csv and .tsv; none: quotes are text. By default it is detected."""

    def __post_init__(self) -> None:
        for name, word in (("delimiter", "tab"), ("quote", "none")):
            value = getattr(self, name)
            if (len(value) > 1 and value != word) or value in ("\r", "\n"):
                raise BrimfulError(f"read.{name} is {value!r}: it must be one character, or {word}")
        if self.delimiter and self.delimiter == self.quote:
            raise BrimfulError(f"read.delimiter and read.quote are both {self.quote!r}")


@dataclass(frozen=True, kw_only=True)
class Dialect:
    """The way in which the rows of a file are divided into fields.

    Attributes:
        delimiter: the character between fields.
        quote: the character around a field, doubled within it; empty: quotes are text.
        header: the names of the columns.
        skipped: the number of lines before the header, or before the first row of a file without a header.
        has_header: whether the first row names the columns; otherwise they are numbered from 1.
        is_open: whether quotes are text only because no field of the sample begins with one.
        skips_blanks: whether to drop spaces before a field, because spaces stand before all opening quotes.
    """

    delimiter: str
    quote: str
    header: list[str]
    skipped: int = 0
    has_header: bool = True
    is_open: bool = False
    skips_blanks: bool = False


def find_dialect(
    lines: Sequence[str],
    form: str,
    columns: Sequence[str],
    options: DialectOptions,
    path: str,
    *,
    complete: bool,
) -> Dialect:
    """Find the dialect that the first lines of a file show.

    Args:
        lines: lines without their ends, at least one of them not empty.
        form: "tsv" or "csv", by the file's name.
        columns: names of columns to look for, or their numbers from 1 in a file without a header.
        options: the delimiter and the quote, if the user names them.
        complete: whether the lines are the whole file.

    Raises:
        BrimfulError: the file can be read in two ways, or cannot be read.
    """
    skipped = next(number for number, line in enumerate(lines) if line)
    separator = _SEPARATOR_LINE.fullmatch(lines[skipped])
    if separator and any(lines[skipped + 1 :]):
        skipped += 1
    rows = list(filter(None, lines[skipped:]))
    if not complete and len(rows) > 1:
        rows.pop()  # it may be cut
    sample = _Sample(rows, columns, path, complete)
    quote, is_open = options.quote.removeprefix("none"), False
    if options.delimiter:
        delimiter = "\t" if options.delimiter == "tab" else options.delimiter
    elif separator:
        delimiter = separator[1]
    else:
        delimiter = sample.find_delimiter(form, quote if options.quote else '"')
    if not options.quote:
        mark = re.escape(delimiter)
        missing = re.compile(rf"(?:^|{mark})\\N(?:$|{mark})")
        # The search for the plain text is much faster, and few samples have it.
        if any(MISSING in row and missing.search(row) for row in rows):
            for row in rows:
                if re.search(r"\\[^N]", row):
                    raise BrimfulError(
                        f"{path} has {MISSING} for missing values, and other backslashes, such as"
                        f" {row!r:.40}: export it as CSV where they are escapes; --read.quote '\"' or none"
                        " keeps them as text"
                    )
        quote, is_open = sample.find_quote(delimiter, form if delimiter == "\t" else "csv")
    reading = sample.read(delimiter, quote)
    header = [name.strip() for name in reading.header]
    has_header = not are_numbers(columns, header)
    if not has_header:
        header = [str(number) for number in range(1, mode(reading.widths) + 1)]
    elif not options.quote and len(reading.widths) > 2 and len(header) not in reading.widths[1:]:
        raise BrimfulError(
            f"{path} has {len(header)} columns in its header and {reading.widths[1]} in its rows: write a"
            " name for each column (in R, col.names = NA or row.names = FALSE)"
        )
    has_bare_quotes = any(delimiter + quote in line for line in rows)
    return Dialect(
        delimiter=delimiter,
        quote=quote,
        header=header,
        skipped=skipped,
        has_header=has_header,
        is_open=is_open,
        skips_blanks=reading.stray.startswith(" ") and not has_bare_quotes,
    )


def are_numbers(columns: Sequence[str], header: Sequence[str]) -> bool:
    """Return whether columns are named by number. A header may have numbers for names, as pandas writes."""
    if not any(map(_is_number, columns)):
        return False
    has_number_names = all(map(_is_number, filter(None, header)))
    return not (has_number_names and set(header) & set(columns))


def _is_number(name: str) -> bool:
    return name.isascii() and name.isdecimal() and len(name) < 5


@dataclass(frozen=True)
class _Reading:
    """A sample as it reads with a delimiter and a quote.

    Attributes:
        header: the fields of the first row.
        widths: the number of fields of each row.
        quoted: the first field in quotes, or an empty text.
        needs_quotes: whether quotes must enclose fields: a header field has quotes, a quote in a field is
            doubled, or quotes enclose delimiters or line ends and rows would differ in width without them.
        stray: the first field that begins with a quote and continues after the next one, or that has a
            backslash before a quote; otherwise an empty text.
        is_doubtful: whether each quoted field holds a delimiter and a line end, and all lines have the same
            width without quotes: `"Best ever,good` and a later `small 5",bad` may be two rows or one.
    """

    header: list[str]
    widths: list[int]
    quoted: str = ""
    needs_quotes: bool = False
    stray: str = ""
    is_doubtful: bool = False


@dataclass(frozen=True)
class _Sample:
    """The first lines of a file that are not empty, and arguments of `find_dialect`."""

    lines: list[str]
    columns: Sequence[str]
    path: str
    complete: bool

    def find_delimiter(self, form: str, quote: str) -> str:
        """Return the delimiter with which the header has the columns and all rows have the same width."""
        delimiters = [mark for mark in _DELIMITERS if mark in self.lines[0]]
        # If columns are named by number, the first line may be a comment.
        lines_with_tabs = self.lines if are_numbers(self.columns, []) else self.lines[:1]
        if form == "tsv" and (not delimiters or any("\t" in line for line in lines_with_tabs)):
            return "\t"
        if not delimiters:
            return _UNUSED_DELIMITER
        readings = {mark: self.read(mark, quote) for mark in delimiters}
        fitting = [mark for mark in delimiters if self._has_columns(readings[mark].header)]
        even = [mark for mark in fitting or delimiters if len(set(readings[mark].widths)) == 1]
        choices = even or fitting or delimiters
        if len(choices) > 1 and fitting:
            raise BrimfulError(
                f"{self.path} can be divided at {' or '.join(map(repr, choices))}: say which with"
                " --read.delimiter"
            )
        return choices[0]

    def _has_columns(self, header: Sequence[str]) -> bool:
        names = [name.strip() for name in header]
        if are_numbers(self.columns, names):
            return len(names) > 1
        return not set(names).isdisjoint(self.columns)

    def find_quote(self, delimiter: str, form: str) -> tuple[str, bool]:
        """Return the quote, and whether it is empty only because no field of the sample begins with one."""
        reading = self.read(delimiter, '"')
        if not (reading.quoted or reading.stray):
            return ("", True) if form == "tsv" else ('"', False)
        if '\\"' in reading.stray:
            raise BrimfulError(
                f"{self.path} has backslashes before quotes, such as {reading.stray!r:.60}: if they are not"
                " escapes, --read.quote none keeps them and the quotes as text; if they are, convert the file"
                f" (utf-8 is its encoding): {_CONVERTER.format(ord(delimiter))} <"
                f" {quote_for_shell(self.path)} > {quote_for_shell(f'{self.path}.csv')}"
            )
        if form == "csv" and reading.quoted and not reading.is_doubtful:
            return '"', False
        # A program that uses quotes in a .tsv puts them around fields that need them, and perhaps the header.
        if form == "tsv" and reading.needs_quotes != bool(reading.stray):
            return ('"', False) if reading.needs_quotes else ("", False)
        example = reading.stray or reading.quoted
        raise BrimfulError(
            f"{self.path} has quotes that may be text, such as {example!r:.60}:"
            " --read.quote none keeps them, --read.quote '\"' reads what they enclose"
        )

    def read(self, delimiter: str, quote: str) -> _Reading:
        """Read the sample with a delimiter and a quote; if the quote is empty, quotes are text."""
        plain_widths = [line.count(delimiter) + 1 for line in self.lines]
        if not quote or not any(quote in line for line in self.lines):
            return _Reading(self.lines[0].split(delimiter), plain_widths)
        rows: list[list[str]] = [[]]
        bodies = []  # the contents of the fields in quotes
        stray, needs_quotes = "", False
        for match in _field_pattern(delimiter, quote).finditer("\n".join(self.lines)):
            body, cut, bare, end = match.groups()
            if body is not None:
                bodies.append(body)
                needs_quotes |= quote * 2 in body or len(rows) == 1
                body = body.replace(quote * 2, quote)
            elif cut is not None:  # the sample ends within a field
                if self.complete:
                    stray = stray or quote + cut
            elif bare.lstrip(" ").startswith(quote) or f"\\{quote}" in bare:
                stray = stray or bare
            rows[-1].append(body or cut or bare or "")
            if not end:
                break
            if end != delimiter:
                rows.append([])
        if cut is not None and len(rows) > 1:
            rows.pop()  # its width is not known
        if len(set(plain_widths)) > 1:
            needs_quotes |= any(delimiter in body or "\n" in body for body in bodies)
        # Any other field was put in quotes by a program: its quotes cannot be inch marks.
        is_doubtful = not needs_quotes and all(delimiter in body and "\n" in body for body in bodies)
        quoted = f"{quote}{bodies[0]}{quote}" if bodies else ""
        return _Reading(rows[0], list(map(len, rows)), quoted, needs_quotes, stray, is_doubtful)


def _field_pattern(delimiter: str, quote: str) -> re.Pattern[str]:
    """Return a pattern whose groups are a field in quotes, a field whose quote is not closed, a field without
    quotes, and the end of the field."""
    delimiter, quote = re.escape(delimiter), re.escape(quote)
    body = f"[^{quote}]*+(?:{quote}{quote}[^{quote}]*+)*+"
    end = rf"{delimiter}|\n|\Z"
    return re.compile(rf"(?:{quote}({body}){quote}(?={end})|{quote}({body})\Z|([^{delimiter}\n]*+))({end})")
