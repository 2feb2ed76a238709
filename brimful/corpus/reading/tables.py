"""Columns of text in Parquet and Arrow files, read in batches of bounded size."""

import mmap
import os
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from typing import Any

from brimful.base.errors import BrimfulError, nearest
from brimful.base.storage import require_utf8
from brimful.base.system import forget_read
from brimful.corpus.reading.archives import compression_of, read_chunks
from brimful.corpus.reading.failures import check_machine
from brimful.corpus.reading.faults import Counting
from brimful.corpus.reading.inputs import Span
from brimful.corpus.reading.values import joined

MOST_ROWS = 1024
BATCH_BYTES = 1 << 24
# Pages that were read of a mapped file count as memory of the process until they are released.
HELD_BYTES = 1 << 26
# A stream ends with a length of 0. Without it, the file may have been cut between two messages.
_END_OF_STREAM = b"\xff\xff\xff\xff\0\0\0\0"


class NoFieldError(BrimfulError):
    """The records of a file lack the text field."""


def no_field(path: str, field: str, known: Any) -> NoFieldError:
    """The error of a file whose records lack the text field."""
    hint = "its values are no texts" if field in known else nearest(field, known)
    return NoFieldError(f"{path} has no text in a field {field!r}: {hint} (set --read.field)")


def say_columns(names: list[str], field: str, span: Span, report: Counting) -> None:
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
    with plain_file(span.path, issues) as file:
        try:
            yield from (_parquet if kind == "parquet" else _arrow)(file, span, field, issues)
        except UnicodeDecodeError as error:
            raise OSError(0, "names of its columns are damaged") from error


@contextmanager
def plain_file(path: str, issues: Counter[str]) -> Iterator[str]:
    """The path of the file, unpacked where it is compressed: both formats need random access."""
    require_utf8(path)
    with open(path, "rb"):  # its error is clearer than pyarrow's
        pass
    if not compression_of(path):
        yield path
        return
    with _unpacking(path):
        unpacked = tempfile.NamedTemporaryFile(buffering=0)  # noqa: SIM115
    with unpacked:
        for chunk in read_chunks(path, issues):
            with _unpacking(path):
                while chunk:
                    chunk = chunk[unpacked.write(chunk) :]
        yield unpacked.name


