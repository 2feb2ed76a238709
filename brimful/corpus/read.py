"""Files -> raw documents, streamed. Bad bytes are replaced, broken records skipped, all of it counted.

Only what the user can put right stops the run: a field that is not there. A damaged file yields what
could be read before the damage.
"""

import codecs
import csv
import itertools
import json
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import IO, Any, Literal

from brimful.corpus.archives import read_chunks
from brimful.corpus.inputs import format_of, split_suffix
from brimful.errors import BrimfulError, nearest

HEAD = 8192
# Longer lines and files come in pieces, so that memory stays bounded.
LONGEST_PIECE = 1 << 22
LONGEST_FIELD = 1 << 27
ROWS_AT_ONCE = 1024

# Every byte below a blank that no text file holds, except in passing.
_CONTROL = bytes(set(range(32)) - set(b"\t\n\r\f\v\b\x1b")) + b"\x7f"


@dataclass(frozen=True, kw_only=True)
class ReadConfig:
    """How input files become documents."""

    split: Literal["file", "paragraph", "line"] = "file"
    """What a document is in .txt files: the file, a paragraph (after a blank line), or a line."""
    field: str = "text"
    """The field or column that holds the text in .jsonl, .csv, .tsv and .parquet files."""
    encoding: str = "utf-8"
    """Encoding of the text files."""


Raw = tuple[int, str]  # record number, text


def check_encoding(name: str) -> None:
    """Raises BrimfulError if Python knows no such text encoding."""
    try:
        "".encode(name)
    except LookupError as error:
        raise BrimfulError(f"unknown encoding {name!r}; examples: utf-8, gb18030, big5, utf-16") from error


def read_documents(path: str, config: ReadConfig, issues: Counter[str]) -> Iterator[Raw]:
    """Yield (record number, raw text) from one file; what went wrong is counted in `issues`.

    A record number is 0-based: the line of .jsonl and of text split by line, the paragraph, the data row
    of tables, the piece of a file that is longer than 4 million characters (0 elsewhere).

    Raises:
        BrimfulError: the file's records lack the field that holds the text.
    """
    kind = format_of(path)
    try:
        if kind == "parquet":
            yield from _parquet(path, config.field)
            return
        chunks = read_chunks(path, issues)
        head = next(chunks, b"")
        while len(head) < HEAD and (more := next(chunks, b"")):
            head += more
        if _is_binary(head[:HEAD], config.encoding):
            issues["binary file skipped"] += 1
            return
        lines = _lines(_decode(itertools.chain([head], chunks), config.encoding, issues), issues)
        yield from _READERS[kind](lines, config, path, issues)
    except OSError as error:
        issues[f"cannot be read ({error.strerror or error})"] += 1
    except csv.Error as error:
        issues[f"table broken, its rest skipped ({error})"] += 1


