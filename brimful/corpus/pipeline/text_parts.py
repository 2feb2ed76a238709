"""Write and read the clean text of a part, which is kept on disk between cleaning and tokenizing.

NAME.parquet  one row for each document: text, input, record
NAME.docs     facts about each document, DOCUMENT
NAME.lines    the key of each line, uint64, in the order of documents (with dedup.lines)
NAME.bands    MinHash keys, uint64 (documents, 14) (with dedup.near)
NAME.json     the commit record
"""

from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, TypedDict

import numpy as np
from numpy import ndarray

from brimful.base.console import warn
from brimful.base.storage import atomic_files, find_commit
from brimful.base.types import Values
from brimful.corpus.dedup.duplicates import BANDS, LINE_BYTES, DedupConfig, NearKeys
from brimful.corpus.shards import map_file
from brimful.corpus.text.batches import batch_by_characters

ROW_GROUP_CHARACTERS = 1 << 21
ROWS_AT_ONCE = 1024

# `key` names the text, `origin` the document that it is a piece of; `tokens` is an estimate.
DOCUMENT = np.dtype([("key", "<u8"), ("origin", "<u8"), ("tokens", "<u4"), ("lines", "<u4")])


class CleanText(NamedTuple):
    """A clean document, or a piece of one that was cut, and its input and record."""

    text: str
    input: int
    record: int
    is_first: bool


class _Span(TypedDict):
    path: str
    begin: int
    end: int | None
    crc32: int | None


class _Example(TypedDict):
    input: int
    record: int
    before: str
    after: str


class PartRecord(TypedDict):
    """The facts in the commit record of a part."""

    name: str
    documents: int
    characters: int
    read: int
    inputs: list[_Span]
    counts: dict[str, int]
    issues: dict[str, dict[str, int]]
    examples: dict[str, list[_Example]]


def find_made(record: Path, shape: Any, verify: bool, **facts: Any) -> Values | None:
    """Return the commit record of an earlier preparation if it holds these facts; otherwise None.

    Args:
        verify: read every byte of its files. A warning names what is damaged, since it is made again.
    """

    def warn_of_damage(what: str) -> None:
        warn(f"{what}: it is made again")

    return find_commit(record, shape, verify=verify, damaged=warn_of_damage if verify else None, **facts)


def text_path(directory: Path, name: str) -> Path:
    """Return the Parquet file of a part."""
    return directory / "text" / f"{name}.parquet"


def write_text(
    directory: Path, name: str, dedup: DedupConfig, documents: Iterable[list[CleanText]]
) -> tuple[list[Path], dict[str, int]]:
    """Write the files of a part, except its commit record.

    Args:
        documents: the pieces of each document; read once, so that memory holds only a row group.

    Returns:
        the files, and their numbers of `documents` and `characters`.

    Raises:
        BrimfulError: the folder cannot be written.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = pa.schema([("text", pa.string()), ("input", pa.uint32()), ("record", pa.uint64())])
    path = text_path(directory, name)
    suffixes = [".docs"]
    if dedup.lines:
        suffixes.append(".lines")
    near_keys = None
    if dedup.near:
        suffixes.append(".bands")
        near_keys = NearKeys()
    paths = [path, *map(path.with_suffix, suffixes)]
    counts = {"documents": 0, "characters": 0}
    with ExitStack() as stack:
        parquet, *others = stack.enter_context(atomic_files(path.with_suffix(".json"), paths))
        table = stack.enter_context(pq.ParquetWriter(parquet, schema, compression="zstd"))
        files = [stack.enter_context(open(temporary, "wb")) for temporary in others]
        for group in batch_by_characters(documents, ROW_GROUP_CHARACTERS, _count_characters):
            rows = [piece for pieces in group for piece in pieces]
            texts, inputs, records, is_first = zip(*rows, strict=True)
            table.write_table(pa.table([texts, inputs, records], schema=schema))
            facts, lines = _facts(texts, is_first)
            columns = {".docs": facts, ".lines": lines}
            if near_keys is not None:
                columns[".bands"] = near_keys(texts)
            for file, suffix in zip(files, suffixes, strict=True):
                file.write(columns[suffix].tobytes())
            counts["documents"] += len(texts)
            counts["characters"] += sum(map(len, texts))
    return paths, counts


def _count_characters(pieces: list[CleanText]) -> int:
    return sum(len(piece.text) for piece in pieces)


def _facts(texts: tuple[str, ...], is_first: tuple[bool, ...]) -> tuple[ndarray, ndarray]:
    """Return the facts about each document, DOCUMENT (D,), and the keys of the lines, uint64 (L,)."""
    from brimful.corpus.dedup.keys import compute_keys  # imports numba

    keys = compute_keys(texts, LINE_BYTES)
    # The number of the first piece of each document, carried forward to the later pieces.
    first = np.maximum.accumulate(np.where(is_first, np.arange(len(texts)), 0))
    columns = [keys.documents, keys.documents[first], keys.tokens, keys.line_counts]
    return np.rec.fromarrays(columns, DOCUMENT), keys.lines


class TextPart:
    """A committed part; its files are read when they are needed."""

    def __init__(self, directory: Path, name: str) -> None:
        self.name = name
        self._path = text_path(directory, name)

    @cached_property
    def documents(self) -> ndarray:
        """Facts about each document, DOCUMENT (D,)."""
        return map_file(self._path.with_suffix(".docs"), DOCUMENT)

    @cached_property
    def lines(self) -> ndarray:
        """The key of each line, uint64 (L,)."""
        return map_file(self._path.with_suffix(".lines"), "<u8")

    @cached_property
    def bands(self) -> ndarray:
        """MinHash keys, uint64 (D, BANDS)."""
        return map_file(self._path.with_suffix(".bands"), "<u8").reshape(-1, BANDS)

    def rows(self, begin: int, chosen: ndarray) -> Iterator[tuple[int, str, int, int]]:
        """Yield (document number, text, input, record) of documents `begin + i` where `chosen[i]`, in order.

        Only the row groups with such documents are read.
        """
        import pyarrow as pa
        import pyarrow.parquet as pq

        end = begin + len(chosen)
        with pq.ParquetFile(self._path) as file:
            groups: list[int] = []
            first = group_begin = 0  # the first document of these groups, and of each group
            for group in range(file.num_row_groups):
                group_end = group_begin + file.metadata.row_group(group).num_rows
                if group_end <= begin:
                    first = group_end
                elif group_begin < end:
                    groups.append(group)
                group_begin = group_end
            for batch in file.iter_batches(ROWS_AT_ONCE, row_groups=groups):
                is_chosen = np.zeros(len(batch), bool)
                low, high = max(first, begin), min(first + len(batch), end)
                if low < high:
                    is_chosen[low - first : high - first] = chosen[low - begin : high - begin]
                if is_chosen.any():
                    columns = [column.to_pylist() for column in batch.filter(pa.array(is_chosen)).columns]
                    yield from zip((first + np.flatnonzero(is_chosen)).tolist(), *columns, strict=True)
                first += len(batch)
