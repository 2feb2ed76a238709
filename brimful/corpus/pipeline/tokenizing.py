"""The last stage, a pure task for each shard: clean documents -> tokens, word bits and sentence bits."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from brimful.base.config import config_hash
from brimful.base.errors import BrimfulError
from brimful.base.randomness import derive_key, draw_uniform
from brimful.corpus.pipeline.config import PrepareConfig
from brimful.corpus.pipeline.duplicate_decisions import read_decisions, read_dropped
from brimful.corpus.pipeline.inventory import DocumentRange, ShardDocuments, Split
from brimful.corpus.pipeline.text_parts import TextPart, find_made
from brimful.corpus.shards import ShardRecord, TokenBatch, write_shard
from brimful.corpus.text.batches import batch_by_characters
from brimful.corpus.text.tokenizer import load, tokenizer_hash
from brimful.corpus.words.word_lists import read_word_list

if TYPE_CHECKING:
    from brimful.corpus.tokenize.encode import TextTokenizer

# Raise this with every change of tokens or bits: shards of an earlier version are then made again.
RULES = 1
BATCH_CHARACTERS = 1 << 19
EXAMPLES = 3
EXCERPT = 200
_RECURRING = "recurring lines dropped"


class TokenizedRecord(ShardRecord):
    """What else the commit record of a prepared shard holds."""

    counts: dict[str, int]
    scripts: dict[str, dict[str, int]]
    examples: dict[str, list[str]]


@dataclass(frozen=True, kw_only=True)
class TokenizeTask:
    """One shard to make.

    Attributes:
        documents: the documents that the shard is made of.
        inputs: for each of their text parts, (file, begin) of each span.
        lexicon_hash: of the words of the lexicon; empty without one.
        segmenter: the package that cuts Chinese words, with its version.
        depends: a hash of the texts and of the decisions on duplicates.
    """

    config: PrepareConfig
    documents: ShardDocuments
    inputs: tuple[tuple[tuple[str, int], ...], ...]
    tokenizer_hash: str
    lexicon_hash: str
    segmenter: str
    depends: str

    @cached_property
    def hash(self) -> str:
        """A hash of everything that decides the shard, apart from the tokenizer."""
        documents = self.documents
        ranges = [asdict(documents) for documents in documents.ranges]
        return config_hash(
            [
                RULES,
                {"name": documents.name, "split": documents.split, "pieces": ranges},
                self.config.validation_share,
                self.config.language,
                self.lexicon_hash,
                self.segmenter,
                self.depends,
            ]
        )

    def made(self, *, verify: bool = False) -> dict[str, Any] | None:
        """The commit record; None if the shard has not been made or, with `verify`, is damaged."""
        record = Path(self.config.out, "shards", f"{self.documents.name}.json")
        hashes = {"config_hash": self.hash, "tokenizer_hash": self.tokenizer_hash}
        return find_made(record, TokenizedRecord, verify, **hashes)


def in_split(documents: np.ndarray, split: Split, validation_share: float) -> np.ndarray:
    """Which documents (DOCUMENT) belong to this split, by a hash of their text; bool (documents,)."""
    held_out = draw_uniform(derive_key("validation"), documents["origin"]) < validation_share
    return held_out if split == "validation" else ~held_out


@lru_cache(maxsize=1)
def _encoder(
    directory: Path, expected_hash: str, language: Any, lexicon: str | None, lexicon_hash: str
) -> "TextTokenizer":
    from brimful.corpus.tokenize.encode import TextTokenizer
    from brimful.corpus.words.segmenter import Segmenter

    tokenizer = load(directory / "tokenizer.json")
    if tokenizer_hash(tokenizer) != expected_hash:
        raise BrimfulError(f"{directory / 'tokenizer.json'} changed while it was in use; run prepare again")
    words = read_word_list(lexicon, "lexicon").words if lexicon else None
    if words is not None and config_hash(words) != lexicon_hash:
        raise BrimfulError(f"{lexicon} changed while it was in use; run prepare again")
    return TextTokenizer(tokenizer, Segmenter(language, words))


@dataclass
class _Seen:
    """Counters and examples of a shard, while it is being made."""

    counts: Counter[str] = field(default_factory=Counter)
    scripts: dict[str, Counter[str]] = field(default_factory=dict)
    lacking: Counter[str] = field(default_factory=Counter)
    examples: dict[str, list[str]] = field(default_factory=dict)


def tokenize_shard(task: TokenizeTask) -> dict[str, Any]:
    """Make a shard; returns its commit record."""
    config, directory = task.config, Path(task.config.out)
    encoder = _encoder(directory, task.tokenizer_hash, config.language, config.lexicon, task.lexicon_hash)
    seen = _Seen()

    def batches() -> Iterator[TokenBatch]:
        for rows in batch_by_characters(_rows(task, seen), BATCH_CHARACTERS, lambda row: len(row[0])):
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
        directory / "shards",
        task.documents.name,
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


def _rows(task: TokenizeTask, seen: _Seen) -> Iterator[tuple[str, int, int]]:
    """(text, input of the shard, record) of the documents of the shard."""
    first_input = 0
    for documents, inputs in zip(task.documents.ranges, task.inputs, strict=True):
        for text, number, record in _range_rows(task, documents, seen):
            yield text, first_input + number, record
        first_input += len(inputs)


def _range_rows(task: TokenizeTask, taken: DocumentRange, seen: _Seen) -> Iterator[tuple[str, int, int]]:
    directory = Path(task.config.out)
    part = TextPart(directory, taken.part)
    documents = part.documents[taken.begin : taken.end]
    chosen = in_split(documents, task.documents.split, task.config.validation_share)
    chosen &= read_decisions(directory, taken.part)[taken.begin : taken.end] == 0
    first = int(part.documents["lines"][: taken.begin].sum(dtype=np.int64))
    ends = np.cumsum(documents["lines"], dtype=np.int64)
    begins = ends - documents["lines"]
    dropped = read_dropped(directory, taken.part, first, first + int(ends[-1]))
    some_dropped = bool(dropped.any())
    for document, text, number, record in part.rows(taken.begin, chosen):
        if some_dropped:
            at = document - taken.begin
            text = _without_lines(text, dropped[begins[at] : ends[at]], seen)
        if text:
            yield text, number, record


def _without_lines(text: str, dropped: np.ndarray, seen: _Seen) -> str:
    """A text without the lines that recur in the corpus, which are counted."""
    flags = dropped.tolist()
    if True not in flags:
        return text
    lines = text.split("\n")
    seen.counts[_RECURRING] += sum(flags)
    examples = seen.examples.setdefault(_RECURRING, [])
    if len(examples) < EXAMPLES:
        examples.append(lines[flags.index(True)][:EXCERPT])
    kept = "\n".join(line for line, flag in zip(lines, flags, strict=True) if not flag).strip()
    if not kept:
        seen.counts["dropped: only recurring lines"] += 1
    return kept
