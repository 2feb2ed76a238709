"""Documents -> sequences: every token once, never too long, cut where a reader would."""

import tempfile
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from brimful.corpus.shards import Corpus, TokenBatch, write_manifest, write_shard
from brimful.data.sequences import SPECIAL_TOKENS, Sequences, cut_documents

# A document is a string of its tokens: S starts a sentence (and a word), w starts a word, . goes on.
Document = str


def write_corpus(directory: Path, shards: list[list[Document]]) -> Corpus:
    (directory / "tokenizer.json").write_text("{}")
    for number, documents in enumerate(shards):
        kinds = np.array(list("".join(documents)), dtype="U1")
        batch = TokenBatch(
            tokens=np.arange(len(kinds)) + 1000 * number,
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


def expected_cuts(document: Document, room: int) -> list[int]:
    """Where sequences start: at the last sentence within reach, else the last word, else there."""
    starts = [0]
    while len(document) - starts[-1] > room:
        begin, limit = starts[-1], starts[-1] + room
        for kinds in ("S", "Sw", "Sw."):
            places = [i for i in range(begin + 1, limit + 1) if document[i] in kinds]
            if places:
                starts.append(places[-1])
                break
    return starts


documents = st.lists(st.text("Sw.", min_size=1, max_size=60).map(lambda text: "S" + text[1:]), max_size=6)
corpora = st.lists(documents, min_size=1, max_size=3).filter(any)


@settings(max_examples=30)
@given(corpora, st.integers(3, 24), st.data())
def test_sequences_of_a_corpus(shards: list[list[Document]], max_length: int, data: st.DataObject) -> None:
    total = sum(map(len, shards))
    chosen = sorted(data.draw(st.sets(st.integers(0, total - 1))))
    expected = []
    first = 0
    for number, held in enumerate(shards):
        begin = 0
        for index, document in enumerate(held):
            if first + index in chosen:
                cuts = [*expected_cuts(document, max_length - SPECIAL_TOKENS), len(document)]
                expected += [(number, begin + a, b - a) for a, b in pairwise(cuts)]
            begin += len(document)
        first += len(held)
    with tempfile.TemporaryDirectory() as name:
        corpus = write_corpus(Path(name), shards)
        sequences = cut_documents(corpus, np.array(chosen, dtype=np.int64), max_length)
    assert len(sequences) == len(expected)
    columns = (sequences.shard, sequences.begin, sequences.length - SPECIAL_TOKENS)
    assert list(zip(*(column.tolist() for column in columns), strict=True)) == expected
    assert (sequences.length <= max_length).all()
    assert (sequences.length > SPECIAL_TOKENS).all()


@pytest.mark.parametrize("max_length", [3, 16, 128, 100_000])
def test_every_token_of_a_real_corpus_once(corpus_dir: Path, max_length: int) -> None:
    corpus = Corpus.open(corpus_dir)
    sequences = cut_documents(corpus, np.arange(corpus.documents), max_length)
    for number, shard in enumerate(corpus.shards):
        own = sequences.shard == number
        begins = sequences.begin[own]
        ends = begins + sequences.length[own] - SPECIAL_TOKENS
        assert begins[0] == 0
        assert np.array_equal(begins[1:], ends[:-1])
        assert ends[-1] == len(shard.tokens)
        assert np.isin(shard.offsets[:-1].astype(np.int64), begins).all()
        # Words are never cut but where a word alone is longer than a sequence.
        cut = ~shard.word_starts(0, len(shard.tokens))[begins]
        if max_length >= 128:
            assert not cut.any()
    assert sequences.length.max() <= max_length


def test_identities_are_unique(corpus_dir: Path) -> None:
    corpus = Corpus.open(corpus_dir)
    sequences = cut_documents(corpus, np.arange(corpus.documents), 16)
    both = Sequences(
        np.concatenate([sequences.shard, sequences.shard + np.uint32(len(corpus.shards))]),
        np.tile(sequences.begin, 2),
        np.tile(sequences.length, 2),
    )
    identity = both.identity(np.arange(len(both)))
    assert identity.dtype == np.uint64
    assert len(np.unique(identity)) == len(both)