@contextmanager
def _unpacking(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        place = tempfile.tempdir or "a temporary folder"  # None: no place was found
        raise BrimfulError(
            f"cannot unpack {path} into {place}: {error.strerror};"
            " set TMPDIR to a larger place, or decompress it first"
        ) from error


def _parquet(file: str, span: Span, field: str, issues: Counter[str]) -> Iterator[tuple[int, str]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.ParquetFile(file, pre_buffer=False, buffer_size=1 << 20)
    except (pa.ArrowException, OSError) as error:
        check_machine(error, span.path)
        raise OSError(0, "not a Parquet file, or damaged") from error
    with table:
        _check_column(table.schema_arrow, field, span, issues)
        groups = table.num_row_groups
        begin = 0
        for number in range(span.begin, groups if span.end is None else min(span.end, groups)):
            group = table.metadata.row_group(number)
            rows = max(1, min(MOST_ROWS, BATCH_BYTES * group.num_rows // (column_bytes(group, field) + 1)))
            at = begin
            try:
                for batch in table.iter_batches(rows, row_groups=[number], columns=[field]):
                    for part in _parts(batch.column(0)):
                        yield from _texts(part, at, field, issues)
                        at += len(part)
            except (pa.ArrowException, OSError) as error:
                check_machine(error, span.path)
                issues["row group damaged, its rest lost"] += 1
            begin += group.num_rows


def column_bytes(group: Any, field: str) -> int:
    """Uncompressed bytes of a column in the metadata of a row group; of all columns if it is not there."""
    for number in range(group.num_columns):
        column = group.column(number)
        if column.path_in_schema == field:
            return column.total_uncompressed_size
    return group.total_byte_size


def _arrow(file: str, span: Span, field: str, issues: Counter[str]) -> Iterator[tuple[int, str]]:
    import pyarrow as pa

    if not os.path.getsize(file):
        return
    with open(file, "rb") as opened:
        memory = mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ)
    source = pa.BufferReader(memory)
    is_file = memory[:6] == b"ARROW1"
    if not is_file and memory[-len(_END_OF_STREAM) :] != _END_OF_STREAM:
        issues["no end mark, perhaps cut short"] += 1
    try:
        reader = pa.ipc.open_file(source) if is_file else pa.ipc.open_stream(source)
    except (pa.ArrowException, OSError) as error:
        check_machine(error, span.path)
        raise OSError(0, "not an Arrow file, or damaged") from error
    index = _check_column(reader.schema, field, span, issues)
    begin = held = 0
    try:
        for number in range(reader.num_record_batches) if is_file else count():
            batch = reader.get_batch(number) if is_file else reader.read_next_batch()
            for part in _parts(batch.column(index)):
                yield from _texts(part, begin, field, issues)
                begin += len(part)
                held += part.nbytes
                if held >= HELD_BYTES:
                    forget_read(memory)
                    held = 0
    except StopIteration:
        return
    except (pa.ArrowException, OSError) as error:
        check_machine(error, span.path)
        issues["file damaged, its rest lost"] += 1


def _check_column(schema: Any, field: str, span: Span, issues: Counter[str]) -> int:
    """The column's index."""
    if field not in schema.names:
        raise no_field(span.path, field, schema.names)
    say_columns(schema.names, field, span, Counting(issues))
    index = schema.names.index(field)
    if not _may_be_text(schema.types[index]):
        raise BrimfulError(
            f"{span.path}: column {field!r} holds {schema.types[index]}, not text; set --read.field"
        )
    return index


def _may_be_text(kind: Any) -> bool:
    """Whether values of a type can be texts, bytes of texts, or lists of these."""
    import pyarrow as pa

    if isinstance(kind, pa.BaseExtensionType):
        return _may_be_text(kind.storage_type)
    if _is_list(kind) or pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
        return _may_be_text(kind.value_type)
    return pa.types.is_null(kind) or _is_string(kind) or _is_binary(kind)


def _is_string(kind: Any) -> bool:
    import pyarrow as pa

    return pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)


def _is_binary(kind: Any) -> bool:
    import pyarrow as pa

    types = pa.types
    is_plain = types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind)
    return is_plain or types.is_binary_view(kind)


def _is_list(kind: Any) -> bool:
    import pyarrow as pa

    tests = ("is_list", "is_large_list", "is_fixed_size_list", "is_list_view", "is_large_list_view")
    return any(getattr(pa.types, test)(kind) for test in tests)


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


def _texts(column: Any, begin: int, field: str, issues: Counter[str]) -> Iterator[tuple[int, str]]:
    column = plain_column(column)
    report = Counting(issues)
    for number, value in enumerate(_values(column, issues), begin):
        text = joined(value, report) if isinstance(value, list) else value
        if text is not None:
            yield number, text
        else:
            issues[f"records without a text {field!r}"] += 1


def _values(column: Any, issues: Counter[str]) -> list[Any]:
    import pyarrow as pa

    if _is_list(column.type):
        return [None if row.values is None else _values(plain_column(row.values), issues) for row in column]
    if pa.types.is_null(column.type):
        return [None] * len(column)
    data = column
    if not _is_binary(column.type):
        data = column.view(_bytes_of(column.type))
        data.validate(full=True)  # a wrong offset would reach outside of the file
        try:
            return column.to_pylist()
        except UnicodeDecodeError:
            pass
    return [value if value is None else _decoded(value, issues) for value in data.to_pylist()]


def _bytes_of(kind: Any) -> Any:
    """The type of the bytes of a type of strings."""
    import pyarrow as pa

    kinds = {
        pa.string(): pa.binary(),
        pa.large_string(): pa.large_binary(),
        pa.string_view(): pa.binary_view(),
    }
    return kinds[kind]


def rows_of_columns(
    file: str, kind: str, wanted: Sequence[str] | None, path: str
) -> tuple[list[str], Iterator[dict[str, Any]]]:
    """The names of all columns of a file, and its rows.

    Args:
        file: the file, unpacked.
        kind: "parquet" or "arrow".
        wanted: the columns that rows have; None: all of them. Of none of them, rows have another one.
        path: what messages call the file.

    Raises:
        BrimfulError: it is no such file, or damaged; while rows are read: so is a part of it.
    """
    import pyarrow as pa

    try:
        known, batches = (_parquet_batches if kind == "parquet" else _arrow_batches)(file, wanted)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise BrimfulError(f"{path} is not {NAMES[kind]} file, or is damaged") from error
    return known, _rows(batches, kind, path)


NAMES = {"parquet": "a Parquet", "arrow": "an Arrow"}


def _parquet_batches(file: str, wanted: Sequence[str] | None) -> tuple[list[str], Iterator[Any]]:
    import pyarrow.parquet as pq

    table = pq.ParquetFile(file)
    known = table.schema_arrow.names
    return known, table.iter_batches(batch_size=1 << 14, columns=_chosen(known, wanted))


def _arrow_batches(file: str, wanted: Sequence[str] | None) -> tuple[list[str], Iterator[Any]]:
    import pyarrow as pa

    source = pa.memory_map(file)
    is_file = source.read(6) == b"ARROW1"
    source.seek(0)
    reader = pa.ipc.open_file(source) if is_file else pa.ipc.open_stream(source)
    batches = map(reader.get_batch, range(reader.num_record_batches)) if is_file else iter(reader)
    known = reader.schema.names
    chosen = [known.index(name) for name in _chosen(known, wanted)]
    return known, (batch.select(chosen) for batch in batches)


def _chosen(known: list[str], wanted: Sequence[str] | None) -> list[str]:
    if wanted is None:
        return known
    return [name for name in dict.fromkeys(wanted) if name in known] or known[:1]


def _rows(batches: Iterator[Any], kind: str, path: str) -> Iterator[dict[str, Any]]:
    import pyarrow as pa

    read = 0
    try:
        for batch in batches:
            names = batch.schema.names
            columns = [_strict_values(column) for column in batch.columns]
            for row in zip(*columns, strict=True):
                yield dict(zip(names, row, strict=True))
            read += len(batch)
    except (pa.ArrowException, OSError) as error:
        check_machine(error, path)
        raise BrimfulError(f"{path} is not {NAMES[kind]} file, or is damaged after row {read:,}") from error
    except UnicodeDecodeError as error:
        raise BrimfulError(f"{path} has bytes that are not UTF-8 after row {read:,}, in a text") from error


def _strict_values(column: Any) -> list[Any]:
    """The values of a column; bytes that are UTF-8 are text."""
    column = plain_column(column)
    if _is_string(column.type):
        column.view(_bytes_of(column.type)).validate(full=True)
    values = column.to_pylist()
    if _is_binary(column.type):
        return [None if value is None else value.decode() for value in values]
    return values


def _decoded(data: bytes, issues: Counter[str]) -> str:
    text = data.decode(errors="replace")
    replaced = text.count("\ufffd") - data.decode(errors="ignore").count("\ufffd")
    if replaced:
        issues["undecodable characters"] += replaced
    return text
