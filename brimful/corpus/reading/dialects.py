"""How a file of delimited rows is divided: by two strict rules, or by options.

The delimiter is the tab, comma, semicolon or vertical bar with which the header has the columns that are
wanted, and all rows of a sample as many fields; in a .tsv it is the tab if the header has one. Quotes are as
in RFC 4180: a field that begins with one ends with one, and doubles those within. In a .tsv some field must
need them; where all fields that begin with a quote go on behind the next one, quotes are text.

A file that these rules leave in doubt is refused, in one line that names the option.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mode

from brimful.base.console import quote_for_shell
from brimful.base.errors import BrimfulError

SAMPLE_CHARACTERS = 1 << 18
"""What is looked at, from the beginning of a file."""
MISSING = r"\N"
"""A missing value, as PostgreSQL and MySQL write it."""
_DELIMITERS = ",;|\t"
_ONE_COLUMN = "\x1f"
"""Divides a file of one column, whose lines may hold any delimiter."""
_SEPARATOR = re.compile(r'"?sep=(.)"?\s*', re.IGNORECASE)
"""The first line that Excel writes to name the delimiter."""
_CONVERTER = (
    "PYTHONIOENCODING=utf-8 python3 -c 'import csv, sys; csv.writer(sys.stdout).writerows("
    "csv.reader(sys.stdin, delimiter=chr({}), doublequote=False, escapechar=chr(92)))'"
)


@dataclass(frozen=True, kw_only=True)
class DialectOptions:
    """How rows of delimited files are divided into fields, where the files shall not decide it."""

    delimiter: str = ""
    """Character between the fields of .csv and .tsv: tab, or the character. By default as the file shows."""
    quote: str = ""
    """Character around fields of .csv and .tsv; none: quotes are text. By default as the file shows."""

    def __post_init__(self) -> None:
        for name, word in (("delimiter", "tab"), ("quote", "none")):
            value = getattr(self, name)
            if (len(value) > 1 and value != word) or value in ("\r", "\n"):
                raise BrimfulError(f"read.{name} is {value!r}: it must be one character, or {word}")
        if self.delimiter and self.delimiter == self.quote:
            raise BrimfulError(f"read.delimiter and read.quote are both {self.quote!r}")


@dataclass(frozen=True, kw_only=True)
class Dialect:
    """How the rows of a file are divided into fields.

    Attributes:
        delimiter: stands between fields.
        quote: stands around a field, and is doubled within it; empty: quotes are text.
        header: the names of the columns.
        skipped: lines before the header, or before the rows if there is none.
        has_header: whether the first row names the columns; otherwise they are numbered from 1.
        is_open: whether quotes are text only because no field of the sample begins with one.
        skips_blanks: whether blanks before a field are no text: all quotes behind a delimiter have some.
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
    wanted: Sequence[str],
    options: DialectOptions,
    path: str,
    *,
    complete: bool,
) -> Dialect:
    """The dialect that the first lines of a file show.

    Args:
        lines: without their ends; one of them is not empty.
        form: "tsv" or "csv", what the file is said to be.
        wanted: names of columns that are looked for; numbers count them from 1, where there is no header.
        options: decide what they name.
        complete: whether the lines are the whole file.

    Raises:
        BrimfulError: the file can be read in two ways, or in none.
    """
    skipped = next(number for number, line in enumerate(lines) if line)
    named = _SEPARATOR.fullmatch(lines[skipped])
    if named and any(lines[skipped + 1 :]):
        skipped += 1
    rows = [line for line in lines[skipped:] if line]
    if not complete and len(rows) > 1:
        rows.pop()  # it may be cut
    sample = _Sample(rows, wanted, path, complete)
    quote, is_open = options.quote.removeprefix("none"), False
    delimiter = "\t" if options.delimiter == "tab" else options.delimiter
    if not delimiter and named:
        delimiter = named[1]
    elif not delimiter:
        delimiter = sample.delimiter(form, quote if options.quote else '"')
    if not options.quote:
        sample.refuse_escapes(delimiter)
        quote, is_open = sample.quote(delimiter, form if delimiter == "\t" else "csv")
    reading = sample.read(delimiter, quote)
    header = [name.strip() for name in reading.header]
    has_header = not are_numbers(wanted, header)
    if not has_header:
        header = [str(number) for number in range(1, mode(reading.widths) + 1)]
    elif not options.quote:
        sample.refuse_header(header, reading.widths)
    return Dialect(
        delimiter=delimiter,
        quote=quote,
        header=header,
        skipped=skipped,
        has_header=has_header,
        is_open=is_open,
        skips_blanks=reading.stray.startswith(" ")
        and not any(f"{delimiter}{quote}" in line for line in rows),
    )


