"""Files -> raw documents, streamed. Bad bytes are replaced, broken records skipped, and both are counted.

======================  ================================================  ===============================
suffix                  documents                                         divided between workers
======================  ================================================  ===============================
.txt, .md, any other    the file, its paragraphs or lines (`split`)       by bytes
.jsonl, .ndjson         `field` of each line                              by bytes
.json                   `field` of each record (`json_records`)           only JSON lines
.tsv                    column `field`                                    if nothing is quoted
.csv                    column `field`                                    no
.html .htm              the page                                          no
.parquet                column `field`                                    by row groups
.arrow                  column `field`; as `datasets` saves, or a file    no
======================  ================================================  ===============================

A file whose content contradicts its name is refused (`forms`). Rows are divided as the file shows
(`dialects`). Each may end in .gz, .zst, .bz2, .xz or .zip, and is then not divided.

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

from brimful.corpus.reading.delimited import Sheet, open_sheet, read_rows, sheet_of
from brimful.corpus.reading.dialects import DialectOptions
from brimful.corpus.reading.failures import reporting
from brimful.corpus.reading.faults import LONG, SHORT, Counting
from brimful.corpus.reading.forms import form_of
from brimful.corpus.reading.inputs import Span, format_of
from brimful.corpus.reading.json_records import Named, json_line, json_records
from brimful.corpus.reading.lines import (
    BLANK_LINE,
    LINE,
    Boundary,
    count_nul,
    read_runs,
    without_surrogates,
)
from brimful.corpus.reading.lines import check_encoding as check_encoding
from brimful.corpus.reading.tables import no_field, read_column, say_columns
from brimful.corpus.reading.values import cell, joined

# Bytes of text that are decoded at once.
RUN = 1 << 16
# Longer files, paragraphs and lines are cut into pieces of this many bytes, to bound memory.
LONGEST_PIECE = 1 << 22
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
    kind = form_of(span.path, [config.field])
    if kind == "text":
        return _text(span, config, issues)
    if kind == "html":
        return _html(span, config, issues)
    return _counting_nul(_RECORDS[kind](span, config, issues), issues)


def _counting_nul(documents: Iterable[Raw], issues: Counter[str]) -> Iterator[Raw]:
    for document in documents:
        count_nul(document[1], issues)
        yield document


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
        too_long="line longer than 4 MB, cut",
    )
    for text in reporting(runs, span.path, issues):
        count_nul(text, issues)
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


def _jsonl(span: Span, config: ReadConfig, issues: Counter[str]) -> Iterator[Raw]:
    found = False
    keys: dict[str, None] = {}
    parse = _json_parser(config.field)
    key = json.dumps(config.field)
    report = Counting(issues)
    named = Named([config.field])
    for number, line in enumerate(_lines(span, config, issues, LINE)):
        if not line or line.isspace():
            continue
        try:
            value = parse(line)
        except (ValueError, RecursionError):
            value = None
        if isinstance(value, str) and line.count(key) < 2:
            found = True
            yield number, value
            continue
        record = named.record(json_line(line.lstrip("\x1e"), number, report), number, report)
        if record is None:
            continue
        text = _text_of(record, config.field, report)
        if text is not None:
            found = True
            yield number, without_surrogates(text, issues)
        elif not keys and isinstance(record, dict):
            keys = dict.fromkeys(record)
    if keys and not found and not span.begin:
        raise no_field(span.path, config.field, keys)


def _text_of(record: dict[str, Any] | str, field: str, report: Counting) -> str | None:
    """The text of a record of JSON; None if it has none."""
    value = record if isinstance(record, str) else record.get(field)
    if isinstance(value, list):
        value = joined(value, report)
    if isinstance(value, str):
        return value
    report.issues[f"records without a text {field!r}"] += 1
    return None


def _json(span: Span, config: ReadConfig, issues: Counter[str]) -> Iterator[Raw]:
    found = False
    keys: dict[str, None] = {}
    records = 0
    report = Counting(issues)
    chunks = _pieces(span, config, issues, None, RUN, ends=True)
    for number, record in json_records(chunks, [config.field], report):
        records += 1
        text = _text_of(record, config.field, report)
        if text is not None:
            found = True
            yield number - 1, without_surrogates(text, issues)
        elif not keys and isinstance(record, dict):
            keys = dict.fromkeys(record)
    # A .json file that is one object may well be settings that lie beside the texts.
    if keys and not found and (records > 1 or format_of(span.path) != "json"):
        raise no_field(span.path, config.field, keys)


def _json_parser(field: str) -> Callable[[str], Any]:
    """A fast parser for a field of a JSON line. It may fail on valid JSON, which `json` then parses."""
    try:
        struct = msgspec.defstruct("Record", [("value", Any, None)], rename={"value": field})
    except ValueError:  # a name that JSON must escape
        return lambda line: None
    decode: Callable[[str], Any] = msgspec.json.Decoder(struct).decode
    return lambda line: decode(line).value


def _sheet(span: Span, config: ReadConfig, issues: Counter[str]) -> Iterator[Raw]:
    form = form_of(span.path, [config.field])
    report = Counting(issues)
    if span == Span(path=span.path):
        boundary = LINE if form == "tsv" else None
        sheet = open_sheet(_with_ends(span, config, issues, boundary), form, [config.field], report)
    else:  # the beginning of the file tells how its spans are read
        head = _head(span.path, form, config)
        if head is None or not head.shown.dialect.is_plain:
            if not span.begin:
                yield from _sheet(Span(path=span.path), config, issues)
            return
        lines = _with_ends(span, config, issues, LINE)
        if span.begin:
            sheet = Sheet(head.shown, read_rows(lines, head.shown, report))
        else:
            sheet = sheet_of(lines, head.shown, report)
    if sheet is None:
        return
    header = sheet.shown.header
    if config.field not in header:
        raise no_field(span.path, config.field, header)
    column = header.index(config.field)
    say_columns(header, config.field, span, report)
    for number, (line, row) in enumerate(sheet.rows):
        if len(row) <= column:
            if row:
                report.lose(SHORT, line)
            continue
        if len(row) != len(header):
            report.lose(LONG if len(row) > len(header) else SHORT, line)
        text = cell(row[column])
        if text is None:
            issues[f"records without a text {config.field!r}"] += 1
        else:
            yield number, text


def _head(path: str, form: str, config: ReadConfig) -> Sheet | None:
    lines = _with_ends(Span(path=path), config, Counter(), LINE)
    return open_sheet(lines, form, [config.field], Counting(Counter()))


def is_quoted(path: str, config: ReadConfig) -> bool:
    """Whether rows of a .tsv may hold line ends, so that it cannot be divided."""
    head = _head(path, "tsv", config)
    return head is not None and not head.shown.dialect.is_plain


def _with_ends(
    span: Span, config: ReadConfig, issues: Counter[str], boundary: Boundary | None
) -> Iterator[str | None]:
    """Lines with their ends; a carriage return ends one too."""
    for line in _lines(span, config, issues, boundary):
        if line is None:
            yield None
        elif "\r" in line:
            yield from (f"{part}\n" for part in line.split("\r"))
        else:
            yield f"{line}\n"


def _column(span: Span, config: ReadConfig, issues: Counter[str]) -> Iterator[Raw]:
    kind = form_of(span.path, [config.field])
    return reporting(read_column(span, kind, config.field, issues), span.path, issues)


_RECORDS = {
    "jsonl": _jsonl,
    "json": _json,
    "csv": _sheet,
    "tsv": _sheet,
    "parquet": _column,
    "arrow": _column,
}
