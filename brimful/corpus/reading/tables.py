"""The rows of Parquet and Arrow files, read in batches of bounded size."""

import mmap
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from brimful.base.errors import BrimfulError
from brimful.base.machine import drop_pages
from brimful.base.storage import require_utf8
from brimful.base.types import Values
from brimful.corpus.reading.archives import compression_of
from brimful.corpus.reading.faults import DAMAGED, Refusing, Report, check_machine
from brimful.corpus.reading.inputs import Span

MOST_ROWS = 1024
BATCH_BYTES = 1 << 24
# Pages of a mapped file count as memory of the process from when they are read until they are released.
MAPPED_BYTES = 1 << 26
_ARROW_MAGIC = b"ARROW1"
# A stream ends with a length of 0. Without it, the file may have been cut between two messages.
_END_OF_STREAM = b"\xff\xff\xff\xff\0\0\0\0"
_FORM_NAMES = {"parquet": "a Parquet", "arrow": "an Arrow"}

Group = tuple[int, Iterable[Any]]
"""The number of rows of a row group, and its batches."""


def require_plain(path: str) -> None:
    """Refuse a file that is compressed as a whole: both formats need random access, and compress themselves.

    Raises:
        BrimfulError: the file is compressed, or its name is not UTF-8.
        OSError: it cannot be read.
    """
    require_utf8(path)
    if compression_of(path):
        raise BrimfulError(f"{path}: Parquet and Arrow files are read as they are: unpack it first")


def open_groups(
    span: Span, form: str, report: Report
) -> tuple[Any, list[str], Callable[[list[str]], Iterable[Group]]]:
    """Return the schema of a file, its columns, and a function that reads columns within the span."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        if form == "parquet":
            table = pq.ParquetFile(span.path, pre_buffer=False, buffer_size=1 << 20)
            schema = table.schema_arrow
            # Names that are not UTF-8 raise here.
            return schema, schema.names, partial(_read_parquet_groups, table, span)
        with open(span.path, "rb") as file:
            memory = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        is_file = memory[: len(_ARROW_MAGIC)] == _ARROW_MAGIC
        if not is_file and memory[-len(_END_OF_STREAM) :] != _END_OF_STREAM:
            report.note("has no end mark, perhaps cut short")
        source = pa.BufferReader(memory)
        reader = pa.ipc.open_file(source) if is_file else pa.ipc.open_stream(source)
        read_batches = partial(_read_arrow_batches, memory, reader, is_file)
        # An Arrow file, or a stream that was saved, is read as one group.
        return reader.schema, reader.schema.names, lambda names: [(0, read_batches(names))]
    except UnicodeDecodeError as error:
        raise OSError(0, "damaged in the names of its columns") from error
    except (pa.ArrowException, OSError, ValueError) as error:
        check_machine(error, span.path)
        raise OSError(0, f"not {_FORM_NAMES[form]} file, or damaged") from error


def _read_parquet_groups(table: Any, span: Span, names: list[str]) -> Iterator[Group]:
    with table:
        for number in range(table.num_row_groups)[span.begin : span.end]:
            group = table.metadata.row_group(number)
            size = sum(column_bytes(group, name) for name in names) + 1
            rows = max(1, min(MOST_ROWS, BATCH_BYTES * group.num_rows // size))
            batches = table.iter_batches(rows, row_groups=[number], columns=names)
            yield group.num_rows, chain.from_iterable(map(_cut_batch, batches))


def _read_arrow_batches(memory: mmap.mmap, reader: Any, is_file: bool, names: list[str]) -> Iterator[Any]:
    batches = map(reader.get_batch, range(reader.num_record_batches)) if is_file else iter(reader)
    # By place, since several columns may have one name.
    columns = list(map(reader.schema.names.index, names))
    size = 0
    for batch in batches:
        for part in _cut_batch(batch.select(columns)):
            yield part
            size += part.nbytes
            if size >= MAPPED_BYTES:
                drop_pages(memory)
                size = 0


def _cut_batch(batch: Any) -> Iterator[Any]:
    """Yield slices of a batch of at most `BATCH_BYTES` and `MOST_ROWS`."""
    rows = max(1, min(MOST_ROWS, BATCH_BYTES * len(batch) // (batch.nbytes + 1)))
    for begin in range(0, len(batch), rows):
        yield batch.slice(begin, rows)


def convert_groups(
    path: str, groups: Iterable[Group], convert: Callable[[Any], list[Any]], report: Report
) -> Iterator[tuple[int, list[Any]]]:
    """Yield each batch, converted, with the number of its first row. Groups after a damaged one are read."""
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
    """Return the uncompressed bytes of a column in a row group, or of all columns if it lacks the column."""
    for number in range(group.num_columns):
        column = group.column(number)
        if column.path_in_schema == field:
            return column.total_uncompressed_size
    return group.total_byte_size


def is_string(kind: Any) -> bool:
    """Return whether a type of Arrow is text."""
    return str(kind) in ("string", "large_string", "string_view")


def is_binary(kind: Any) -> bool:
    """Return whether a type of Arrow is bytes, which may be text."""
    return str(kind).partition("[")[0] in ("binary", "large_binary", "binary_view", "fixed_size_binary")


def plain_column(column: Any) -> Any:
    """Return an Arrow array of the values that extension types, dictionaries and run-ends stand for.

    Raises:
        ArrowInvalid: an offset or an index reaches outside of the file.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    # Strings that are not UTF-8 are decoded later, so only their offsets are checked.
    column.validate(full=not is_string(column.type))
    while True:
        if isinstance(column, pa.ExtensionArray):
            column = column.storage
        elif pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        elif pa.types.is_run_end_encoded(column.type):
            column = pc.run_end_decode(column)
        else:
            return column


