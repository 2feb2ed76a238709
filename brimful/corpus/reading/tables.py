"""Columns of text in Parquet and Arrow files, read in batches of bounded size."""

import mmap
import os
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

from brimful.corpus.reading.archives import read_chunks
from brimful.corpus.reading.failures import check_machine
from brimful.corpus.reading.inputs import Span, split_suffix
from brimful.errors import BrimfulError, nearest

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
    return NoFieldError(
        f"{path} has no text in a field {field!r}: {nearest(field, known)} (set --read.field)"
    )


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
    with open(path, "rb"):  # its error is clearer than pyarrow's
        pass
    if not split_suffix(path)[1]:
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
        _check_column(table.schema_arrow, field, span.path)
        groups = table.num_row_groups
        begin = 0
        for number in range(span.begin, groups if span.end is None else min(span.end, groups)):
            group = table.metadata.row_group(number)
            rows = max(1, min(MOST_ROWS, BATCH_BYTES * group.num_rows // (column_bytes(group, field) + 1)))
            at = begin
            try:
                for batch in table.iter_batches(rows, row_groups=[number], columns=[field]):
                    for part in _parts(batch.column(0)):
                        yield from _texts(part, at, issues)
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
    index = _check_column(reader.schema, field, span.path)
    begin = held = 0
    try:
        for number in range(reader.num_record_batches) if is_file else count():
            batch = reader.get_batch(number) if is_file else reader.read_next_batch()
            for part in _parts(batch.column(index)):
                yield from _texts(part, begin, issues)
                begin += len(part)
                held += part.nbytes
                if held >= HELD_BYTES:
                    memory.madvise(mmap.MADV_DONTNEED)
                    held = 0
    except StopIteration:
        return
    except (pa.ArrowException, OSError) as error:
        check_machine(error, span.path)
        issues["file damaged, its rest lost"] += 1


def _check_column(schema: Any, field: str, path: str) -> int:
    """The column's index."""
    import pyarrow as pa

    if field not in schema.names:
        raise no_field(path, field, schema.names)
    index = schema.names.index(field)
    kind = schema.types[index]
    stored = kind.value_type if pa.types.is_dictionary(kind) else kind
    is_text: list[Callable[[Any], bool]] = [
        pa.types.is_string,
        pa.types.is_large_string,
        pa.types.is_string_view,
    ]
    if not any(test(stored) for test in is_text):
        raise BrimfulError(f"{path}: column {field!r} holds {kind}, not text; set --read.field")
    return index


def _parts(column: Any) -> Iterator[Any]:
    at_once = max(1, min(MOST_ROWS, BATCH_BYTES * len(column) // (column.nbytes + 1)))
    for begin in range(0, len(column), at_once):
        yield column.slice(begin, at_once)


def _texts(column: Any, begin: int, issues: Counter[str]) -> Iterator[tuple[int, str]]:
    import pyarrow as pa

    if pa.types.is_dictionary(column.type):
        column.validate(full=True)
        column = column.dictionary_decode()
    for number, text in enumerate(_values(column, issues), begin):
        if text is not None:
            yield number, text


def _values(column: Any, issues: Counter[str]) -> list[str | None]:
    import pyarrow as pa

    binary = {
        pa.string(): pa.binary(),
        pa.large_string(): pa.large_binary(),
        pa.string_view(): pa.binary_view(),
    }
    data = column.view(binary[column.type])
    data.validate(full=True)  # a wrong offset would reach outside of the file
    try:
        return column.to_pylist()
    except UnicodeDecodeError:
        return [value if value is None else _decoded(value, issues) for value in data.to_pylist()]


def _decoded(data: bytes, issues: Counter[str]) -> str:
    text = data.decode(errors="replace")
    replaced = text.count("\ufffd") - data.decode(errors="ignore").count("\ufffd")
    if replaced:
        issues["undecodable characters"] += replaced
    return text
