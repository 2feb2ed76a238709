"""Files -> raw documents, streamed. Bad bytes are replaced, broken records skipped, and both are counted.

docs/prepare.md describes the documents of each kind of file. Text, JSON lines, .tsv without quotes and
.parquet are divided between workers; other and compressed files are not.

Only faults that the user can put right stop the run: a file of another form, a missing field, an archive of
several files, a full or failing disk. A damaged file yields its documents up to the damage.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, compress
from typing import Any, Literal

import msgspec

from brimful.base.errors import BrimfulError, suggest_name
from brimful.base.types import Values
from brimful.corpus.cleaning.wrapped import count_full_lines, join_lines
from brimful.corpus.reading.delimited import Sheet, open_sheet, read_rows
from brimful.corpus.reading.dialects import MISSING, DialectOptions
from brimful.corpus.reading.faults import LONG_ROW, SHORT_ROW, Report, count_error
from brimful.corpus.reading.forms import form_of
from brimful.corpus.reading.inputs import Span, format_of
from brimful.corpus.reading.joined_texts import join_texts
from brimful.corpus.reading.json_records import RowNames, json_records, parse_line
from brimful.corpus.reading.lines import BLANK_LINE, LINE, Boundary, read_runs, replace_surrogates
from brimful.corpus.reading.text_columns import missing_field, note_repeated_column, read_column

# Bytes of text that are decoded at once.
RUN_BYTES = 1 << 16
# Longer files, paragraphs and lines are cut into pieces of this many bytes, to bound memory.
LONGEST_PIECE = 1 << 22
# The first lines of a file, which show whether its lines were wrapped.
WATCHED_LINES = 2000
_WATCHED_CHARACTERS = 200 * WATCHED_LINES
WRAPPED = f"of the first {WATCHED_LINES:,} lines end at one width (--read.join-lines joins wrapped lines)"
_LEAST_TABBED_LINES = 50
TABBED = f"of the first {WATCHED_LINES:,} lines hold one tab (--read.field 2 reads the text after it)"
_SHEET_OPTIONS = "--read.field, or --read.delimiter and --read.quote"
# A longer line of .jsonl, .csv and .tsv is skipped, since a piece of a record cannot be read.
LONGEST_RECORD = 1 << 24


@dataclass(frozen=True, kw_only=True)
class ReadConfig(DialectOptions):
    """The settings by which input files become documents."""

    split: Literal["file", "paragraph", "line"] = "file"
    """The documents of .txt files: the file, its paragraphs (after a blank line), or its lines."""
    field: str = "text"
    """The field or column of records that holds the text; a number counts columns if there is no header."""
    encoding: str = "utf-8"
    """Encoding of the text files; a byte order mark, and the charset that a page declares, override it."""
    join_lines: bool = False
    """Join the lines of paragraphs that a program wrapped, except in pages."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.join_lines and self.split == "line":
            raise BrimfulError("read.join_lines needs read.split file or paragraph, not line")


Document = tuple[int, str]
"""The number of a record, and its text."""


def read_documents(span: Span, config: ReadConfig, issues: Counter[str]) -> Iterator[Document]:
    """Yield (record number, raw text) from a span of a file; `issues` counts its faults.

    Records are numbered from 0 at the span's start. A record is a line of .jsonl or of text split by line, a
    paragraph, a data row of a table, or a piece of a file of more than 4 MB.

    The text may hold U+0000 and U+FFFD, but no lone surrogates.

    Raises:
        BrimfulError: the file is of another form than its name says, its records lack the field that holds
            the text, or this machine failed.
    """
    form = form_of(span.path, [config.field], config.encoding)
    if form == "html":
        return _read_page(span, config, issues)
    if form == "text":
        documents = _read_text(span, config, issues)
    elif form in ("parquet", "arrow"):
        documents = count_error(read_column(span, form, config.field, issues), span.path, issues)
    elif form in ("csv", "tsv"):
        documents = _read_sheet(span, form, config, issues)
    else:
        documents = _read_json(span, form, config, issues)
    if config.join_lines:
        return ((number, join_lines(text)) for number, text in documents)
    if span.begin:
        return documents
    return _watch_lines(documents, form == "text", config.split == "line", issues)


