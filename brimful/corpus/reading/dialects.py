"""Which delimiter, quotes and escapes a file of delimited rows shows: those under which its rows fit best."""

import csv
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

# Characters that are looked at.
SAMPLE = 1 << 18
NAMES = {"\t": "tabs", ",": "commas", ";": "semicolons", "|": "vertical bars"}
DEFAULTS = {"tsv": "\t", "csv": ","}
# Divides a file of one column, whose lines may hold any of these.
NONE = "\x1f"
_ESCAPE = "\\"
_SEPARATOR = re.compile(r'\s*"?sep=(.)"?\s*', re.IGNORECASE)
# After a backslash, PostgreSQL's COPY and MySQL write letters for some characters, and N for a missing value.
_LETTERS = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
MISSING = r"\N"


@dataclass(frozen=True, kw_only=True)
class DialectOptions:
    """How rows of delimited files are divided into fields, where the files shall not decide it."""

    delimiter: str = ""
    """Character between the fields of .csv and .tsv: tab, or the character. By default as the file shows."""
    quote: str = ""
    """Character around fields of .csv and .tsv; none: quotes are text. By default as the file shows."""


@dataclass(frozen=True, kw_only=True)
class Dialect:
    """How rows are divided into fields.

    Attributes:
        delimiter: stands between fields.
        quote: stands around a field; empty: quotes are text.
        doubled: whether a quote within a quoted field is doubled; otherwise it is escaped.
        escaped: whether a backslash stands before characters that are text.
    """

    delimiter: str
    quote: str = ""
    doubled: bool = True
    escaped: bool = False

    @property
    def is_plain(self) -> bool:
        """Whether a line is a row, divided wherever a delimiter stands."""
        return not (self.quote or self.escaped)

    def reader(self, lines: Iterable[str], *, strict: bool) -> Iterator[list[str]]:
        """The rows of lines with their ends, as the csv module reads a dialect with quotes."""
        if self.escaped:
            missing = re.compile(
                rf"(^|{re.escape(self.delimiter)})\\N(?={re.escape(self.delimiter)}|\r?\n|$)"
            )
            lines = (line if line is None else missing.sub(r"\1\\\\N", line) for line in lines)
        return csv.reader(
            lines,
            delimiter=self.delimiter,
            quotechar=self.quote or None,
            quoting=csv.QUOTE_MINIMAL if self.quote else csv.QUOTE_NONE,
            doublequote=self.doubled,
            escapechar=_ESCAPE if self.escaped else None,
            strict=strict,
        )

    def split(self, line: str) -> list[str]:
        """The fields of a row in a dialect without quotes; a missing value stays `MISSING`."""
        fields = line.split(self.delimiter)
        if self.escaped and _ESCAPE in line:
            for place in range(len(fields) - 1, 0, -1):
                if ends_in_escape(fields[place - 1]):
                    fields[place - 1 : place + 1] = [self.delimiter.join(fields[place - 1 : place + 1])]
            fields = [field if field == MISSING else _ESCAPED.sub(_meant, field) for field in fields]
        return fields


def ends_in_escape(text: str) -> bool:
    """Whether a text ends in a backslash that is not escaped itself."""
    return (len(text) - len(text.rstrip(_ESCAPE))) % 2 == 1


def _meant(match: re.Match[str]) -> str:
    return _LETTERS.get(match[1], match[1])


@dataclass(frozen=True, kw_only=True)
class Shown:
    """What the beginning of a file shows.

    Attributes:
        header: the names of its columns.
        skipped: lines before the header, or before the rows if there is none.
        has_header: whether the first row names the columns; otherwise they are numbered from 1.
        otherwise: what its name says otherwise, for a warning.
        doubt: a warning if another reading is possible.
    """

    dialect: Dialect
    header: list[str]
    skipped: int = 0
    has_header: bool = True
    otherwise: str = ""
    doubt: str = ""


@dataclass(frozen=True)
class _Fit:
    """How a dialect fits a sample: how many rows fit the others, and what speaks for its quotes.

    Attributes:
        bad: rows of another width than most, the first aside, or with a quote where writers of this dialect
            would have none.
        quoted: fields in quotes.
        proof: whether some needed them: they hold a delimiter, a line end or an escaped quote, or are names
            of columns.
        whole: whether all of a column is quoted.
        example: such a field.
        doubles: whether a quoted field holds a doubled quote.
        stray: fields that begin with a quote and do not end in one.
    """

    dialect: Dialect
    header: list[str]
    width: int
    rows: int
    bad: int
    quoted: int = 0
    proof: bool = False
    whole: bool = False
    example: str = ""
    doubles: bool = False
    stray: int = 0


