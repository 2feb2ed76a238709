"""Keep the inventory of a corpus folder: generations of inputs, their text parts, the documents of shards.

A generation consists of the inputs that were added together. It is open until its first shard is about to be
made. From then on its inputs are fixed, and files that are added later form a new generation, so additions
never change a finished shard. Parts and shards are computed from the inputs and the settings and are never
stored.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import chain, pairwise
from pathlib import Path
from typing import Any, Literal, TypedDict

import numpy as np

from brimful.base.errors import BrimfulError
from brimful.base.storage import (
    LOCK,
    TEMPORARY,
    commit,
    crc32,
    make_write_error,
    read_commit,
    require_folder_place,
)
from brimful.base.types import Values
from brimful.corpus.reading.input_files import Input
from brimful.corpus.reading.inputs import Span, is_packed
from brimful.corpus.reading.read import ReadConfig
from brimful.corpus.reading.spans import divide

Split = Literal["train", "validation"]

# A generation is divided into about this many tasks, within the bounds below, to keep many workers busy.
TASKS = 32
LARGEST_PART = 32 << 20
SMALLEST_PART = 1 << 20
LARGEST_SHARD = 16_000_000
SMALLEST_SHARD = 100_000
PACKED_BYTES = 4  # the approximate number of bytes of text in a byte of a compressed file
PLAN = "plan.json"
FOLDERS = ("text", "dedup", "shards")


class _Tokenizer(TypedDict):
    settings: Values
    hash: str


class _PlanRecord(TypedDict):
    generations: list[list[Input]]
    checksums: dict[str, list[tuple[int, int | None, int | None]]]
    tokenizer: _Tokenizer | None


@dataclass(frozen=True)
class Part:
    """The unit of cleaning: spans of input files with at most about 32 MB of text.

    Attributes:
        inputs: the file of each span.
    """

    name: str
    spans: tuple[Span, ...]
    inputs: tuple[Input, ...]


@dataclass
class Inventory:
    """The state of a corpus folder, plan.json.

    Attributes:
        closed: the inputs of each generation that has shards.
        checksums: begin, end and CRC-32 of each span of the closed inputs, by path.
        added: the inputs of the open generation.
        tokenizer: the settings and the hash of the tokenizer; None before it is made.
    """

    directory: Path
    closed: list[list[Input]]
    checksums: dict[str, list[list[Any]]]
    added: list[Input]
    tokenizer: Values | None

    def generations(self, read: ReadConfig) -> list[list[Part]]:
        """Return the parts of each generation; one numbering runs through all of them."""
        generations = []
        count = 0
        for inputs in [*self.closed, self.added]:
            parts = []
            # A part never spans two generations, so additions change no earlier part.
            for spans, files in group_inputs(inputs, read):
                parts.append(Part(f"part-{count:05d}", spans, files))
                count += 1
            generations.append(parts)
        return generations

    def close(self, read: Sequence[Values]) -> None:
        """Fix the inputs of the open generation, because its shards are about to be made.

        Args:
            read: path, begin, end and crc32 of each span of each input.
        """
        if not self.added:
            return
        paths = {item.path for item in self.added}
        for span in read:
            if span["path"] in paths:
                checksums = self.checksums.setdefault(span["path"], [])
                checksums.append([span["begin"], span["end"], span["crc32"]])
        self.closed.append(self.added)
        self.added = []
        self.save()

    def save(self) -> None:
        """Write plan.json, a commit record without other files."""
        generations = [list(map(asdict, inputs)) for inputs in self.closed]
        facts = {"checksums": self.checksums, "tokenizer": self.tokenizer}
        commit(self.directory / PLAN, [], generations=generations, **facts)


def group_inputs(
    inputs: Sequence[Input], read: ReadConfig
) -> list[tuple[tuple[Span, ...], tuple[Input, ...]]]:
    """Group inputs, in order, into parts with about the same amount of text; large files are divided.

    Returns:
        the spans of each part, and the file of each span.
    """
    sizes = []
    for item in inputs:
        # The size of the text counts, which is larger than a compressed file.
        factor = PACKED_BYTES if is_packed(item.path) else 1
        sizes.append(item.bytes * factor)
    part_bytes = min(max(sum(sizes) // TASKS, SMALLEST_PART), LARGEST_PART)
    parts: list[tuple[list[Span], list[Input]]] = []
    filled = float(part_bytes)  # so that the first span begins a part
    for item, size in zip(inputs, sizes, strict=True):
        spans = divide(item, read, part_bytes)
        for span in spans:
            if filled >= part_bytes:
                parts.append(([], []))
                filled = 0
            parts[-1][0].append(span)
            parts[-1][1].append(item)
            filled += size / len(spans)
    return [(tuple(spans), tuple(files)) for spans, files in parts]


def open_inventory(directory: Path, inputs: Sequence[Input]) -> Inventory:
    """Return the inventory of the corpus at `directory`, with new inputs in the open generation.

    Raises:
        BrimfulError: the folder holds something else, or an input of its shards has changed or is missing.
    """
    require_corpus_place(directory)
    try:
        for name in FOLDERS:
            (directory / name).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise make_write_error(directory, error) from error
    inventory = Inventory(directory, [], {}, [], None)
    if (directory / PLAN).exists():
        plan = read_commit(directory / PLAN, _PlanRecord, remedy="prepare into a new folder")
        for generation in plan["generations"]:
            inventory.closed.append([Input(**item) for item in generation])
        inventory.checksums, inventory.tokenizer = plan["checksums"], plan["tokenizer"]
    present = {item.path: item for item in inputs}
    for item in chain.from_iterable(inventory.closed):
        now = present.pop(item.path, None)
        if now is None:
            raise BrimfulError(
                f"{directory} contains {item.path}, which is not among the inputs now; name all earlier"
                " inputs again (new ones may join them), or prepare into a new folder"
            )
        # A copy of the data has other modification times but the same content.
        if now != item and not (now.bytes == item.bytes and _has_content(inventory.checksums, item)):
            raise BrimfulError(f"{item.path} changed since it was prepared; prepare into a new folder")
    inventory.added = list(present.values())
    return inventory


def require_corpus_place(directory: Path) -> None:
    """Refuse a folder that holds anything but the work of `prepare`.

    Raises:
        BrimfulError: the folder holds something else, or the path cannot be a folder.
    """
    require_folder_place(directory, replaces=("a folder that prepare wrote", _is_corpus))


def _is_corpus(directory: Path) -> bool:
    """Whether a preparation began here: it holds plan.json, or only those folders that are made first."""
    names = {path.name for path in directory.iterdir() if not path.name.startswith(TEMPORARY)}
    return PLAN in names or names <= {*FOLDERS, LOCK}


def _has_content(checksums: dict[str, list[list[Any]]], item: Input) -> bool:
    """Whether a file with a new modification time still has its old content."""
    for begin, end, checksum in checksums.get(item.path, []):
        if span_crc32(Span(path=item.path, begin=begin, end=end)) != checksum:
            return False
    return item.path in checksums


def span_crc32(span: Span) -> int | None:
    """Return the CRC-32 of the bytes of a span.

    The first span of a compressed file or a table has the CRC of the whole file; its other spans have None.
    So has a span of a file that cannot be read.
    """
    begin, end = span.begin, span.end
    if is_packed(span.path):
        if begin:
            return None
        end = None
    try:
        return crc32(span.path, begin, end)
    except OSError:
        return None


@dataclass(frozen=True)
class DocumentRange:
    """Documents `begin` to `end` of the text part named `part`."""

    part: str
    begin: int
    end: int


@dataclass(frozen=True)
class ShardDocuments:
    """The documents of one shard: all in `ranges` that are not duplicates and belong to `split`."""

    name: str
    split: Split
    ranges: tuple[DocumentRange, ...]


def cut_shards(
    names: Sequence[str],
    tokens: Sequence[np.ndarray],
    split: Split,
    first: int,
    tokens_a_shard: float | None = None,
) -> list[ShardDocuments]:
    """Divide the documents of a generation among shards with about the same number of tokens.

    Args:
        names: the generation's text parts.
        tokens: for each part the expected tokens of its documents, 0 for a document that is not in this
            split, integer (documents,).
        first: the number of the first shard.
        tokens_a_shard: the expected tokens of a shard; by default a 32nd of those in the generation.
    """
    ends = np.cumsum(np.concatenate([np.empty(0, np.int64), *tokens]), dtype=np.int64)
    total = int(ends[-1]) if len(ends) else 0
    if total == 0:
        return []  # no document belongs to this split
    if tokens_a_shard is None:
        tokens_a_shard = min(max(total / TASKS, SMALLEST_SHARD), LARGEST_SHARD)
    count = max(1, round(total / tokens_a_shard))
    # Documents are numbered through all parts here: each shard and each part is a range of numbers.
    cuts = np.searchsorted(ends, np.arange(1, count) * (total / count))
    bounds = [0, *(cuts + 1).tolist(), len(ends)]
    offsets = np.cumsum([0, *map(len, tokens)]).tolist()
    shards: list[ShardDocuments] = []
    for low, high in pairwise(bounds):
        ranges = []
        for name, (begin, end) in zip(names, pairwise(offsets), strict=True):
            range_begin, range_end = max(low, begin), min(high, end)
            if range_begin < range_end:
                ranges.append(DocumentRange(name, range_begin - begin, range_end - begin))
        if ranges:
            shards.append(ShardDocuments(f"{split}-{first + len(shards):05d}", split, tuple(ranges)))
    return shards
