"""Files -> raw documents, streamed. Bad bytes are replaced, broken records skipped, and both are counted.

docs/prepare.md says which files make which documents. Text, JSON lines, .tsv without quotes and .parquet are
divided between workers; other and compressed files are not.

Only what the user can put right stops the run: a file of another form, a missing field, an archive of several
files, a full or failing disk. A damaged file yields its documents up to the damage.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, compress
from typing import Any, Literal

import msgspec

from brimful.base.errors import BrimfulError, suggest_name
from brimful.corpus.cleaning.wrapped import count_full_lines, join_lines
from brimful.corpus.reading.delimited import Sheet, open_sheet, read_rows
from brimful.corpus.reading.dialects import MISSING, DialectOptions
from brimful.corpus.reading.faults import LONG, SHORT, Report, reporting
from brimful.corpus.reading.forms import form_of
from brimful.corpus.reading.inputs import Span, format_of
from brimful.corpus.reading.json_records import Named, json_line, json_records
from brimful.corpus.reading.lines import (
    BLANK_LINE,
    LINE,
    Boundary,
    read_runs,
    without_surrogates,
)
from brimful.corpus.reading.tables import no_field, read_column, say_columns
from brimful.corpus.reading.values import joined

# Bytes of text that are decoded at once.
RUN = 1 << 16
# Longer files, paragraphs and lines are cut into pieces of this many bytes, to bound memory.
LONGEST_PIECE = 1 << 22
# How much of a file shows whether its lines were wrapped.
WATCHED_LINES = 2000
_WATCHED_CHARACTERS = 200 * WATCHED_LINES
WRAPPED = f"of the first {WATCHED_LINES:,} lines end at one width (--read.join-lines joins wrapped lines)"
_LEAST_TABBED_LINES = 50
TABBED = f"of the first {WATCHED_LINES:,} lines hold one tab (--read.field 2 reads what stands behind it)"
# A longer line of .jsonl, .csv and .tsv is skipped, since a piece of a record cannot be read.
LONGEST_RECORD = 1 << 24


@dataclass(frozen=True, kw_only=True)
class ReadConfig(DialectOptions):
    """How input files become documents."""

    split: Literal["file", "paragraph", "line"] = "file"
    """What a document is in .txt files: the file, a paragraph (after a blank line), or a line."""
    field: str = "text"
    """The field or column of records that holds the text; a number counts columns if there is no header."""
    encoding: str = "utf-8"
    """Encoding of the text files; a byte order mark, and what a page declares, override it."""
    join_lines: bool = False
    """Join the lines of paragraphs that a program wrapped, except in pages."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.join_lines and self.split == "line":
            raise BrimfulError("read.join_lines needs read.split file or paragraph, not line")


Raw = tuple[int, str]  # record number, text


def read_documents(span: Span, config: ReadConfig, issues: Counter[str]) -> Iterator[Raw]:
    """Yield (record number, raw text) from a span of a file; `issues` counts what went wrong.

    Records are numbered from 0 at the span's start. A record is a line of .jsonl or of text split by line, a
    paragraph, a data row of a table, or a piece of a file of more than 4 MB.

    The text may hold U+0000 and U+FFFD, but no lone surrogates.

    Raises:
        BrimfulError: the file is of another form than its name says, its records lack the field that holds
            the text, or this machine failed.
    """
    kind = form_of(span.path, [config.field], config.encoding)
    if kind == "html":
        return _html(span, config, issues)
    documents = _READERS[kind](span, config, issues)
    if config.join_lines:
        return ((number, join_lines(text)) for number, text in documents)
    if span.begin:
        return iter(documents)
    return _watching_lines(iter(documents), kind == "text", config.split == "line", issues)


def _watching_lines(
    documents: Iterator[Raw], are_texts: bool, are_lines: bool, issues: Counter[str]
) -> Iterator[Raw]:
    """The documents; issues say where most of their first lines end at one width, or hold one tab."""
    lines: list[str] = []
    for document in documents:
        lines += document[1][:_WATCHED_CHARACTERS].split("\n")
        if not (are_texts and are_lines):
            lines.append("")
        yield document
        if len(lines) >= WATCHED_LINES:
            break
    count = count_full_lines(lines[:WATCHED_LINES])
    if count:
        issues[WRAPPED] += count
    tabbed = sum(line.strip().count("\t") == 1 for line in lines)
    if are_texts and tabbed >= _LEAST_TABBED_LINES and 2 * tabbed > sum(map(bool, lines)):
        issues[TABBED] += tabbed
    yield from documents


