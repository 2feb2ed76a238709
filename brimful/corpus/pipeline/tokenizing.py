"""The last stage, a pure task for each shard: clean documents -> tokens, word bits and sentence bits."""

import functools
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from brimful.base.config import config_hash
from brimful.base.errors import BrimfulError
from brimful.base.randomness import derive_key, uniform
from brimful.corpus.pipeline.duplicate_decisions import read_decisions, read_dropped
from brimful.corpus.pipeline.inventory import DocumentRange, ShardDocuments, Split
from brimful.corpus.pipeline.text import TextPart, find_made
from brimful.corpus.shards import ShardRecord, TokenBatch, write_shard
from brimful.corpus.text.tokenizer import load, tokenizer_hash
from brimful.corpus.tokenize.encode import TextTokenizer
from brimful.corpus.words.segmenter import Language, Segmenter, read_lexicon

# Raise this with every change of tokens or bits: shards of an earlier version are then made again.
RULES = 1
BATCH_CHARACTERS = 1 << 19
EXAMPLES = 3
EXCERPT = 200


@dataclass(frozen=True, kw_only=True)
class TokenizeTask:
    """One shard to make.

    Attributes:
        documents: the documents that the shard is made of.
        inputs: for each of their text parts, (file, begin) of each span.
        validation_share: the fraction of documents in the validation split.
        depends: a hash of the texts and of the decisions on duplicates.
    """

    directory: Path
    documents: ShardDocuments
    inputs: tuple[tuple[tuple[str, int], ...], ...]
    validation_share: float
    tokenizer_hash: str
    language: Language
    lexicon: str | None
    lexicon_hash: str
    segmenter: str
    depends: str

    @property
    def name(self) -> str:
        """The name of the shard."""
        return self.documents.name

    @property
    def hash(self) -> str:
        """A hash of everything that decides the shard, apart from the tokenizer."""
        ranges = [asdict(documents) for documents in self.documents.ranges]
        return config_hash(
            [
                RULES,
                {"name": self.name, "split": self.documents.split, "pieces": ranges},
                self.validation_share,
                self.language,
                self.lexicon_hash,
                self.segmenter,
                self.depends,
            ]
        )


def tokenized(task: TokenizeTask, *, verify: bool = False) -> dict[str, Any] | None:
    """The commit record of the shard; None if it has not been made or, with `verify`, is damaged."""
    record = task.directory / "shards" / f"{task.name}.json"
    wanted = {"config_hash": task.hash, "tokenizer_hash": task.tokenizer_hash}
    return find_made(record, TokenizedRecord, verify, **wanted)


class TokenizedRecord(ShardRecord):
    """What else the commit record of a prepared shard holds."""

    counts: dict[str, int]
    scripts: dict[str, dict[str, int]]
    examples: dict[str, list[str]]


def in_split(documents: np.ndarray, split: Split, validation_share: float) -> np.ndarray:
    """Which documents (DOCUMENT) belong to this split, by a hash of their text; bool (documents,)."""
    held_out = uniform(derive_key("validation"), documents["origin"]) < validation_share
    return held_out if split == "validation" else ~held_out


@functools.lru_cache(maxsize=1)
def _encoder(
    directory: Path, expected_hash: str, language: Language, lexicon: str | None, lexicon_hash: str
) -> TextTokenizer:
    tokenizer = load(directory / "tokenizer.json")
    if tokenizer_hash(tokenizer) != expected_hash:
        raise BrimfulError(f"{directory / 'tokenizer.json'} changed while it was in use; run prepare again")
    words = read_lexicon(lexicon) if lexicon else None
    if words is not None and config_hash(words) != lexicon_hash:
        raise BrimfulError(f"{lexicon} changed while it was in use; run prepare again")
    return TextTokenizer(tokenizer, Segmenter(language, words))