class _Sample:
    """The first lines of a file, without ends.

    Args:
        complete: whether they are the whole file; otherwise the last row may be cut.
    """

    def __init__(self, lines: Sequence[str], complete: bool) -> None:
        self.lines = [line for line in lines if line]
        self.complete = complete
        self._fits: dict[Dialect, _Fit] = {}

    @cached_property
    def text(self) -> str:
        return "\n".join(self.lines)

    def fit(self, dialect: Dialect) -> _Fit:
        if dialect not in self._fits:
            self._fits[dialect] = self._quoted(dialect) if dialect.quote else self._bare(dialect)
        return self._fits[dialect]

    def _bare(self, dialect: Dialect) -> _Fit:
        if dialect.escaped:
            rows = [dialect.split(row) for row in joined_rows(self.lines)]
            widths = [len(row) for row in rows]
            header = rows[0]
        else:
            widths = [line.count(dialect.delimiter) + 1 for line in self.lines]
            header = dialect.split(self.lines[0])
        width = _most(widths)
        return _Fit(dialect, header, width, len(widths), sum(each != width for each in widths[1:]))

    def _quoted(self, dialect: Dialect) -> _Fit:
        quote, delimiter = dialect.quote, dialect.delimiter
        pair = quote * 2
        rows: list[tuple[int, bool]] = []
        header: list[str] = []
        by_column: Counter[int] = Counter()
        quoted, proof, example, doubles = 0, False, "", False
        stray, strayed = 0, ""
        width, clean, values = 0, True, list[str]()
        end = ""
        for match in _fields(dialect).finditer(self.text):
            body, cut, bare, end = match.groups()
            if cut is not None:
                clean = False
            elif body is not None:
                if rows:
                    by_column[width] += 1
                quoted += 1
                doubles = doubles or (dialect.doubled and pair in body)
                is_proof = delimiter in body or "\n" in body or (pair if dialect.doubled else quote) in body
                if is_proof or not example:
                    example = f"{quote}{body}{quote}"
                proof = proof or is_proof or not rows  # nobody quotes names of columns otherwise
            elif quote in (_ESCAPED.sub("", bare) if dialect.escaped else bare):
                clean = False
                if bare.startswith(quote) and quote in bare[1:]:
                    stray += 1
                    strayed = strayed or bare
            if not rows:
                values.append((bare or "") if body is None else body.replace(pair, quote))
            width += 1
            if end != delimiter:
                if not rows:
                    header = values
                rows.append((width, clean))
                width = 0
                if not end:
                    break
                clean = True
        if not self.complete and len(rows) > 1 and clean:
            rows.pop()
        most = _most([width for width, _ in rows])
        bad = sum(width != most or not clean for width, clean in rows[1:]) + (not rows[0][1])
        whole = len(rows) > 3 and any(count >= len(rows) - 1 for count in by_column.values())
        shown = strayed if stray else example
        return _Fit(dialect, header, most, len(rows), bad, quoted, proof, whole, shown, doubles, stray)


def _most(widths: Sequence[int]) -> int:
    return Counter(widths).most_common(1)[0][0]


def joined_rows(lines: Iterable[str]) -> Iterator[str]:
    """Rows of lines, where a line end that is escaped belongs to its row."""
    held: list[str] = []
    for line in lines:
        held.append(line)
        if not ends_in_escape(line):
            yield "\n".join(held)
            held = []
    if held:
        yield "\n".join(held)


def _fields(dialect: Dialect) -> re.Pattern[str]:
    """A field in group 1, if it is quoted, in 2, if its quote is not closed, or 3; what ends it in 4."""
    delimiter, quote = re.escape(dialect.delimiter), re.escape(dialect.quote)
    other = rf"[^{quote}\\]*+" if dialect.escaped else rf"[^{quote}]*+"
    within = [r"\\."] * dialect.escaped + [quote * 2] * dialect.doubled
    body = rf"{other}(?:(?:{'|'.join(within)}){other})*+"
    bare = rf"(?:[^{delimiter}\n\\]|\\.)*+" if dialect.escaped else rf"[^{delimiter}\n]*+"
    return re.compile(
        rf"(?:{quote}({body}){quote}(?={delimiter}|\n|\Z)|{quote}({body})\Z|({bare}))"
        rf"({delimiter}|\n|\Z)",
        re.DOTALL,
    )