def _is_binary(head: bytes, encoding: str) -> bool:
    if "16" in encoding or "32" in encoding:
        return False
    control = len(head) - len(head.translate(None, _CONTROL))
    return head.startswith(b"%PDF-") or control > max(8, len(head) // 20)


def _decode(chunks: Iterable[bytes], encoding: str, issues: Counter[str]) -> Iterator[str]:
    decoder = codecs.getincrementaldecoder(encoding)(errors="replace")
    at_start = True
    for chunk in itertools.chain(chunks, [b""]):
        text = decoder.decode(chunk, final=not chunk)
        if at_start and text:
            text, at_start = text.removeprefix("\ufeff"), False
        if replaced := text.count("\ufffd"):
            issues["undecodable characters"] += replaced
        if nul := text.count("\0"):
            issues["NUL characters"] += nul
        yield text


def _lines(texts: Iterable[str], issues: Counter[str]) -> Iterator[str]:
    r"""Lines without their end. Only \n ends a line: U+2028, \x85 and \f occur within text."""
    pieces: list[str] = []
    length = 0
    for text in texts:
        first, *rest = text.split("\n")
        pieces.append(first)
        length += len(first)
        if length > LONGEST_PIECE:
            issues["line longer than 4 million characters, cut"] += 1
            yield "".join(pieces)
            pieces, length = [], 0
        for line in rest:
            yield "".join(pieces).removesuffix("\r")
            pieces, length = [line], len(line)
    if length:
        yield "".join(pieces).removesuffix("\r")


def _text(lines: Iterable[str], config: ReadConfig, path: str, issues: Counter[str]) -> Iterator[Raw]:
    if config.split == "line":
        yield from ((number, line) for number, line in enumerate(lines) if line.strip())
    elif config.split == "paragraph":
        groups = itertools.groupby(lines, key=lambda line: bool(line.strip()))
        yield from enumerate("\n".join(group) for filled, group in groups if filled)
    else:
        yield from enumerate(_joined(lines))


def _joined(lines: Iterable[str]) -> Iterator[str]:
    piece: list[str] = []
    length = 0
    for line in lines:
        piece.append(line)
        length += len(line) + 1
        if length > LONGEST_PIECE:
            yield "\n".join(piece)
            piece, length = [], 0
    if piece:
        yield "\n".join(piece)


def _html(lines: Iterable[str], config: ReadConfig, path: str, issues: Counter[str]) -> Iterator[Raw]:
    pieces = _joined(lines)
    if page := next(pieces, ""):
        yield 0, page
    if next(pieces, ""):
        issues["page longer than 4 million characters, its rest skipped"] += 1


def _jsonl(lines: Iterable[str], config: ReadConfig, path: str, issues: Counter[str]) -> Iterator[Raw]:
    found = False
    keys: dict[str, None] = {}
    for number, line in enumerate(lines):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            issues["broken JSON lines"] += 1
            continue
        value = record.get(config.field) if isinstance(record, dict) else None
        if isinstance(value, str):
            found = True
            yield number, value
        else:
            issues[f"records without a text {config.field!r}"] += 1
            if not keys and isinstance(record, dict):
                keys = dict.fromkeys(record)
    if keys and not found:
        raise _no_field(path, config.field, keys)


def _no_field(path: str, field: str, known: Iterable[str]) -> BrimfulError:
    return BrimfulError(f"{path} has no text in a field {field!r}: {nearest(field, known)} (set read.field)")


def _table(lines: Iterable[str], config: ReadConfig, path: str, issues: Counter[str]) -> Iterator[Raw]:
    csv.field_size_limit(LONGEST_FIELD)  # a document may be longer than the default of 131,072
    with_ends = (f"{line}\n" for line in lines)
    if format_of(path) == "tsv":  # by custom unquoted: a stray quote must not swallow the lines after it
        rows = csv.reader(with_ends, delimiter="\t", quoting=csv.QUOTE_NONE)
    else:
        rows = csv.reader(with_ends)
    header = next(rows, None)
    if header is None:
        return
    if config.field not in header:
        raise _no_field(path, config.field, header)
    column = header.index(config.field)
    for number, row in enumerate(rows):
        if len(row) > column:
            yield number, row[column]
        else:
            issues["rows cut short"] += 1


def _parquet(path: str, field: str) -> Iterator[Raw]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    with tempfile.TemporaryFile() as unpacked:
        source: str | IO[bytes] = path
        if split_suffix(path)[1]:
            for chunk in read_chunks(path, Counter()):
                unpacked.write(chunk)
            source = unpacked
        try:
            with pq.ParquetFile(source) as table:
                yield from _column(table, path, field)
        except pa.ArrowInvalid as error:
            raise OSError(0, "not a Parquet file, or damaged") from error


def _column(table: Any, path: str, field: str) -> Iterator[Raw]:
    import pyarrow as pa

    names = table.schema_arrow.names
    if field not in names:
        raise _no_field(path, field, names)
    kind = table.schema_arrow.field(field).type
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        raise BrimfulError(f"{path}: column {field!r} holds {kind}, not text; set read.field")
    numbers = itertools.count()
    for batch in table.iter_batches(ROWS_AT_ONCE, columns=[field]):
        for text in batch.column(0).to_pylist():
            number = next(numbers)
            if text is not None:
                yield number, text


_Reader = Callable[[Iterable[str], ReadConfig, str, Counter[str]], Iterator[Raw]]
_READERS: dict[str, _Reader] = {"text": _text, "html": _html, "jsonl": _jsonl, "csv": _table, "tsv": _table}