class _Counts:
    """Counters and examples of a shard, while it is being made."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.scripts: dict[str, Counter[str]] = {}
        self.lacking: Counter[str] = Counter()
        self.examples: dict[str, list[str]] = {}


def tokenize_shard(task: TokenizeTask) -> dict[str, Any]:
    """Make a shard; returns its commit record."""
    encoder = _encoder(task.directory, task.tokenizer_hash, task.language, task.lexicon, task.lexicon_hash)
    seen = _Counts()

    def batches() -> Iterator[TokenBatch]:
        for rows in _by_characters(_rows(task, seen)):
            encoded = encoder([row[0] for row in rows])
            batch = encoded.batch
            filled = batch.lengths > 0
            seen.counts["dropped: no tokens"] += int((~filled).sum())
            seen.counts["characters"] += sum(len(row[0]) for row in rows)
            for script, counts in encoded.scripts.items():
                seen.scripts.setdefault(script, Counter()).update(counts)
            seen.lacking.update(encoded.lacking)
            sources = np.array([row[1:] for row in rows], np.int64)
            yield TokenBatch(
                batch.tokens, batch.word_starts, batch.sentence_starts, batch.lengths[filled], sources[filled]
            )

    return write_shard(
        task.directory / "shards",
        task.name,
        batches(),
        split=task.documents.split,
        vocabulary_size=encoder.vocabulary_size,
        tokenizer_hash=task.tokenizer_hash,
        config_hash=task.hash,
        inputs=[path for spans in task.inputs for path, _ in spans],
        begins=[begin for spans in task.inputs for _, begin in spans],
        counts=seen.counts,
        scripts=seen.scripts,
        lacking=seen.lacking,
        examples=seen.examples,
    )


def _rows(task: TokenizeTask, seen: _Counts) -> Iterator[tuple[str, int, int]]:
    """(text, input of the shard, record) of the documents of the shard."""
    first_input = 0
    for documents, inputs in zip(task.documents.ranges, task.inputs, strict=True):
        for text, number, record in _range_rows(task, documents, seen):
            yield text, first_input + number, record
        first_input += len(inputs)


def _range_rows(task: TokenizeTask, taken: DocumentRange, seen: _Counts) -> Iterator[tuple[str, int, int]]:
    part = TextPart(task.directory, taken.part)
    documents = part.documents[taken.begin : taken.end]
    chosen = in_split(documents, task.documents.split, task.validation_share)
    chosen &= read_decisions(task.directory, taken.part)[taken.begin : taken.end] == 0
    cut = _LineCutter(task.directory, taken, part.documents, seen)
    for document, text, number, record in part.rows(taken.begin, chosen):
        text = cut(document - taken.begin, text)
        if text:
            yield text, number, record


class _LineCutter:
    """Removes recurring lines from documents."""

    def __init__(self, directory: Path, taken: DocumentRange, documents: np.ndarray, seen: _Counts) -> None:
        counts = documents["lines"]
        first = int(counts[: taken.begin].sum(dtype=np.int64))
        self._ends = np.cumsum(counts[taken.begin : taken.end], dtype=np.int64)
        last = first + (int(self._ends[-1]) if len(self._ends) else 0)
        self._dropped = read_dropped(directory, taken.part, first, last)
        self._any = bool(self._dropped.any())
        self._seen = seen

    def __call__(self, document: int, text: str) -> str:
        if not self._any:
            return text
        begin = int(self._ends[document - 1]) if document else 0
        flags = self._dropped[begin : int(self._ends[document])].tolist()
        count = sum(flags)
        if count == 0:
            return text
        lines = text.split("\n")
        rule = "recurring lines dropped"
        self._seen.counts[rule] += count
        examples = self._seen.examples.setdefault(rule, [])
        if len(examples) < EXAMPLES:
            examples.append(lines[flags.index(True)][:EXCERPT])
        kept = "\n".join(line for line, flag in zip(lines, flags, strict=True) if not flag).strip()
        if not kept:
            self._seen.counts["dropped: only recurring lines"] += 1
        return kept


def _by_characters(rows: Iterable[tuple[str, int, int]]) -> Iterator[Sequence[tuple[str, int, int]]]:
    batch: list[tuple[str, int, int]] = []
    size = 0
    for row in rows:
        batch.append(row)
        size += len(row[0])
        if size >= BATCH_CHARACTERS:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch
