"""The clean text of a part, on disk between cleaning and tokenizing.

NAME.parquet  one row for each document: text, input, record
NAME.docs     facts about each document, DOCUMENT
NAME.lines    the key of each line, uint64, in the order of documents (with dedup.lines)
NAME.bands    MinHash keys, uint64 (documents, 14) (with dedup.near)
NAME.json     the commit record
"""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, TypedDict

import numpy as np

from brimful.base.console import counted, warn
from brimful.base.storage import atomic_files, commit, find_commit
from brimful.corpus.dedup.duplicates import BANDS, LINE_BYTES, DedupConfig, NearKeys
from brimful.corpus.dedup.keys import compute_keys
from brimful.corpus.shards import map_file
from brimful.corpus.words.segmenter import Language, Segmenter, entries_found, read_lexicon

ROW_GROUP_CHARACTERS = 1 << 21
ROWS_AT_ONCE = 1024
LEXICON_CHECK_CHARACTERS = 2_000_000
"""Characters of the text that are looked through, of all parts alike."""
LEAST_SHARE_OF_ENTRIES = 1e-3
"""If fewer of a lexicon's entries occur, it is probably written otherwise than the text."""

# `key`: of the text. `origin`: the key that all pieces of a cut document share. `tokens`: an estimate.
DOCUMENT = np.dtype([("key", "<u8"), ("origin", "<u8"), ("tokens", "<u4"), ("lines", "<u4")])


@dataclass(frozen=True)
class CleanText:
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
    issue_examples: dict[str, dict[str, str]]
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


class TextWriter:
    """Writes a part under temporary names, until `commit` makes it exist."""

    def __init__(self, directory: Path, name: str, dedup: DedupConfig) -> None:
        self.documents = self.characters = 0
        self._path = text_path(directory, name)
        self._dedup = dedup
        self._near = NearKeys() if dedup.near else None
        self._rows: list[CleanText] = []
        self._size = 0
        self._stack = ExitStack()
        suffixes = [".docs"] + [".lines"] * (dedup.lines > 0) + [".bands"] * dedup.near
        self._paths = [self._path, *map(self._path.with_suffix, suffixes)]
        self._files: dict[str, BinaryIO] = {}

    def __enter__(self) -> "TextWriter":
        import pyarrow as pa
        import pyarrow.parquet as pq

        self._schema = pa.schema([("text", pa.string()), ("input", pa.uint32()), ("record", pa.uint64())])
        with ExitStack() as stack:
            record = self._path.with_suffix(".json")
            parquet, *others = stack.enter_context(atomic_files(record, self._paths))
            self._parquet = stack.enter_context(pq.ParquetWriter(parquet, self._schema, compression="zstd"))
            for path, temporary in zip(self._paths[1:], others, strict=True):
                self._files[path.suffix] = stack.enter_context(open(temporary, "wb"))
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            with self._stack:
                self._flush()
        else:
            self._stack.__exit__(kind, error, trace)

    def add(self, rows: list[CleanText]) -> None:
        """Append a document's pieces."""
        self._rows += rows
        self._size += sum(len(row.text) for row in rows)
        if self._size >= ROW_GROUP_CHARACTERS:
            self._flush()

    def _flush(self) -> None:
        import pyarrow as pa

        if not self._rows:
            return
        texts = [row.text for row in self._rows]
        columns = [texts, [row.input for row in self._rows], [row.record for row in self._rows]]
        self._parquet.write_table(pa.table(columns, schema=self._schema))
        keys = compute_keys(texts, LINE_BYTES)
        first = np.array([row.is_first for row in self._rows])
        facts = np.empty(len(texts), DOCUMENT)
        facts["key"], facts["tokens"], facts["lines"] = keys.documents, keys.tokens, keys.line_counts
        facts["origin"] = keys.documents[np.maximum.accumulate(np.where(first, np.arange(len(first)), 0))]
        self._files[".docs"].write(facts.tobytes())
        if ".lines" in self._files:
            self._files[".lines"].write(keys.lines.tobytes())
        if self._near is not None:
            self._files[".bands"].write(self._near(texts).tobytes())
        self.documents += len(texts)
        self.characters += self._size
        self._rows, self._size = [], 0

    def commit(self, **facts: Any) -> dict[str, Any]:
        """Write the commit record, after the `with` block; returns it."""
        return commit(
            self._path.with_suffix(".json"),
            self._paths,
            documents=self.documents,
            characters=self.characters,
            **facts,
        )


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


def check_lexicon(directory: Path, language: Language, path: str) -> None:
    """Warn of a lexicon of which nothing, or hardly anything, occurs in the clean text of a corpus.

    Raises:
        BrimfulError: as `read_lexicon`.
    """
    words = read_lexicon(path)
    parts = sorted(file.stem for file in (directory / "text").glob("*.parquet"))
    seen = 0

    def texts() -> Iterator[str]:
        nonlocal seen
        for place, name in enumerate(parts, 1):
            part = TextPart(directory, name)
            for _, text, _, _ in part.rows(0, np.ones(len(part.documents), dtype=bool)):
                if seen >= LEXICON_CHECK_CHARACTERS * place // len(parts):
                    break
                seen += len(text)
                yield text

    found = entries_found(Segmenter(language, words), words, texts())
    if found <= LEAST_SHARE_OF_ENTRIES * len(words):
        where = "the text" if seen < LEXICON_CHECK_CHARACTERS else f"{seen:,} characters of the text"
        entries = counted(len(words), "entry").replace("entrys", "entries")
        warn(
            f"{path}: {found:,} of {entries} occur in {where} (the first is {words[0]!r:.40}): words are"
            " found only as they are written, one a line"
        )
