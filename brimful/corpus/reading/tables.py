"""Columns of text in Parquet and Arrow files, read in batches of bounded size."""

import mmap
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from brimful.base.errors import BrimfulError, nearest
from brimful.base.storage import require_utf8
from brimful.base.system import forget_read
from brimful.corpus.reading.archives import compression_of
from brimful.corpus.reading.faults import Report, check_machine
from brimful.corpus.reading.inputs import Span
from brimful.corpus.reading.values import joined

MOST_ROWS = 1024
BATCH_BYTES = 1 << 24
# Pages that were read of a mapped file count as memory of the process until they are released.
HELD_BYTES = 1 << 26
# A stream ends with a length of 0. Without it, the file may have been cut between two messages.
_ARROW = b"ARROW1"
_END_OF_STREAM = b"\xff\xff\xff\xff\0\0\0\0"


class NoFieldError(BrimfulError):
    """The records of a file lack the text field."""


def no_field(path: str, field: str, known: Any) -> NoFieldError:
    """The error of a file whose records lack the text field."""
    hint = "its values are no texts" if field in known else nearest(field, known)
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
    try:
        for begin, values in (_parquet if kind == "parquet" else _arrow)(span, field, issues):
            for number, value in enumerate(values, begin):
                text = joined(value, report) if isinstance(value, list) else value
                if text is None:
                    issues[f"records without a text {field!r}"] += 1
                else:
                    yield number, text
    except UnicodeDecodeError as error:
        raise OSError(0, "names of its columns are damaged") from error


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


def _parquet(span: Span, field: str, issues: Counter[str]) -> Iterator[tuple[int, list[Any]]]:
    """Values of the column in parts, each with the number of its first row; a bad group costs no other."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    with _opening("a Parquet", span.path):
        table = pq.ParquetFile(span.path, pre_buffer=False, buffer_size=1 << 20)
    with table:
        _check_column(table.schema_arrow, field, span, issues)
        begin = 0
        for number in range(table.num_row_groups)[span.begin : span.end]:
            group = table.metadata.row_group(number)
            rows = max(1, min(MOST_ROWS, BATCH_BYTES * group.num_rows // (column_bytes(group, field) + 1)))
            at = begin
            try:
                for batch in table.iter_batches(rows, row_groups=[number], columns=[field]):
                    for part in _parts(batch.column(0)):
                        yield at, _values(plain_column(part), issues)
                        at += len(part)
            except (pa.ArrowException, OSError) as error:
                check_machine(error, span.path)
                issues["row group damaged, its rest lost"] += 1
            begin += group.num_rows


@contextmanager
def _opening(form: str, path: str) -> Iterator[None]:
    import pyarrow as pa

    try:
        yield
    except (pa.ArrowException, OSError) as error:
        check_machine(error, path)
        raise OSError(0, f"not {form} file, or damaged") from error


def column_bytes(group: Any, field: str) -> int:
    """Uncompressed bytes of a column in the metadata of a row group; of all columns if it is not there."""
    for number in range(group.num_columns):
        column = group.column(number)
        if column.path_in_schema == field:
            return column.total_uncompressed_size
    return group.total_byte_size


def _arrow(span: Span, field: str, issues: Counter[str]) -> Iterator[tuple[int, list[Any]]]:
    """Values of the column, in parts, each with the number of its first row."""
    import pyarrow as pa

    if not os.path.getsize(span.path):
        return
    with open(span.path, "rb") as opened:
        memory = mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ)
    if memory[:6] != _ARROW and memory[-len(_END_OF_STREAM) :] != _END_OF_STREAM:
        issues["no end mark, perhaps cut short"] += 1
    with _opening("an Arrow", span.path):
        schema, batches = _arrow_batches(pa.BufferReader(memory))
    index = _check_column(schema, field, span, issues)
    begin = held = 0
    try:
        for batch in batches:
            for part in _parts(batch.column(index)):
                yield begin, _values(plain_column(part), issues)
                begin += len(part)
                held += part.nbytes
                if held >= HELD_BYTES:
                    forget_read(memory)
                    held = 0
    except (pa.ArrowException, OSError) as error:
        check_machine(error, span.path)
        issues["file damaged, its rest lost"] += 1


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


def _check_column(schema: Any, field: str, span: Span, issues: Counter[str]) -> int:
    """The column's index."""
    if field not in schema.names:
        raise no_field(span.path, field, schema.names)
    say_columns(schema.names, field, span, Report(issues))
    index: int = schema.names.index(field)
    if not _may_be_text(schema.types[index]):
        raise BrimfulError(
            f"{span.path}: column {field!r} holds {schema.types[index]}, not text; set --read.field"
        )
    return index


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
    import pyarrow as pa

    require_plain(path)
    try:
        schema, batches = _batches(path, kind, wanted)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise BrimfulError(f"{path} is not {NAMES[kind]} file, or is damaged") from error
    return schema, _rows(batches, kind, path)


NAMES = {"parquet": "a Parquet", "arrow": "an Arrow"}


def _batches(file: str, kind: str, wanted: Sequence[str] | None) -> tuple[Any, Iterator[Any]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    if kind == "parquet":
        table = pq.ParquetFile(file)
        schema = table.schema_arrow
        return schema, table.iter_batches(batch_size=1 << 14, columns=_chosen(schema.names, wanted))
    schema, batches = _arrow_batches(pa.memory_map(file))
    chosen = [schema.names.index(name) for name in _chosen(schema.names, wanted)]
    return schema, (batch.select(chosen) for batch in batches)


def _chosen(known: list[str], wanted: Sequence[str] | None) -> list[str]:
    if wanted is None:
        return known
    return [name for name in dict.fromkeys(wanted) if name in known] or known[:1]


def _rows(batches: Iterator[Any], kind: str, path: str) -> Iterator[dict[str, Any]]:
    import pyarrow as pa

    read = 0
    try:
        for batch in batches:
            columns = [_strict_values(plain_column(column)) for column in batch.columns]
            for row in zip(*columns, strict=True):
                yield dict(zip(batch.schema.names, row, strict=True))
            read += len(batch)
    except (pa.ArrowException, OSError) as error:
        check_machine(error, path)
        raise BrimfulError(f"{path} is not {NAMES[kind]} file, or is damaged after row {read:,}") from error
    except UnicodeDecodeError as error:
        raise BrimfulError(f"{path} has bytes that are not UTF-8 after row {read:,}, in a text") from error


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