def find_dialect(lines: Sequence[str], form: str, wanted: Sequence[str], *, complete: bool) -> Shown:
    """The dialect that the first lines of a file show.

    Args:
        lines: without their ends; one of them is not empty.
        form: "tsv" or "csv", what the file is said to be.
        wanted: names of columns that are looked for; numbers count them from 1, where there is no header.
        complete: whether the lines are the whole file.
    """
    return _find_dialect(tuple(lines), form, tuple(wanted), complete)


@lru_cache(8)  # each part of a file asks for its dialect
def _find_dialect(lines: tuple[str, ...], form: str, wanted: tuple[str, ...], complete: bool) -> Shown:
    default = DEFAULTS[form]
    skipped = next(number for number, line in enumerate(lines) if line)
    given = _SEPARATOR.fullmatch(lines[skipped])
    if given and len(lines) > skipped + 1:
        skipped += 1
    sample = _Sample(lines[skipped:], complete)
    if not sample.lines:
        return Shown(dialect=Dialect(delimiter=default, quote='"'), header=list(lines[skipped - 1 : skipped]))
    if given:
        delimiters = [given[1]]
    else:
        others = [mark for mark in NAMES if mark != default and mark in sample.lines[0]]
        delimiters = [default, *others, *([NONE] if form == "csv" else [])]
    found = [
        (_best(sample, delimiter, may_be_raw=form == "tsv" and delimiter == default), order)
        for order, delimiter in enumerate(delimiters)
    ]

    def rank(one: tuple[tuple[_Fit, str], int]) -> tuple[float, ...]:
        (fit, _), order = one
        hits = _hits(fit, wanted)
        fits = fit.bad + (fit.width != len(fit.header)) * fit.rows <= fit.rows // 10
        if not hits:  # the header does not tell, so the rows must
            return (0, fit.width == 1, not fits, order)
        return (-hits, fit.width == 1 and fit.bad > 0, not fits, order)

    (fit, doubt), _ = min(found, key=rank)
    dialect = fit.dialect
    otherwise = ""
    if dialect.delimiter not in (default, NONE) and not given:
        kind = NAMES[dialect.delimiter]
        otherwise = f"has {kind} between its columns, not {NAMES[default]}, and is read so"
    header, has_header = _header(sample, fit, wanted)
    return Shown(
        dialect=dialect,
        header=header,
        skipped=skipped,
        has_header=has_header,
        otherwise=otherwise,
        doubt=doubt,
    )


def _names(header: Sequence[str]) -> list[str]:
    return [name.strip() for name in header]


def _hits(fit: _Fit, wanted: Sequence[str]) -> int:
    names = _names(fit.header)
    if _counts(names, wanted):
        return sum(int(name) <= fit.width for name in wanted if _is_number(name))
    return len(set(names) & set(wanted))


def _counts(names: Sequence[str], wanted: Sequence[str]) -> bool:
    """Whether columns are wanted by number. A header may have numbers for names, as those of pandas."""
    has_numbers = all(map(_is_number, filter(None, names)))
    return any(map(_is_number, wanted)) and not (has_numbers and set(names) & set(wanted))


def _is_number(name: str) -> bool:
    return name.isascii() and name.isdecimal() and len(name) < 5


def _header(sample: _Sample, fit: _Fit, wanted: Sequence[str]) -> tuple[list[str], bool]:
    """The names of the columns, and whether the first row has them."""
    names = _names(fit.header)
    if _counts(names, wanted):
        return [str(number) for number in range(1, fit.width + 1)], False
    if fit.rows > 2 and fit.width == len(names) + 1 and len(names) > 1:
        # R writes the names of rows without a header of their own; others end each row in a delimiter.
        ends = all(line.endswith(fit.dialect.delimiter) for line in sample.lines[1:])
        return ([*names, ""] if ends else ["", *names]), True
    return names, True


