"""Corpora of made-up tokens, written as shards."""

from pathlib import Path

import numpy as np
from hypothesis import strategies as st

from brimful.corpus.shards import Corpus, TokenBatch, write_manifest, write_shard

# A document is a string of its tokens: S starts a sentence (and a word), w starts a word, . goes on.
Document = str


def write_corpus(directory: Path, shards: list[list[Document]]) -> Corpus:
    (directory / "tokenizer.json").write_text("{}")
    for number, documents in enumerate(shards):
        kinds = np.array(list("".join(documents)), dtype="U1")
        batch = TokenBatch(
            tokens=np.arange(len(kinds)) % 40_000,
            word_starts=kinds != ".",
            sentence_starts=kinds == "S",
            lengths=np.array([len(document) for document in documents], dtype=np.int64),
            sources=np.zeros((len(documents), 2), dtype=np.int64),
        )
        write_shard(
            directory / "shards",
            f"part-{number:05d}",
            [batch],
            vocabulary_size=50_000,
            tokenizer_hash="t",
            config_hash="c",
            inputs=["a.txt"],
        )
    write_manifest(directory, [f"part-{number:05d}" for number in range(len(shards))])
    return Corpus.open(directory)


documents = st.lists(st.text("Sw.", min_size=1, max_size=60).map(lambda text: "S" + text[1:]), max_size=6)


corpora = st.lists(documents, min_size=1, max_size=3).filter(any)


kinds = st.sampled_from(["sentences", "chunks"])