def list_texts(column: Any, decode: Callable[[bytes], str]) -> list[Any]:
    """Return the texts of a column of strings or bytes; `decode` decodes bytes that are not UTF-8."""
    import pyarrow as pa

    kinds = {"string": pa.binary(), "large_string": pa.large_binary(), "string_view": pa.binary_view()}
    data = column.view(kinds[str(column.type)]) if is_string(column.type) else column
    data.validate(full=True)  # a wrong offset would reach outside of the column
    if is_string(column.type):
        try:
            texts: list[Any] = column.to_pylist()
            return texts
        except UnicodeDecodeError:
            pass
    return [None if value is None else decode(value) for value in data.to_pylist()]


def rows_of_columns(path: str, form: str, columns: Sequence[str] | None) -> tuple[Any, Iterator[Values]]:
    """Return the schema of a file, and its rows.

    Args:
        form: "parquet" or "arrow".
        columns: the names of the columns to read; None: all. A file without any of them gives its first.

    Raises:
        BrimfulError: the file is of another format, compressed, or damaged; while rows are read: a part of it
            is damaged.
    """
    report = Refusing(path=Path(path), place="row")
    require_plain(path)
    try:
        schema, names, read_groups = open_groups(Span(path=path), form, report)
    except OSError as error:
        raise BrimfulError(f"{path} is {error.strerror}") from error
    if columns is not None:
        names = [name for name in dict.fromkeys(columns) if name in names] or names[:1]
    batches = convert_groups(path, read_groups(names), partial(_list_rows, path), report)
    return schema, chain.from_iterable(rows for _, rows in batches)


def _list_rows(path: str, batch: Any) -> list[Values]:
    columns = []
    try:
        for column in map(plain_column, batch.columns):
            is_text = is_string(column.type) or is_binary(column.type)
            columns.append(list_texts(column, bytes.decode) if is_text else column.to_pylist())
    except UnicodeDecodeError as error:
        raise BrimfulError(f"{path} has bytes that are not UTF-8 in a text: convert it") from error
    names = batch.schema.names
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
