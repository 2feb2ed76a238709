"""Columns of text in Parquet and Arrow files, read in batches of bounded size."""

import mmap
import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from brimful.base.errors import BrimfulError, suggest_name
from brimful.base.machine import drop_pages
from brimful.base.storage import require_utf8
from brimful.corpus.reading.archives import compression_of
from brimful.corpus.reading.faults import DAMAGED, Refusing, Report, check_machine
from brimful.corpus.reading.inputs import Span
from brimful.corpus.reading.values import joined

MOST_ROWS = 1024
BATCH_BYTES = 1 << 24
# Pages that were read of a mapped file count as memory of the process until they are released.
HELD_BYTES = 1 << 26
# A stream ends with a length of 0. Without it, the file may have been cut between two messages.
_ARROW = b"ARROW1"
_END_OF_STREAM = b"\xff\xff\xff\xff\0\0\0\0"
NAMES = {"parquet": "a Parquet", "arrow": "an Arrow"}

Group = tuple[int, Iterator[Any]]
"""The rows of a row group, and its batches."""


class NoFieldError(BrimfulError):
    """The records of a file lack the text field."""


def no_field(path: str, field: str, known: Any) -> NoFieldError:
    """The error of a file whose records lack the text field."""
    hint = "its values are no texts" if field in known else suggest_name(field, known)
    return NoFieldError(f"{path} has no text in a field {field!r}: {hint} (set --read.field)")


def say_columns(names: list[str], field: str, span: Span, report: Report) -> None:
    """Say that several columns have the name of the text field."""
    if (columns := names.count(field)) > 1 and not span.begin:
        report.note(f"has {columns} columns {field!r}, the first of which is read")


def read_column(span: Span, kind: str, field: str, issues: Counter[str]) -> Iterator[tuple[int, str]]:
    """Yield (row, text) of a column of a "parquet" or "arrow" file; rows count from the span's start.

    Raises:
        BrimfulError: there is no such column, or it holds no text.
            Or this machine failed, not the file.
        OSError: the file cannot be read at all.
    """
    report = Report(issues)
    require_plain(span.path)
    if kind == "arrow" and not os.path.getsize(span.path):
        return

    def choose(schema: Any) -> list[str]:
        _check_column(schema, field, span, report)
        return [field]

    def convert(batch: Any) -> list[Any]:
        return _values(plain_column(batch.column(0)), issues)

    _, groups = _open(span, kind, choose, report)
    for begin, values in _convert_groups(span.path, groups, convert, report):
        for number, value in enumerate(values, begin):
            text = joined(value, report) if isinstance(value, list) else value
            if text is None:
                issues[f"records without a text {field!r}"] += 1
            else:
                yield number, text


def require_plain(path: str) -> None:
    """Refuse a file that is compressed as a whole: both formats need random access, and compress themselves.

    Raises:
        BrimfulError: it is, or its name is not UTF-8.
        OSError: it cannot be read.
    """
    require_utf8(path)
    with open(path, "rb"):  # its error is clearer than pyarrow's
        pass
    if compression := compression_of(path):
        program = {".gz": "gzip -d", ".zst": "zstd -d", ".bz2": "bzip2 -d", ".xz": "xz -d"}
        raise BrimfulError(
            f"{path}: Parquet and Arrow files are read as they are: {program.get(compression, 'unzip')}"
            f" {os.path.basename(path)}"
        )