def _best(sample: _Sample, delimiter: str, *, may_be_raw: bool) -> tuple[_Fit, str]:
    """Of the dialects with a delimiter the one that fits best, and a warning if another fits as well.

    Args:
        may_be_raw: whether quotes may be text, as in TSV. Writers of CSV quote what needs it and often more.
    """
    escapes = _escapes(sample, delimiter)
    usual = sample.fit(Dialect(delimiter=delimiter, quote='"'))
    if escapes == "sure" and usual.doubles and not usual.bad:
        escapes = "doubtful"  # who doubles quotes does not escape them, too: it is JSON in a cell
    is_sure = escapes in ("sure", "missing")
    raw = sample.fit(Dialect(delimiter=delimiter))
    escaped = sample.fit(Dialect(delimiter=delimiter, escaped=True)) if escapes else raw
    raw = min(raw, escaped, key=lambda fit: (fit.bad, fit.dialect.escaped != is_sure))
    usual, *others = _quotings(sample, delimiter, bool(escapes))
    candidates = [usual]
    for fit in others:
        # An apostrophe may well begin a text, and end one.
        is_single = fit.dialect.quote == "'"
        if not is_single or (fit.proof and (fit.bad < usual.bad or not usual.quoted)):
            candidates.append(fit)
    if escapes and not may_be_raw and (escaped.bad < usual.bad or not usual.proof):
        candidates.append(escaped)

    def rank(fit: _Fit) -> tuple[int, bool, bool, bool]:
        is_idle = bool(fit.dialect.quote) and not fit.quoted
        return fit.bad, fit.dialect.escaped != is_sure, is_idle, not fit.proof

    best = min(candidates, key=rank)
    doubt = ""
    if escapes in ("doubtful", "possible") and not (best.dialect.escaped or raw.dialect.escaped):
        before = "backslashes and quotes" if escapes == "doubtful" else "ends of columns and of lines"
        doubt = (
            f"has backslashes only before {before}: they are kept as text; if they are escapes,"
            " write it without them"
        )
    if escapes == "missing" and best.dialect.escaped and best.quoted:
        doubt = (
            "has \\N for missing values, and other backslashes: these are read as escapes; if they are text,"
            " write it as .jsonl"
        )
    if not may_be_raw or best.dialect.quote != '"':
        is_quoted = best.proof or not may_be_raw
        if best.stray and not may_be_raw:
            doubt = (
                f"has {best.stray:,} fields that begin with a quote and go on after it, such as"
                f" {best.example!r:.60}: quotes are left out as the csv module does; write such texts in"
                " quotes, with theirs doubled"
            )
        return (best if is_quoted and best.bad <= raw.bad + best.rows * (not may_be_raw) else raw), doubt
    if not best.quoted:
        return raw, doubt
    about = f"{best.quoted:,} fields of it stand in quotes, such as {best.example!r:.60}"
    kept = f"{about}: the quotes are kept as text; if they delimit fields, name the file .csv"
    dropped = f"{about}: they are read as quoted fields; if the quotes are text, write it as .jsonl"
    if best.bad != raw.bad:
        if best.bad < raw.bad:
            return best, doubt
        return raw, kept if best.proof and 10 * best.bad < best.rows else doubt
    if best.proof and not best.bad:
        return best, doubt
    return (best, dropped) if best.whole and not best.bad else (raw, kept)


def _escapes(sample: _Sample, delimiter: str) -> str:
    """Whether backslashes are escapes: "sure", "missing", "possible", "doubtful"; empty where they are not.

    They may be if they stand before nothing else than what is escaped; surely before a quote, and where N
    stands for a missing value ("missing", if others stand before letters). Before a delimiter or a line end,
    one may also end a text.
    """
    text, mark = sample.text, re.escape(delimiter)
    if _ESCAPE not in text:
        return ""
    missing = re.search(rf"(?:^|{mark})\\N(?:{mark}|$)", text, re.MULTILINE) is not None
    letters = "NbfnrtvZ0" if missing else ""
    before = re.compile(r"\\(.)", re.DOTALL).findall(text)
    marks = {delimiter, '"', "'", "\n"}
    if not set(before) <= marks | {_ESCAPE, *letters}:
        return ""
    # Names of columns in apostrophes show that these are quotes.
    names = rf"'[^']*'(?:{mark}'[^']*')*"
    quotes = {'"', "'"} if re.fullmatch(names, sample.lines[0]) else {'"'}
    if quotes & set(before) or (missing and not {*before} - {"N", _ESCAPE}):
        return "sure"
    if missing:
        return "missing"
    return "possible" if {delimiter, "\n"} & set(before) else "doubtful"


def _quotings(sample: _Sample, delimiter: str, escaped: bool) -> list[_Fit]:
    """How dialects with quotes fit; the first is that of RFC 4180."""
    text, mark = sample.text, re.escape(delimiter)
    usual = Dialect(delimiter=delimiter, quote='"')
    dialects = [usual]
    if re.search(rf"(?:^|{mark})'", text, re.MULTILINE):
        dialects.append(replace(usual, quote="'"))
    if escaped:
        dialects += [replace(one, escaped=True) for one in dialects]
    return [sample.fit(one) for one in dialects]
