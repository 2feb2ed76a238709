"""Make tokens, word bits and sentence bits of clean documents: the last stage, a pure task for each shard."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy import ndarray

from brimful.base.config import config_hash
from brimful.base.errors import BrimfulError
from brimful.base.randomness import derive_key, draw_uniform
from brimful.base.types import Values
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

RULES = 1
"""Raise this with every change of tokens or bits: shards of an earlier version are then made again."""
BATCH_CHARACTERS = 1 << 19
MAX_EXAMPLES = 3
EXCERPT_CHARACTERS = 200
_RECURRING = "recurring lines dropped"


class TokenizedRecord(ShardRecord):
    """The commit record of a prepared shard, with the facts that only such shards have."""

    counts: dict[str, int]
    scripts: dict[str, dict[str, int]]
    examples: dict[str, list[str]]


@dataclass(frozen=True, kw_only=True)
class TokenizeTask:
    """One shard to make.

    Attributes:
        documents: the documents of the shard.
        inputs: (file, begin) of each span, for each text part of these documents.
        lexicon_hash: a hash of the words of the lexicon; empty without one.
        segmenter: the package that cuts Chinese words, with its version.
        depends: a hash of the texts and of the decisions on duplicates.
    """

    config: PrepareConfig
    documents: ShardDocuments
    inputs: list[list[tuple[str, int]]]
    tokenizer_hash: str
    lexicon_hash: str
    segmenter: str
    depends: str

    @cached_property
    def hash(self) -> str:
        """A hash of everything that decides the shard, apart from the tokenizer."""
        ranges = list(map(asdict, self.documents.ranges))
        return config_hash(
            [
                RULES,
                {"name": self.documents.name, "split": self.documents.split, "pieces": ranges},
                self.config.validation_share,
                self.config.language,
                self.lexicon_hash,
                self.segmenter,
                self.depends,
            ]
        )

    def made(self, *, verify: bool = False) -> Values | None:
        """Return the commit record; None if the shard has not been made or, with `verify`, is damaged."""
        record = Path(self.config.out, "shards", f"{self.documents.name}.json")
        hashes = {"config_hash": self.hash, "tokenizer_hash": self.tokenizer_hash}
        return find_made(record, TokenizedRecord, verify, **hashes)


def in_split(documents: ndarray, split: Split, validation_share: float) -> ndarray:
    """Return which documents (DOCUMENT) belong to this split, by a hash of their text; bool (documents,)."""
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
    words = None
    if lexicon:
        words = read_word_list(lexicon, "lexicon").words
        if config_hash(words) != lexicon_hash:
            raise BrimfulError(f"{lexicon} changed while it was in use; run prepare again")
    return TextTokenizer(tokenizer, Segmenter(language, words))


@dataclass
class _Counters:
    """Counters and examples of a shard while it is being made."""

    counts: Counter[str] = field(default_factory=Counter)
    scripts: dict[str, Counter[str]] = field(default_factory=dict)
    lacking: Counter[str] = field(default_factory=Counter)
    examples: dict[str, list[str]] = field(default_factory=dict)


def tokenize_shard(task: TokenizeTask) -> Values:
    """Make a shard; return its commit record."""
    config, directory = task.config, Path(task.config.out)
    encoder = _encoder(directory, task.tokenizer_hash, config.language, config.lexicon, task.lexicon_hash)
    counters = _Counters()

    def encode_batches() -> Iterator[TokenBatch]:
        rows = _read_rows(task, counters)
        for batch in batch_by_characters(rows, BATCH_CHARACTERS, lambda row: len(row[0])):
            texts, inputs, records = zip(*batch, strict=True)
            encoded = encoder(texts)
            tokens = encoded.batch
            has_tokens = tokens.lengths > 0
            counters.counts["dropped: no tokens"] += int((~has_tokens).sum())
            counters.counts["characters"] += sum(map(len, texts))
            for script, counts in encoded.scripts.items():
                counters.scripts.setdefault(script, Counter()).update(counts)
            counters.lacking.update(encoded.lacking)
            # A document without tokens is left out of the shard.
            sources = np.array([inputs, records], np.int64).T  # (texts, 2)
            yield replace(tokens, lengths=tokens.lengths[has_tokens], sources=sources[has_tokens])

    return write_shard(
        directory / "shards",
        task.documents.name,
        encode_batches(),
        split=task.documents.split,
        vocabulary_size=encoder.vocabulary_size,
        tokenizer_hash=task.tokenizer_hash,
        config_hash=task.hash,
        inputs=[path for spans in task.inputs for path, _ in spans],
        begins=[begin for spans in task.inputs for _, begin in spans],
        **vars(counters),
    )


def _read_rows(task: TokenizeTask, counters: _Counters) -> Iterator[tuple[str, int, int]]:
    """Yield (text, input of the shard, record) of the documents of the shard."""
    first_input = 0
    for documents, inputs in zip(task.documents.ranges, task.inputs, strict=True):
        for text, number, record in _read_range(task, documents, counters):
            yield text, first_input + number, record
        first_input += len(inputs)


def _read_range(
    task: TokenizeTask, range_: DocumentRange, counters: _Counters
) -> Iterator[tuple[str, int, int]]:
    """Yield (text, input of the part, record) of the documents of a range that belong to the shard."""
    directory = Path(task.config.out)
    part = TextPart(directory, range_.part)
    documents = part.documents[range_.begin : range_.end]
    chosen = in_split(documents, task.documents.split, task.config.validation_share)
    chosen &= read_decisions(directory, range_.part)[range_.begin : range_.end] == 0
    # `first` is the first line of the range in the part; `begins` and `ends` count from there.
    first = int(part.documents["lines"][: range_.begin].sum(dtype=np.int64))
    ends = np.cumsum(documents["lines"], dtype=np.int64)
    begins = ends - documents["lines"]
    dropped = read_dropped(directory, range_.part, first, first + int(ends[-1]))
    has_dropped = bool(dropped.any())
    for document, text, number, record in part.rows(range_.begin, chosen):
        if has_dropped:
            place = document - range_.begin
            text = _drop_lines(text, dropped[begins[place] : ends[place]], counters)
        if text:
            yield text, number, record


def _drop_lines(text: str, dropped: ndarray, counters: _Counters) -> str:
    """Return a text without its lines that recur in the corpus, and count the dropped lines."""
    flags = dropped.tolist()
    if True not in flags:
        return text
    lines = text.split("\n")
    counters.counts[_RECURRING] += sum(flags)
    examples = counters.examples.setdefault(_RECURRING, [])
    if len(examples) < MAX_EXAMPLES:
        examples.append(lines[flags.index(True)][:EXCERPT_CHARACTERS])
    remaining = "\n".join(line for line, flag in zip(lines, flags, strict=True) if not flag).strip()
    if not remaining:
        counters.counts["dropped: only recurring lines"] += 1
    return remaining
