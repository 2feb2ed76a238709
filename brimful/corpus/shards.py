"""The on-disk token format: flat little-endian files, opened in O(1). Specified in docs/formats.md.

A corpus directory holds `shards/NAME.{tok,word.bits,sent.bits,idx,src,json}`, tokenizer.json and
MANIFEST.json, which lists the shards; other shards are ignored. Special tokens are not stored.
"""

import functools
import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Literal, NamedTuple, NotRequired, TypedDict

import numpy as np
from numpy import ndarray

from brimful.base.errors import BrimfulError
from brimful.base.resources import allow_open_files, count_open_files
from brimful.base.seals import MANIFEST
from brimful.base.storage import atomic_files, commit, is_empty, read_commit, read_record, require_shape
from brimful.base.types import Values

FORMAT_VERSION = 2
PARTS = ("tok", "word.bits", "sent.bits", "idx", "src")
_PREPARE_AGAIN = "run prepare again to make it again"
_TOTALS = ("documents", "tokens", "words", "sentences")
# Files that a process may open in addition to its shards.
_OTHER_FILES = 256


class ShardRecord(TypedDict):
    """The entries that every commit record of a shard has."""

    split: Literal["train", "validation"]
    documents: int
    tokens: int
    words: int
    sentences: int
    token_dtype: Literal["uint16", "uint32"]
    vocabulary_size: int
    tokenizer_hash: str
    config_hash: str
    length_histogram: dict[str, str]
    inputs: list[str]
    begins: list[int]
    lacking: NotRequired[dict[str, int]]


class _Entry(TypedDict):
    name: str
    crc32: int


class ManifestRecord(TypedDict):
    """The entries that every MANIFEST.json has."""

    shards: list[_Entry]


@dataclass(frozen=True)
class TokenBatch:
    """The tokens of some documents, one document after the other.

    Attributes:
        tokens: ids, integer (T,).
        word_starts, sentence_starts: bool (T,).
        lengths: tokens of each document, at least 1, integer (D,).
        sources: input number and record number of each document, integer (D, 2).
    """

    tokens: ndarray
    word_starts: ndarray
    sentence_starts: ndarray
    lengths: ndarray
    sources: ndarray


def token_dtype(vocabulary_size: int) -> np.dtype:
    """Return the dtype of `.tok`: uint16, or uint32 if ids need it."""
    return np.dtype("<u2" if vocabulary_size <= 1 << 16 else "<u4")


class _BitFile:
    """Appends booleans to a file, eight a byte, the first in the lowest bit."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._waiting = np.empty(0, bool)

    def append(self, bits: ndarray) -> None:
        # The bits of an unfinished byte wait for the next ones.
        bits = np.concatenate([self._waiting, bits])
        whole = len(bits) // 8 * 8
        self._file.write(np.packbits(bits[:whole], bitorder="little").tobytes())
        self._waiting = bits[whole:]

    def finish(self) -> None:
        self._file.write(np.packbits(self._waiting, bitorder="little").tobytes())


def write_shard(
    directory: Path,
    name: str,
    batches: Iterable[TokenBatch],
    *,
    vocabulary_size: int,
    tokenizer_hash: str,
    config_hash: str,
    inputs: list[str],
    begins: list[int] | None = None,
    split: str = "train",
    **facts: Any,
) -> Values:
    """Write a shard batch by batch, then its commit record; return the record.

    Args:
        batches: the documents in order; read once, so memory holds one batch.
        inputs: names of the input files, which `TokenBatch.sources` numbers.
        begins: where in each of them the span begins whose records are counted; 0 by default.
        split: the split of the documents, `train` or `validation`.
        facts: further entries of the record, such as counters.

    Raises:
        BrimfulError: the directory cannot be written.
    """
    dtype = token_dtype(vocabulary_size)
    histogram: Counter[int] = Counter()
    totals = dict.fromkeys(_TOTALS, 0)
    paths = [directory / f"{name}.{part}" for part in PARTS]
    record = directory / f"{name}.json"
    with ExitStack() as stack:
        files = {}
        for part, temporary in zip(PARTS, stack.enter_context(atomic_files(record, paths)), strict=True):
            files[part] = stack.enter_context(open(temporary, "wb"))
        word_bits, sentence_bits = _BitFile(files["word.bits"]), _BitFile(files["sent.bits"])
        files["idx"].write(bytes(8))  # the first document begins at 0
        for batch in batches:
            files["tok"].write(batch.tokens.astype(dtype).tobytes())
            word_bits.append(batch.word_starts)
            sentence_bits.append(batch.sentence_starts)
            ends = totals["tokens"] + np.cumsum(batch.lengths, dtype=np.int64)
            files["idx"].write(ends.astype("<u8").tobytes())
            files["src"].write(batch.sources.astype("<u8").tobytes())
            totals["documents"] += len(batch.lengths)
            totals["tokens"] += len(batch.tokens)
            totals["words"] += int(batch.word_starts.sum())
            totals["sentences"] += int(batch.sentence_starts.sum())
            histogram.update(batch.lengths.tolist())
        word_bits.finish()
        sentence_bits.finish()
    return commit(
        record,
        paths,
        format_version=FORMAT_VERSION,
        split=split,
        **totals,
        token_dtype=dtype.name,
        vocabulary_size=vocabulary_size,
        tokenizer_hash=tokenizer_hash,
        config_hash=config_hash,
        length_histogram=pack_histogram(histogram),
        inputs=inputs,
        begins=begins or [0] * len(inputs),
        **facts,
    )


def pack_histogram(histogram: Counter[int]) -> dict[str, str]:
    """Return document lengths in tokens, ascending, and the documents of each length, as texts of numbers."""
    lengths = sorted(histogram)
    counts = map(histogram.__getitem__, lengths)
    return {"lengths": " ".join(map(str, lengths)), "counts": " ".join(map(str, counts))}


def write_manifest(directory: Path, shards: Sequence[str], **facts: Any) -> Values:
    """Make a corpus of committed shards and tokenizer.json; return its commit record, MANIFEST.json."""
    totals = dict.fromkeys(_TOTALS, 0)
    entries = []
    for name in shards:
        record = read_record(directory / "shards" / f"{name}.json")
        for key in _TOTALS:
            totals[key] += record[key]
        entries.append({"name": name} | {key: record[key] for key in ("split", *_TOTALS, "crc32")})
    return commit(
        directory / MANIFEST,
        [directory / "tokenizer.json"],
        format_version=FORMAT_VERSION,
        totals=totals,
        shards=entries,
        **facts,
    )


def map_file(path: Path, dtype: np.typing.DTypeLike) -> ndarray:
    """Map a file into memory, read-only."""
    if not path.stat().st_size:  # which numpy can't map
        return np.empty(0, dtype)
    return np.asarray(np.memmap(path, dtype, "r"))


def _allow_open_files(path: Path, shards: int) -> None:
    """Let this process open every file of `shards` more shards, since a memory map keeps its file open."""
    needed = count_open_files() + shards * len(PARTS) + _OTHER_FILES
    most = allow_open_files(needed)
    if most is not None:
        raise BrimfulError(
            f"{path} has {shards:,} shards, which takes {needed:,} open files, and this system allows"
            f" {most:,}: raise the limit (ulimit -Hn), or prepare fewer and larger shards"
        )


def read_bits(bits: ndarray, begin: int, end: int) -> ndarray:
    """Return bits `begin` to `end` of an array of bytes, the lowest bit first; bool (end - begin,)."""
    first = begin // 8
    unpacked = np.unpackbits(bits[first : (end + 7) // 8], bitorder="little")
    return unpacked[begin - 8 * first : end - 8 * first].view(bool)


def _read(path: Path, shape: Any, *, verify: bool) -> Values:
    """Read a commit record of this shape, and compare the sizes of its files with it; with `verify`, every
    byte."""
    record = read_commit(path, verify=verify, remedy=_PREPARE_AGAIN)
    version = record.get("format_version")
    if version != FORMAT_VERSION:
        raise BrimfulError(
            f"{path} has format {version}, this Brimful reads {FORMAT_VERSION}; update Brimful or prepare the"
            " corpus again"
        )
    require_shape(record, shape, path, f"remove it and {_PREPARE_AGAIN}")
    return record


class Origin(NamedTuple):
    """The place of a document in the input: a record of a file, counted from a span's beginning."""

    path: str
    begin: int
    record: int


class Shard:
    """A committed shard, memory-mapped.

    Attributes:
        name, record: the name and the commit record of the shard.
        split: `train` or `validation`.
        documents: number of documents.
        tokens: ids, uint16 or uint32 (T,).
        offsets: where each document begins, and T at the end, uint64 (documents + 1,).
        word_bits, sentence_bits: one bit a token, eight a byte, the first in the lowest bit, uint8.
    """

    def __init__(self, directory: Path, name: str, *, verify: bool = False) -> None:
        self.name = name
        self._path = directory / name
        self.record = self.check(read=verify)
        self.split: str = self.record["split"]
        self.documents: int = self.record["documents"]
        self.tokens = map_file(
            directory / f"{name}.tok", np.dtype(self.record["token_dtype"]).newbyteorder("<")
        )
        self.offsets = map_file(directory / f"{name}.idx", "<u8")
        self.word_bits = map_file(directory / f"{name}.word.bits", np.uint8)
        self.sentence_bits = map_file(directory / f"{name}.sent.bits", np.uint8)
        self._sources = map_file(directory / f"{name}.src", "<u8").reshape(-1, 2)
        parts = (self.tokens, self.offsets, self.word_bits, self.sentence_bits, self._sources)
        n, documents = self.record["tokens"], self.documents
        bit_bytes = -(-n // 8)
        sizes = [n, documents + 1, bit_bytes, bit_bytes, documents]
        if list(map(len, parts)) != sizes or self.offsets[0] != 0 or self.offsets[-1] != n:
            raise self.damaged("its files do not belong together")

    def check(self, *, read: bool = True) -> Values:
        """Compare every byte with the commit record, and return it; without `read`, compare only the sizes.

        Raises:
            BrimfulError: the shard is damaged, or of another format.
        """
        return _read(self._path.with_name(f"{self.name}.json"), ShardRecord, verify=read)

    def damaged(self, how: str) -> BrimfulError:
        """Return the error of inconsistent files."""
        return BrimfulError(
            f"the shard {self._path} is damaged: {how}; remove {self._path}.json and {_PREPARE_AGAIN}"
        )

    def ends(self, documents: ndarray) -> tuple[ndarray, ndarray]:
        """Return where these documents (integer (n,)) begin and end in `tokens`, int64 (n,) each.

        Raises:
            BrimfulError: the offsets are damaged.
        """
        offsets = self.offsets.view(np.int64)  # a damaged offset of 2^63 or more becomes negative
        begin, end = offsets[documents], offsets[documents + 1]
        if ((begin < 0) | (begin >= end) | (end > len(self.tokens))).any():
            raise self.damaged("its offsets do not ascend")
        return begin, end

    def word_starts(self, begin: int, end: int) -> ndarray:
        """Return which of the tokens begin..end start a word, bool (end - begin,)."""
        return read_bits(self.word_bits, begin, end)

    def origin(self, document: int) -> Origin:
        """Return where a document was read (see docs/formats.md).

        Raises:
            BrimfulError: the sources are damaged.
        """
        number, record = self._sources[document].tolist()
        if number >= min(len(self.record["inputs"]), len(self.record["begins"])):
            raise self.damaged("the source of a document is not one of its inputs")
        return Origin(self.record["inputs"][number], self.record["begins"][number], record)


def how_to_prepare(directory: Path) -> str:
    """Return the command that prepares the text in a folder, or text elsewhere into a free folder."""
    if directory.is_dir() and not is_empty(directory):
        return f"brimful prepare {directory} --out {directory}-prepared"
    return f"brimful prepare TEXT --out {directory}"


def require_prepared(directory: Path) -> None:
    """Refuse a folder that `prepare` has not finished.

    Raises:
        BrimfulError: the folder is not a prepared corpus.
    """
    remedy = f"make one with: {how_to_prepare(directory)}"
    if not directory.is_dir():
        if directory.exists():
            remedy = "name the folder that prepare wrote"
        raise BrimfulError(f"no prepared corpus: {directory} is not a folder; {remedy}")
    if not (directory / MANIFEST).is_file():
        raise BrimfulError(f"{directory} holds no finished corpus (no {MANIFEST}); {remedy}")


class Corpus:
    """A prepared folder: its shards in order, and the tokenizer that made them.

    Attributes:
        directory, shards, tokenizer_path, tokenizer_hash, vocabulary_size: as `prepare` wrote them.
        documents, tokens: numbers of documents and of tokens in all shards.
        tokens_per_word: mean number of tokens in a word.
    """

    def __init__(self, directory: Path, shards: list[Shard]) -> None:
        self.directory = directory
        self.shards = shards
        self.documents = sum(shard.documents for shard in shards)
        self.tokens = sum(len(shard.tokens) for shard in shards)
        self.tokens_per_word = self.tokens / max(1, sum(shard.record["words"] for shard in shards))
        self.tokenizer_path = directory / "tokenizer.json"
        self.vocabulary_size: int = shards[0].record["vocabulary_size"]
        self.tokenizer_hash: str = shards[0].record["tokenizer_hash"]

    @classmethod
    def open(cls, directory: Path | str, *, verify: bool = False) -> "Corpus":
        """Open the folder that `prepare` wrote (with `verify`, reading every byte to check its CRC).

        Raises:
            BrimfulError: it is not a prepared folder or holds no documents; a shard is damaged or has another
                format; shards have different tokenizers, or there are too many to open at once.
        """
        directory = Path(directory)
        require_prepared(directory)
        manifest = _read(directory / MANIFEST, ManifestRecord, verify=True)
        _allow_open_files(directory, len(manifest["shards"]))
        shards = [Shard(directory / "shards", entry["name"], verify=verify) for entry in manifest["shards"]]
        if not shards:
            raise BrimfulError(f"{directory} holds no documents; prepare more text")
        for shard, entry in zip(shards, manifest["shards"], strict=True):
            flaw = ""
            if shard.record["crc32"] != entry["crc32"]:
                flaw = f"the shard {shard.name} is not the one that {MANIFEST} names"
            elif shard.record["tokenizer_hash"] != shards[0].record["tokenizer_hash"]:
                flaw = f"shards {shards[0].name} and {shard.name} were made with different tokenizers"
            if flaw:
                raise BrimfulError(f"{directory}: {flaw}; run prepare again to finish it")
        corpus = cls(directory, shards)
        if not corpus.documents:
            raise BrimfulError(f"the shards of {directory} hold no documents; prepare more text")
        return corpus

    def part(self, split: str) -> "Corpus | None":
        """Return the documents of one split, `train` or `validation`; None if it has no documents."""
        shards = [shard for shard in self.shards if shard.split == split]
        has_documents = any(shard.documents for shard in shards)
        return Corpus(self.directory, shards) if has_documents else None

    @functools.cached_property
    def fingerprint(self) -> str:
        """A short hash of the shards' records, which changes if and only if the data does."""
        records = [(shard.name, shard.record) for shard in self.shards]
        return hashlib.sha256(json.dumps(records, sort_keys=True).encode()).hexdigest()[:16]
