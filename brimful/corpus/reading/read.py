"""Files -> raw documents, streamed. Bad bytes are replaced, broken records skipped, and both are counted.

======================  ================================================  ===============================
suffix                  documents                                         divided between workers
======================  ================================================  ===============================
.txt (and any other)    the file, its paragraphs or lines (`split`)       by bytes
.jsonl                  `field` of each line                              by bytes
.tsv                    column `field`; nothing is quoted                 by bytes
.csv                    column `field`; quoted as in RFC 4180             no
.html .htm              the page                                          no
.parquet                column `field`                                    by row groups
.arrow                  column `field`; as `datasets` saves, or a file    no
======================  ================================================  ===============================

Each may end in .gz or .zst, and is then not divided. Only what the user can put right stops the run: a
missing field, a full or failing disk. A damaged file yields its documents up to the damage.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, compress
from typing import Any, Literal

import msgspec

from brimful.corpus.reading.csv_rows import CsvRows
from brimful.corpus.reading.failures import reporting
from brimful.corpus.reading.inputs import Span, format_of
from brimful.corpus.reading.lines import (
    BLANK_LINE,
    LINE,
    Boundary,
    count_nul,
    read_runs,
    without_surrogates,
)
from brimful.corpus.reading.lines import check_encoding as check_encoding
from brimful.corpus.reading.tables import no_field, read_column

# Bytes of text that are decoded at once.
RUN = 1 << 16
# Longer files, paragraphs and lines are cut into pieces of this many bytes, to bound memory.
LONGEST_PIECE = 1 << 22
# A longer line of .jsonl, .csv and .tsv is skipped, since a piece of a record cannot be read.
LONGEST_RECORD = 1 << 24


@dataclass(frozen=True, kw_only=True)
class ReadConfig:
    """How input files become documents."""

    split: Literal["file", "paragraph", "line"] = "file"
    """What a document is in .txt files: the file, a paragraph (after a blank line), or a line."""
    field: str = "text"
    """The field or column that holds the text in .jsonl, .csv, .tsv, .parquet and .arrow files."""
    encoding: str = "utf-8"
    """Encoding of the text files; a byte order mark, and what a page declares, override it."""


Raw = tuple[int, str]  # record number, text


def read_documents(span: Span, config: ReadConfig, issues: Counter[str]) -> Iterator[Raw]:
    """Yield (record number, raw text) from a span of a file; `issues` counts what went wrong.

    Records are numbered from 0 at the span's start. A record is a line of .jsonl or of text split by line, a
    paragraph, a data row of a table, or a piece of a file of more than 4 MB.

    The text may hold U+0000 and U+FFFD, but no lone surrogates.

    Raises:
        BrimfulError: the file's records lack the field that holds the text, or this machine failed.
    """
    kind = format_of(span.path)
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
    span: Span, config: ReadConfig, issues: Counter[str], boundary: Boundary | None, run: int
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
        yield text.removesuffix("\n")


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
    for number, line in enumerate(_lines(span, config, issues, LINE)):
        if not line or line.isspace():
            continue
        try:
            value = parse(line)
        except (ValueError, RecursionError):
            value = None
        if isinstance(value, str):
            found = True
            yield number, value
            continue
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            issues["broken JSON lines"] += 1
            continue
        value = record.get(config.field) if isinstance(record, dict) else None
        if isinstance(value, str):
            found = True
            yield number, without_surrogates(value, issues)
        else:
            issues[f"records without a text {config.field!r}"] += 1
            if not keys and isinstance(record, dict):
                keys = dict.fromkeys(record)
    if keys and not found and not span.begin:
        raise no_field(span.path, config.field, keys)


def _json_parser(field: str) -> Callable[[str], Any]:
    """A fast parser for a field of a JSON line. It may fail on valid JSON, which `json` then parses."""
    try:
        struct = msgspec.defstruct("Record", [("value", Any, None)], rename={"value": field})
    except ValueError:  # a name that JSON must escape
        return lambda line: None
    decode: Callable[[str], Any] = msgspec.json.Decoder(struct).decode
    return lambda line: decode(line).value


def _tsv(span: Span, config: ReadConfig, issues: Counter[str]) -> Iterator[Raw]:
    lines = _lines(span, config, issues, LINE)
    start = _lines(Span(path=span.path), config, Counter(), LINE) if span.begin else lines
    header = next(start, None)
    if header is None:
        return
    column = _column_of(header.split("\t"), span, config)
    for number, line in enumerate(lines):
        if not line:
            continue
        row = line.split("\t")
        if len(row) > column:
            yield number, row[column]
        else:
            issues["rows cut short"] += 1


def _column_of(header: list[str], span: Span, config: ReadConfig) -> int:
    if config.field not in header:
        raise no_field(span.path, config.field, header)
    return header.index(config.field)


def _csv(span: Span, config: ReadConfig, issues: Counter[str]) -> Iterator[Raw]:
    rows = iter(CsvRows(_lines(span, config, issues, None), issues))
    header = next(filter(None, rows), None)
    if header is None:
        return
    column = _column_of(header, span, config)
    for number, row in enumerate(rows):
        if len(row) > column:
            yield number, row[column]
        elif row:
            issues["rows cut short"] += 1


def _column(span: Span, config: ReadConfig, issues: Counter[str]) -> Iterator[Raw]:
    return reporting(read_column(span, format_of(span.path), config.field, issues), span.path, issues)


_RECORDS = {"jsonl": _jsonl, "csv": _csv, "tsv": _tsv, "parquet": _column, "arrow": _column}