def _pieces(
    span: Span,
    config: ReadConfig,
    issues: Counter[str],
    boundary: Boundary | None,
    run: int,
    *,
    ends: bool = False,
) -> Iterator[str]:
    runs = read_runs(
        span,
        config.encoding,
        issues,
        boundary=boundary,
        run=run,
        longest=LONGEST_PIECE,
        too_long="" if ends else "line longer than 4 MB, cut",  # JSON may be cut anywhere
    )
    for text in reporting(runs, span.path, issues):
        yield text if ends else text.removesuffix("\n")


def _text(span: Span, config: ReadConfig, issues: Counter[str]) -> Iterator[Raw]:
    if config.split == "file":
        pieces = _pieces(span, config, issues, Boundary(LINE.pattern, LONGEST_PIECE), LONGEST_PIECE)
        return (document for document in enumerate(pieces) if document[1])
    if config.split == "paragraph":
        return enumerate(_paragraphs(_pieces(span, config, issues, BLANK_LINE, RUN)))
    return chain.from_iterable(_numbered_lines(_pieces(span, config, issues, LINE, RUN)))


def _numbered_lines(runs: Iterable[str]) -> Iterator[Iterable[Raw]]:
    """Numbered lines that are not empty, run by run. No Python code runs for a line: they are many."""
    begin = 0
    for run in runs:
        lines = run.split("\n")
        yield compress(enumerate(lines, begin), map(str.strip, lines))
        begin += len(lines)


def _paragraphs(runs: Iterable[str]) -> Iterator[str]:
    lines: list[str] = []
    length = 0
    for line in chain(chain.from_iterable(run.split("\n") for run in runs), [""]):
        if line and not line.isspace():
            lines.append(line)
            length += len(line) + 1
            if length <= LONGEST_PIECE:
                continue
        if lines:
            yield "\n".join(lines)
            lines, length = [], 0


def _html(span: Span, config: ReadConfig, issues: Counter[str]) -> Iterator[Raw]:
    pieces = _pieces(span, config, issues, None, LONGEST_PIECE)
    if page := next(pieces, ""):
        yield 0, page
    if next(pieces, ""):
        issues["page longer than 4 MB, its rest skipped"] += 1


def _lines(
    span: Span, config: ReadConfig, issues: Counter[str], boundary: Boundary | None
) -> Iterator[str | None]:
    """The lines of a file of records; None stands for one that was too long."""
    within_long = False
    runs = read_runs(
        span,
        config.encoding,
        issues,
        boundary=boundary,
        run=RUN,
        longest=LONGEST_RECORD,
        too_long="line longer than 16 MB, skipped",
    )
    for text in reporting(runs, span.path, issues):
        lines: list[str | None] = [*text.split("\n")]
        rest = lines.pop()
        if within_long and lines:
            lines[0] = None
        yield from lines
        within_long = bool(rest)


def _json(span: Span, config: ReadConfig, issues: Counter[str]) -> Iterator[Raw]:
    report = Report(issues)
    if form_of(span.path, [config.field], config.encoding) == "jsonl":
        records = _json_lines(span, config, report)
    else:
        chunks = _pieces(span, config, issues, None, RUN, ends=True)
        rows = json_records(span.path, chunks, [config.field], report)
        records = ((number - 1, record) for number, record in rows)
    found = False
    keys: dict[str, None] = {}
    count = 0
    for number, record in records:
        count += 1
        text = record if isinstance(record, str) else _text_of(record, config.field, report)
        if text is not None:
            found = True
            yield number, without_surrogates(text, issues)
        elif not keys:
            keys = dict.fromkeys(record)
    # A .json file that is one object may well be settings that lie beside the texts.
    if keys and not found and not span.begin:
        if count > 1 or format_of(span.path) != "json":
            raise no_field(span.path, config.field, keys)
        issues[f"one object without a field {config.field!r}: {suggest_name(config.field, [*keys][:9])}"] += 1