def _watch_lines(
    documents: Iterator[Document], are_texts: bool, are_lines: bool, issues: Counter[str]
) -> Iterator[Document]:
    """Yield the documents; count first lines as issues if most have the same width or hold one tab."""
    lines = []
    for document in documents:
        lines += document[1][:_WATCHED_CHARACTERS].split("\n")
        if not (are_texts and are_lines):
            lines.append("")  # no line continues in the next document
        yield document
        if len(lines) >= WATCHED_LINES:
            break
    del lines[WATCHED_LINES:]
    full_lines = count_full_lines(lines)
    if full_lines:
        issues[WRAPPED] += full_lines
    tabbed = sum(line.strip().count("\t") == 1 for line in lines)
    if are_texts and tabbed >= _LEAST_TABBED_LINES and 2 * tabbed > sum(map(bool, lines)):
        issues[TABBED] += tabbed
    yield from documents


def _read_runs(
    span: Span,
    config: ReadConfig,
    issues: Counter[str],
    boundary: Boundary | None,
    run: int = RUN_BYTES,
    longest: int = LONGEST_PIECE,
    too_long: str = "line longer than 4 MB, cut",
) -> Iterator[str]:
    """Yield runs of a text, as `read_runs` describes them, up to an error of the file."""
    runs = read_runs(span, config.encoding, issues, boundary, run=run, longest=longest, too_long=too_long)
    return count_error(runs, span.path, issues)


def _read_text(span: Span, config: ReadConfig, issues: Counter[str]) -> Iterator[Document]:
    if config.split == "file":
        runs = _read_runs(span, config, issues, Boundary(LINE.pattern, LONGEST_PIECE), LONGEST_PIECE)
        texts = (text.removesuffix("\n") for text in runs)
        return (document for document in enumerate(texts) if document[1])
    if config.split == "paragraph":
        return enumerate(_split_paragraphs(_read_runs(span, config, issues, BLANK_LINE)))
    return chain.from_iterable(_number_lines(_read_runs(span, config, issues, LINE)))


def _number_lines(runs: Iterable[str]) -> Iterator[Iterable[Document]]:
    """Yield the non-empty lines of each run, with their numbers."""
    begin = 0
    for run in runs:
        lines = run.removesuffix("\n").split("\n")
        # No Python code runs per line, since there are very many lines.
        yield compress(enumerate(lines, begin), map(str.strip, lines))
        begin += len(lines)


def _split_paragraphs(runs: Iterable[str]) -> Iterator[str]:
    paragraph = ""
    for run in chain(runs, ["\n"]):
        for line in run.removesuffix("\n").split("\n"):
            if line.strip():
                paragraph += line + "\n"
                if len(paragraph) <= LONGEST_PIECE:
                    continue
            if paragraph:
                yield paragraph.removesuffix("\n")
                paragraph = ""


def _read_page(span: Span, config: ReadConfig, issues: Counter[str]) -> Iterator[Document]:
    pieces = _read_runs(span, config, issues, None, LONGEST_PIECE)
    page = next(pieces, "").removesuffix("\n")
    if page:
        yield 0, page
    if next(pieces, "").removesuffix("\n"):
        issues["page longer than 4 MB, its rest skipped"] += 1


def _read_lines(
    span: Span, config: ReadConfig, issues: Counter[str], boundary: Boundary | None
) -> Iterator[str | None]:
    """Yield the lines of a file of records, with their ends; None stands for one that was too long."""
    too_long = "line longer than 16 MB, skipped"
    is_within_long = False
    for text in _read_runs(span, config, issues, boundary, longest=LONGEST_RECORD, too_long=too_long):
        lines: list[str | None] = [f"{line}\n" for line in text.split("\n")]
        # After the last line end comes nothing, or part of a line that continues in the next run.
        is_cut = lines.pop() != "\n"
        if is_within_long and lines:
            lines[0] = None
        yield from lines
        is_within_long = is_cut