def _open(
    span: Span, kind: str, choose: Callable[[Any], list[str]], report: Report
) -> tuple[Any, Iterator[Group]]:
    """The schema of a file, and its row groups in the span.

    Args:
        choose: the names of the columns to read, by the schema.

    Raises:
        BrimfulError: this machine failed.
        OSError: it is no such file, or is damaged.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        if kind == "parquet":
            table = pq.ParquetFile(span.path, pre_buffer=False, buffer_size=1 << 20)
            schema = table.schema_arrow
            return schema, _parquet_groups(table, choose(schema), span)
        with open(span.path, "rb") as opened:
            memory = mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ)
        if memory[:6] != _ARROW and memory[-len(_END_OF_STREAM) :] != _END_OF_STREAM:
            report.note("has no end mark, perhaps cut short")
        schema, batches = _arrow_batches(pa.BufferReader(memory))
        columns = [schema.names.index(name) for name in choose(schema)]
        return schema, iter([(0, _arrow_parts(memory, batches, columns))])
    except UnicodeDecodeError as error:
        raise OSError(0, "damaged in the names of its columns") from error
    except (pa.ArrowException, OSError, ValueError) as error:
        check_machine(error, span.path)
        raise OSError(0, f"not {NAMES[kind]} file, or damaged") from error


def _parquet_groups(table: Any, names: list[str], span: Span) -> Iterator[Group]:
    with table:
        for number in range(table.num_row_groups)[span.begin : span.end]:
            group = table.metadata.row_group(number)
            size = sum(column_bytes(group, name) for name in names) + 1
            rows = max(1, min(MOST_ROWS, BATCH_BYTES * group.num_rows // size))
            batches = table.iter_batches(rows, row_groups=[number], columns=names)
            yield group.num_rows, chain.from_iterable(map(_parts, batches))


def _arrow_parts(memory: mmap.mmap, batches: Iterator[Any], columns: list[int]) -> Iterator[Any]:
    size = 0
    for batch in batches:
        for part in _parts(batch.select(columns)):
            yield part
            size += part.nbytes
            if size >= HELD_BYTES:
                drop_pages(memory)
                size = 0


def _convert_groups(
    path: str, groups: Iterator[Group], convert: Callable[[Any], list[Any]], report: Report
) -> Iterator[tuple[int, list[Any]]]:
    """What `convert` makes of each batch, with the number of its first row; a bad group costs no other."""
    import pyarrow as pa

    begin = 0
    for rows, batches in groups:
        place = begin
        try:
            for batch in batches:
                yield place, convert(batch)
                place += len(batch)
        except (pa.ArrowException, OSError) as error:
            check_machine(error, path)
            report.lose(DAMAGED, place + 1)
        begin += rows


def column_bytes(group: Any, field: str) -> int:
    """Uncompressed bytes of a column in the metadata of a row group; of all columns if it is not there."""
    for number in range(group.num_columns):
        column = group.column(number)
        if column.path_in_schema == field:
            return column.total_uncompressed_size
    return group.total_byte_size


def _arrow_batches(source: Any) -> tuple[Any, Iterator[Any]]:
    """The schema and the batches of a file, or of a stream that was saved."""
    import pyarrow as pa

    is_file = source.read(len(_ARROW)) == _ARROW
    source.seek(0)
    if not is_file:
        stream = pa.ipc.open_stream(source)
        return stream.schema, iter(stream)
    reader = pa.ipc.open_file(source)
    return reader.schema, map(reader.get_batch, range(reader.num_record_batches))


def _check_column(schema: Any, field: str, span: Span, report: Report) -> None:
    if field not in schema.names:
        raise no_field(span.path, field, schema.names)
    say_columns(schema.names, field, span, report)
    column_type = schema.types[schema.names.index(field)]
    if not _may_be_text(column_type):
        raise BrimfulError(f"{span.path}: column {field!r} holds {column_type}, not text; set --read.field")


def _may_be_text(kind: Any) -> bool:
    """Whether values of a type can be texts, bytes of texts, or lists of these."""
    inner = getattr(kind, "storage_type", None) or getattr(kind, "value_type", None)
    if inner is not None:
        return _may_be_text(inner)
    return str(kind) == "null" or _is_string(kind) or _is_binary(kind)


def _is_string(kind: Any) -> bool:
    return str(kind) in ("string", "large_string", "string_view")


def _is_binary(kind: Any) -> bool:
    return str(kind).partition("[")[0] in ("binary", "large_binary", "binary_view", "fixed_size_binary")


def _is_list(kind: Any) -> bool:
    return "list" in str(kind).partition("<")[0]


def plain_column(column: Any) -> Any:
    """An Arrow array of the values that extension types, dictionaries and run-ends stand for.

    Raises:
        ArrowInvalid: an offset or an index reaches outside of the file.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    column.validate(full=not _is_string(column.type))
    while True:
        if isinstance(column, pa.ExtensionArray):
            column = column.storage
        elif pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        elif pa.types.is_run_end_encoded(column.type):
            column = pc.run_end_decode(column)
        else:
            return column


def _parts(column: Any) -> Iterator[Any]:
    at_once = max(1, min(MOST_ROWS, BATCH_BYTES * len(column) // (column.nbytes + 1)))
    for begin in range(0, len(column), at_once):
        yield column.slice(begin, at_once)


def _values(column: Any, issues: Counter[str]) -> list[Any]:
    """Texts, None where there is none, or lists of these."""
    if _is_list(column.type):
        return [None if row.values is None else _values(plain_column(row.values), issues) for row in column]
    data = _bytes(column)
    if _is_string(column.type):
        try:
            texts: list[Any] = column.to_pylist()
            return texts
        except UnicodeDecodeError:
            pass
    return [value if value is None else _decoded(value, issues) for value in data.to_pylist()]


def _bytes(column: Any) -> Any:
    """The bytes of the texts of a column. Offsets are checked: a wrong one would reach outside of it."""
    import pyarrow as pa

    kinds = {"string": pa.binary(), "large_string": pa.large_binary(), "string_view": pa.binary_view()}
    data = column.view(kinds[str(column.type)]) if _is_string(column.type) else column
    data.validate(full=True)
    return data


def rows_of_columns(
    path: str, kind: str, wanted: Sequence[str] | None
) -> tuple[Any, Iterator[dict[str, Any]]]:
    """The schema of a file, and its rows.

    Args:
        kind: "parquet" or "arrow".
        wanted: the columns that rows have; None: all of them. Of none of them, rows have another one.

    Raises:
        BrimfulError: it is no such file, is compressed, or damaged; while rows are read: so is a part of it.
    """
    report = Refusing(path=Path(path), place="row")
    require_plain(path)

    def choose(schema: Any) -> list[str]:
        if wanted is None:
            return list(schema.names)
        return [name for name in dict.fromkeys(wanted) if name in schema.names] or schema.names[:1]

    try:
        schema, groups = _open(Span(path=path), kind, choose, report)
    except OSError as error:
        raise BrimfulError(f"{path} is {error.strerror}") from error
    return schema, chain.from_iterable(
        rows for _, rows in _convert_groups(path, groups, partial(_strict_rows, path), report)
    )


def _strict_rows(path: str, batch: Any) -> list[dict[str, Any]]:
    try:
        columns = [_strict_values(plain_column(column)) for column in batch.columns]
    except UnicodeDecodeError as error:
        raise BrimfulError(f"{path} has bytes that are not UTF-8 in a text: convert it") from error
    names = batch.schema.names
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def _strict_values(column: Any) -> list[Any]:
    """The values of a column; bytes that are UTF-8 are text."""
    if _is_string(column.type) or _is_binary(column.type):
        return [None if value is None else value.decode() for value in _bytes(column).to_pylist()]
    values: list[Any] = column.to_pylist()
    return values


def _decoded(data: bytes, issues: Counter[str]) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        pass
    text = data.decode(errors="replace")
    replaced = text.count("\ufffd") - data.decode(errors="ignore").count("\ufffd")
    issues["undecodable characters"] += replaced
    return text
