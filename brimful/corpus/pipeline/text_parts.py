"""The clean text of a part, on disk between cleaning and tokenizing.

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

from brimful.base.console import warn
from brimful.base.storage import atomic_files, find_commit
from brimful.corpus.dedup.duplicates import BANDS, LINE_BYTES, DedupConfig, NearKeys
from brimful.corpus.shards import map_file
from brimful.corpus.text.batches import batch_by_characters

ROW_GROUP_CHARACTERS = 1 << 21
ROWS_AT_ONCE = 1024

# `key`: of the text. `origin`: the key that all pieces of a cut document share. `tokens`: an estimate.
DOCUMENT = np.dtype([("key", "<u8"), ("origin", "<u8"), ("tokens", "<u4"), ("lines", "<u4")])


class CleanText(NamedTuple):
    """A clean document, or a piece of one that was cut, and where it was read."""

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


class TextRecord(TypedDict):
    """What the commit record of a part holds."""

    name: str
    documents: int
    characters: int
    read: int
    inputs: list[_Span]
    counts: dict[str, int]
    issues: dict[str, dict[str, int]]
    examples: dict[str, list[_Example]]


def find_made(record: Path, shape: Any, verify: bool, **facts: Any) -> dict[str, Any] | None:
    """What an earlier preparation has made: its commit record, if it holds these facts; otherwise None.

    Args:
        verify: read every byte of its files. A warning names what is damaged, since it is made again.
    """

    def damaged(what: str) -> None:
        warn(f"{what}: it is made again")

    return find_commit(record, shape, verify=verify, damaged=damaged if verify else None, **facts)


def text_path(directory: Path, name: str) -> Path:
    """The Parquet file of a part."""
    return directory / "text" / f"{name}.parquet"


def write_text(
    directory: Path, name: str, dedup: DedupConfig, documents: Iterable[list[CleanText]]
) -> tuple[list[Path], dict[str, int]]:
    """Write the files of a part, all but its commit record.

    Args:
        documents: the pieces of each document; read once, so memory holds a row group.

    Returns:
        the files, and how many `documents` and `characters` they have.

    Raises:
        BrimfulError: the folder cannot be written.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = pa.schema([("text", pa.string()), ("input", pa.uint32()), ("record", pa.uint64())])
    path = text_path(directory, name)
    suffixes = [".docs"] + [".lines"] * (dedup.lines > 0) + [".bands"] * dedup.near
    paths = [path, *map(path.with_suffix, suffixes)]
    near = NearKeys() if dedup.near else None
    counts = {"documents": 0, "characters": 0}
    with ExitStack() as stack:
        parquet, *others = stack.enter_context(atomic_files(path.with_suffix(".json"), paths))
        table = stack.enter_context(pq.ParquetWriter(parquet, schema, compression="zstd"))
        files = [stack.enter_context(open(temporary, "wb")) for temporary in others]
        for group in batch_by_characters(documents, ROW_GROUP_CHARACTERS, _characters):
            rows = [piece for pieces in group for piece in pieces]
            texts, inputs, records, is_first = zip(*rows, strict=True)
            table.write_table(pa.table([texts, inputs, records], schema=schema))
            facts, lines = _facts(texts, is_first)
            columns = {".docs": facts, ".lines": lines}
            if near is not None:
                columns[".bands"] = near(texts)
            for file, suffix in zip(files, suffixes, strict=True):
                file.write(columns[suffix].tobytes())
            counts["documents"] += len(texts)
            counts["characters"] += sum(map(_characters, group))
    return paths, counts


def _characters(pieces: list[CleanText]) -> int:
    return sum(len(piece.text) for piece in pieces)


def _facts(texts: tuple[str, ...], is_first: tuple[bool, ...]) -> tuple[np.ndarray, np.ndarray]:
    """The facts about each document, DOCUMENT (D,), and the keys of the lines, uint64 (L,)."""
    from brimful.corpus.dedup.keys import compute_keys  # imports numba

    keys = compute_keys(texts, LINE_BYTES)
    first = np.where(is_first, np.arange(len(texts)), 0)
    facts = np.empty(len(texts), DOCUMENT)
    facts["key"], facts["tokens"], facts["lines"] = keys.documents, keys.tokens, keys.line_counts
    facts["origin"] = keys.documents[np.maximum.accumulate(first)]
    return facts, keys.lines


class TextPart:
    """A committed part; its files are read when they are needed."""

    def __init__(self, directory: Path, name: str) -> None:
        self.name = name
        self._path = text_path(directory, name)

    @cached_property
    def documents(self) -> np.ndarray:
        """Facts about each document, DOCUMENT (D,)."""
        return map_file(self._path.with_suffix(".docs"), DOCUMENT)

    @cached_property
    def lines(self) -> np.ndarray:
        """The key of each line, uint64 (L,)."""
        return map_file(self._path.with_suffix(".lines"), "<u8")

    @cached_property
    def bands(self) -> np.ndarray:
        """MinHash keys, uint64 (D, BANDS)."""
        return map_file(self._path.with_suffix(".bands"), "<u8").reshape(-1, BANDS)

    def rows(self, begin: int, chosen: np.ndarray) -> Iterator[tuple[int, str, int, int]]:
        """(document number, text, input, record) of documents `begin + i` where `chosen[i]`, in order."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        end = begin + len(chosen)
        with pq.ParquetFile(self._path) as file:
            counts = [file.metadata.row_group(n).num_rows for n in range(file.num_row_groups)]
            ends = np.cumsum([0, *counts])
            groups = [n for n in range(len(counts)) if ends[n] < end and ends[n + 1] > begin]
            at = int(ends[groups[0]]) if groups else 0
            for batch in file.iter_batches(ROWS_AT_ONCE, row_groups=groups):
                wanted = np.zeros(len(batch), bool)
                low, high = max(at, begin), min(at + len(batch), end)
                if low < high:
                    wanted[low - at : high - at] = chosen[low - begin : high - begin]
                if wanted.any():
                    picked = batch.filter(pa.array(wanted))
                    numbers = (at + np.flatnonzero(wanted)).tolist()
                    yield from zip(numbers, *(column.to_pylist() for column in picked.columns), strict=True)
                at += len(batch)