def _read_json(span: Span, form: str, config: ReadConfig, issues: Counter[str]) -> Iterator[Document]:
    report = Report(issues)
    if form == "jsonl":
        records = _read_json_lines(span, config, report)
    else:
        # JSON may be cut anywhere, so a long line costs nothing.
        chunks = _read_runs(span, config, issues, None, too_long="")
        records = json_records(span.path, chunks, [config.field], report)
    has_texts = False
    first_keys: list[str] = []
    count = 0
    for number, record in records:
        count += 1
        text = record if isinstance(record, str) else _text_of(record, config.field, report)
        if text is not None:
            has_texts = True
            yield number - 1, replace_surrogates(text, issues)
        elif not first_keys:
            first_keys = [*record]
    if has_texts or span.begin or not first_keys:
        return
    # A .json file of one object may well be settings that lie beside the texts.
    if count > 1 or format_of(span.path) != "json":
        raise missing_field(span.path, config.field, first_keys)
    hint = suggest_name(config.field, first_keys[:9])
    issues[f"one object without a field {config.field!r}: {hint}"] += 1


def _read_json_lines(span: Span, config: ReadConfig, report: Report) -> Iterator[tuple[int, Values | str]]:
    """Yield the records of lines, numbered from 1; most lines are parsed only for their text."""
    parse_field = _field_parser(config.field)
    key = json.dumps(config.field)
    row_names = RowNames([config.field])
    for number, line in enumerate(_read_lines(span, config, report.issues, LINE), 1):
        if line is None or line.isspace():
            continue
        try:
            value = parse_field(line)
        except (ValueError, RecursionError):
            value = None
        # A line that has the key twice is parsed as a whole, which reports it.
        if isinstance(value, str) and line.count(key) < 2:
            yield number, value
            continue
        record = row_names.make_record(parse_line(line.lstrip("\x1e"), number, report), number, report)
        if record is not None:
            yield number, record


def _text_of(record: Values, field: str, report: Report) -> str | None:
    """Return the text of a record of JSON; None if the field holds anything else."""
    value = record.get(field)
    if isinstance(value, list):
        value = join_texts(value, report)
    if isinstance(value, str):
        return value
    report.issues[f"records without a text {field!r}"] += 1
    return None


def _field_parser(field: str) -> Callable[[str], Any]:
    """Return a fast parser for a field of a JSON line. It may fail where `json` does not."""
    try:
        struct = msgspec.defstruct("Record", [("value", Any, None)], rename={"value": field})
    except ValueError:  # a name that JSON must escape
        return lambda line: None
    decode: Callable[[str], Any] = msgspec.json.Decoder(struct).decode
    return lambda line: decode(line).value


def _read_sheet(span: Span, form: str, config: ReadConfig, issues: Counter[str]) -> Iterator[Document]:
    is_whole = span == Span(path=span.path)
    # The beginning of the file decides how all of its spans are read.
    sheet = _open_sheet(span.path, form, config, issues if is_whole else Counter())
    if sheet is None:
        return
    dialect, report = sheet.dialect, Report(issues)
    if is_whole:
        rows = sheet.rows(report)
    elif dialect.quote:  # the file was rewritten, with quotes, after it had been divided
        if not span.begin:
            yield from _read_sheet(Span(path=span.path), form, config, issues)
        return
    else:
        lines = _read_lines(span, config, issues, LINE)
        rows = read_rows(lines, dialect, report) if span.begin else Sheet(dialect, lines).rows(report)
    header = dialect.header
    if config.field not in header:
        raise missing_field(span.path, config.field, header, _SHEET_OPTIONS)
    column = header.index(config.field)
    note_repeated_column(header, config.field, span, report)
    for number, (line, row) in enumerate(rows):
        if not row:
            continue
        if len(row) < len(header):
            report.lose(SHORT_ROW, line)
        elif len(row) > len(header):
            report.lose(LONG_ROW, line)
        if len(row) <= column:
            continue
        if row[column] == MISSING:
            issues[f"records without a text {config.field!r}"] += 1
        else:
            yield number, row[column]


def _open_sheet(path: str, form: str, config: ReadConfig, issues: Counter[str]) -> Sheet | None:
    lines = _read_lines(Span(path=path), config, issues, None)
    return open_sheet(lines, form, [config.field], config, path)


def is_quoted(path: str, config: ReadConfig) -> bool:
    """Return whether rows of a .tsv may hold line ends, so that it cannot be divided."""
    sheet = _open_sheet(path, "tsv", config, Counter())
    return sheet is not None and bool(sheet.dialect.quote)
