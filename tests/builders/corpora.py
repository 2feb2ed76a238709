"""Corpora of made-up tokens, written as shards."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from hypothesis import strategies as st

from brimful.corpus.shards import Corpus, TokenBatch, write_manifest, write_shard

# A document is a string of its tokens: S starts a sentence (and a word), w starts a word, . goes on.
Document = str
documents = st.lists(st.text("Sw.", min_size=1, max_size=60).map(lambda text: "S" + text[1:]), max_size=6)
corpora = st.lists(documents, min_size=1, max_size=3).filter(any)
kinds = st.sampled_from(["sentences", "chunks"])


def write_corpus(directory: Path, shards: list[list[Document]]) -> Corpus:
    (directory / "tokenizer.json").write_text("{}")
    batches = []
    for documents in shards:
        marks = np.array(list("".join(documents)), dtype="U1")
        lengths = np.array([len(document) for document in documents], dtype=np.int64)
        batches.append(batch_of(np.arange(len(marks)) % 40_000, marks != ".", marks == "S", lengths))
    return write_batches(directory, batches, 50_000)


def batch_of(
    tokens: np.ndarray, word_starts: np.ndarray, sentence_starts: np.ndarray, lengths: np.ndarray
) -> TokenBatch:
    sources = np.zeros((len(lengths), 2), dtype=np.int64)
    return TokenBatch(tokens, word_starts, sentence_starts, lengths, sources)


def write_batches(directory: Path, batches: Sequence[TokenBatch], vocabulary_size: int) -> Corpus:
    """A corpus of a shard for each batch, beside its tokenizer.json."""
    names = [f"part-{number:05d}" for number in range(len(batches))]
    facts = {"tokenizer_hash": "t", "config_hash": "c", "inputs": ["a.txt"]}
    for name, batch in zip(names, batches, strict=True):
        write_shard(directory / "shards", name, [batch], vocabulary_size=vocabulary_size, **facts)
    write_manifest(directory, names)
    return Corpus.open(directory)