def are_numbers(wanted: Sequence[str], header: Sequence[str]) -> bool:
    """Whether columns are wanted by number. A header may have numbers for names, as those of pandas."""
    if not any(map(_is_number, wanted)):
        return False
    has_number_names = all(_is_number(name) for name in header if name)
    return not (has_number_names and set(header) & set(wanted))


def _is_number(name: str) -> bool:
    return name.isascii() and name.isdecimal() and len(name) < 5


@dataclass(frozen=True)
class _Reading:
    """How a sample reads with a delimiter and a quote.

    Attributes:
        header: the fields of the first row.
        widths: how many fields each row has.
        quoted: the first field in quotes; empty if there is none.
        needs: whether the quotes say more than their text would: a field of the header has some, a quote in a
            field is doubled, or a field holds what would divide it and the rows are even with it alone.
        stray: the first field that begins with a quote and goes on after the next, or has a backslash before
            one; empty if there is none.
        doubtful: a field in quotes that holds a delimiter and a line end, where the lines are even without
            quotes and every other field in quotes is such a field too: `"Best ever,good` and a later
            `small 5",bad` are two rows or one.
    """

    header: list[str]
    widths: list[int]
    quoted: str = ""
    needs: bool = False
    stray: str = ""
    doubtful: str = ""


@dataclass(frozen=True)
class _Sample:
    """The first lines of a file that are not empty; the other attributes as in `find_dialect`."""

    lines: list[str]
    wanted: Sequence[str]
    path: str
    complete: bool

    def delimiter(self, form: str, quote: str) -> str:
        """The delimiter with which the header has the columns that are wanted, and all rows are even.

        Raises:
            BrimfulError: there are several.
        """
        marks = [mark for mark in _DELIMITERS if mark in self.lines[0]]
        # Where columns have numbers, the first line may be a remark.
        shows_tab = marks if not are_numbers(self.wanted, []) else "".join(self.lines)
        if form == "tsv" and ("\t" in shows_tab or not marks):
            return "\t"
        if not marks:
            return _ONE_COLUMN
        readings = {mark: self.read(mark, quote) for mark in marks}
        fitting = [mark for mark in marks if self._has_columns(readings[mark].header)]
        even = [mark for mark in fitting or marks if len({*readings[mark].widths}) == 1]
        chosen = even or fitting or marks
        if len(chosen) > 1 and fitting:
            shown = " or ".join(repr(mark) for mark in chosen)
            raise BrimfulError(f"{self.path} can be divided at {shown}: say which with --read.delimiter")
        return chosen[0]

    def _has_columns(self, header: Sequence[str]) -> bool:
        names = [name.strip() for name in header]
        if are_numbers(self.wanted, names):
            return len(names) > 1
        return bool(set(names) & set(self.wanted))

    def quote(self, delimiter: str, form: str) -> tuple[str, bool]:
        """The quote, and whether there is none only because no field of the sample begins with one.

        Raises:
            BrimfulError: quotes may be text.
        """
        reading = self.read(delimiter, '"')
        if not (reading.quoted or reading.stray):
            return ("", True) if form == "tsv" else ('"', False)
        if '\\"' in reading.stray:
            raise BrimfulError(
                f"{self.path} has backslashes before quotes, such as {reading.stray!r:.60}: where they are no"
                " escapes, --read.quote none keeps them and the quotes as text; where they are, convert it"
                f" (utf-8 is its encoding): {_CONVERTER.format(ord(delimiter))} <"
                f" {quote_for_shell(self.path)} > {quote_for_shell(f'{self.path}.csv')}"
            )
        if form == "csv" and reading.quoted and not reading.doubtful:
            return '"', False
        # Who writes a .tsv with quotes quotes what needs it, or the names of the columns too.
        if form == "tsv" and reading.needs != bool(reading.stray):
            return ('"', False) if reading.needs else ("", False)
        example = reading.doubtful or reading.stray or reading.quoted
        raise BrimfulError(
            f"{self.path} has quotes that may be text, such as {example!r:.60}:"
            " --read.quote none keeps them, --read.quote '\"' reads what they enclose"
        )

    def refuse_escapes(self, delimiter: str) -> None:
        """Refuse backslashes beside the missing values of databases: they may be escapes, or text."""
        edge = f"(?:^|$|{re.escape(delimiter)})"
        if not any(re.search(rf"{edge}\\N{edge}", line) for line in self.lines):
            return
        for line in self.lines:
            if other := re.search(r".{,20}\\[^N].{,20}", line):
                raise BrimfulError(
                    f"{self.path} has \\N for missing values, and other backslashes, such as {other[0]!r}:"
                    " export it as CSV where they are escapes; --read.quote '\"' or none keeps them as text"
                )

    def refuse_header(self, header: Sequence[str], widths: Sequence[int]) -> None:
        """Refuse a header in apostrophes, in one piece, or with fewer or more columns than all rows."""
        if any(f"'{name}'" in header for name in self.wanted):
            raise BrimfulError(
                f'{self.path} has apostrophes around the names of columns: --read.quote "\'" reads what they'
                " enclose"
            )
        if len(header) == 1 and header[0] not in self.wanted:
            words = re.findall(r"\w+", header[0])
            if any(name in words for name in self.wanted):
                raise BrimfulError(
                    f"{self.path} has no delimiter in {header[0]!r:.60}: give --read.delimiter, or"
                    f" --read.field {quote_for_shell(header[0])} if it has one column"
                )
        if len(widths) > 2 and len(header) not in widths[1:]:
            raise BrimfulError(
                f"{self.path} has {len(header)} columns in its header and {widths[1]} in its rows: write a"
                " name for each column (in R, col.names = NA or row.names = FALSE)"
            )

    def read(self, delimiter: str, quote: str) -> _Reading:
        """The sample as it reads with a delimiter and a quote; without one if that is empty."""
        plain_widths = [line.count(delimiter) + 1 for line in self.lines]
        if not quote or not any(quote in line for line in self.lines):
            return _Reading(self.lines[0].split(delimiter), plain_widths)
        header, widths = list[str](), list[int]()
        quoted, stray, doubtful, needs, holds_marks, is_certain = "", "", "", False, False, False
        fields: list[str] = []
        for match in _field(delimiter, quote).finditer("\n".join(self.lines)):
            body, cut, bare, end = match.groups()
            if cut is not None:  # the sample ends within a field
                stray = stray or f"{quote}{cut}" * self.complete
                fields.append(cut)
                break
            if body is not None:
                quoted = quoted or f"{quote}{body}{quote}"
                needs = needs or quote * 2 in body or not widths
                holds_marks = holds_marks or delimiter in body or "\n" in body
                if delimiter in body and "\n" in body:
                    doubtful = doubtful or body
                else:  # no inches: a writer put this field in quotes
                    is_certain = True
            elif bare.lstrip(" ").startswith(quote) or f"\\{quote}" in bare:
                stray = stray or bare
            fields.append(bare if body is None else body.replace(quote * 2, quote))
            if end != delimiter:
                header = header or fields
                widths.append(len(fields))
                fields = []
                if not end:
                    break
        needs = needs or (holds_marks and len(set(plain_widths)) > 1)
        if needs or is_certain:
            doubtful = ""
        return _Reading(header or fields, widths or [len(fields)], quoted, needs, stray, doubtful)


def _field(delimiter: str, quote: str) -> re.Pattern[str]:
    """A field in group 1, if it is quoted, in 2, if its quote is not closed, or 3; what ends it in 4."""
    delimiter, quote = re.escape(delimiter), re.escape(quote)
    body = f"[^{quote}]*+(?:{quote}{quote}[^{quote}]*+)*+"
    end = rf"{delimiter}|\n|\Z"
    return re.compile(rf"(?:{quote}({body}){quote}(?={end})|{quote}({body})\Z|([^{delimiter}\n]*+))({end})")