def _json_lines(span: Span, config: ReadConfig, report: Report) -> Iterator[tuple[int, dict[str, Any] | str]]:
    """The numbered records of lines; of most of them only the text is parsed."""
    parse = _json_parser(config.field)
    key = json.dumps(config.field)
    named = Named([config.field])
    for number, line in enumerate(_lines(span, config, report.issues, LINE)):
        if not line or line.isspace():
            continue
        try:
            value = parse(line)
        except (ValueError, RecursionError):
            value = None
        if isinstance(value, str) and line.count(key) < 2:
            yield number, value
            continue
        record = named.record(json_line(line.lstrip("\x1e"), number, report), number, report)
        if record is not None:
            yield number, record


def _text_of(record: dict[str, Any], field: str, report: Report) -> str | None:
    """The text of a record of JSON; None if it has none."""
    value = record.get(field)
    if isinstance(value, list):
        value = joined(value, report)
    if isinstance(value, str):
        return value
    report.issues[f"records without a text {field!r}"] += 1
    return None


def _json_parser(field: str) -> Callable[[str], Any]:
    """A fast parser for a field of a JSON line. It may fail on valid JSON, which `json` then parses."""
    try:
        struct = msgspec.defstruct("Record", [("value", Any, None)], rename={"value": field})
    except ValueError:  # a name that JSON must escape
        return lambda line: None
    decode: Callable[[str], Any] = msgspec.json.Decoder(struct).decode
    return lambda line: decode(line).value


def _sheet(span: Span, config: ReadConfig, issues: Counter[str]) -> Iterator[Raw]:
    kind = form_of(span.path, [config.field], config.encoding)
    is_whole = span == Span(path=span.path)
    boundary = LINE if kind == "tsv" or not is_whole else None
    # The beginning of the file tells how its spans are read.
    sheet = _open_sheet(Span(path=span.path), kind, config, issues if is_whole else Counter(), boundary)
    if sheet is None:
        return
    dialect, report = sheet.dialect, Report(issues)
    if is_whole:
        rows = sheet.rows(report)
    elif dialect.quote:  # it was written with quotes since it was divided
        if not span.begin:
            yield from _sheet(Span(path=span.path), config, issues)
        return
    else:
        lines = _with_ends(span, config, issues, LINE)
        rows = read_rows(lines, dialect, report) if span.begin else Sheet(dialect, lines).rows(report)
    header = dialect.header
    if config.field not in header:
        raise no_field(span.path, config.field, header)
    column = header.index(config.field)
    say_columns(header, config.field, span, report)
    for number, (line, row) in enumerate(rows):
        if len(row) <= column:
            if row:
                report.lose(SHORT, line)
            continue
        if len(row) != len(header):
            report.lose(LONG if len(row) > len(header) else SHORT, line)
        if row[column] == MISSING:
            issues[f"records without a text {config.field!r}"] += 1
        else:
            yield number, row[column]


def _open_sheet(
    span: Span, kind: str, config: ReadConfig, issues: Counter[str], boundary: Boundary | None
) -> Sheet | None:
    return open_sheet(_with_ends(span, config, issues, boundary), kind, [config.field], config, span.path)


def is_quoted(path: str, config: ReadConfig) -> bool:
    """Whether rows of a .tsv may hold line ends, so that it cannot be divided."""
    sheet = _open_sheet(Span(path=path), "tsv", config, Counter(), LINE)
    return sheet is not None and bool(sheet.dialect.quote)


def _with_ends(
    span: Span, config: ReadConfig, issues: Counter[str], boundary: Boundary | None
) -> Iterator[str | None]:
    for line in _lines(span, config, issues, boundary):
        yield None if line is None else f"{line}\n"


def _column(span: Span, config: ReadConfig, issues: Counter[str]) -> Iterator[Raw]:
    kind = form_of(span.path, [config.field], config.encoding)
    return reporting(read_column(span, kind, config.field, issues), span.path, issues)


_READERS = {
    "text": _text,
    "jsonl": _json,
    "json": _json,
    "csv": _sheet,
    "tsv": _sheet,
    "parquet": _column,
    "arrow": _column,
}
