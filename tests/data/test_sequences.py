"""Documents -> stretches and pairs of them: each token once, never too long, with new cuts in each epoch."""

import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom, chi2

from brimful.base.randomness import derive_key
from brimful.corpus.shards import Corpus, read_bits
from brimful.data.blocks import Blocks
from brimful.data.config import PAIR_SPECIAL_TOKENS, SPECIAL_TOKENS, PackingConfig, SequencesConfig
from brimful.data.pairs import NO_PAIR, pair_stretches
from brimful.data.sequences import Sequences, Stretches, cut_documents
from builders.corpora import Document, corpora, kinds, write_corpus

FALSE_ALARM = 1e-8

pytestmark = pytest.mark.usefixtures("no_sync")

SENTENCES = SequencesConfig()


def cut_corpus(shards: list[list[Document]], *arguments: object) -> Stretches:
    """The stretches of all documents of a temporary corpus."""
    with tempfile.TemporaryDirectory() as name:
        corpus = write_corpus(Path(name), shards)
        return cut_documents(corpus, np.arange(corpus.documents), *arguments)


def cuts_of(stretches: Stretches) -> dict[int, list[int]]:
    """Of each document: where its stretches begin, counted from its first token."""
    found: dict[int, list[int]] = {}
    first: dict[int, int] = {}
    for document, begin in zip(stretches.document.tolist(), stretches.begin.tolist(), strict=True):
        start = first.setdefault(document, begin)
        found.setdefault(document, []).append(begin - start)
    return found


def last(document: Document, kinds: str, begin: int, limit: int) -> int | None:
    places = range(min(begin + limit, len(document) - 1), begin, -1)
    return next((i for i in places if document[i] in kinds), None)


def greedy_cut(document: Document, begin: int, room: int, kind: str) -> int:
    """Where a stretch that begins there ends if its limit is `room`."""
    if len(document) - begin <= room:
        return len(document)
    preferred = last(document, "S", begin, room) if kind == "sentences" else None
    return preferred or last(document, "Sw", begin, room) or begin + room


keys = st.integers(0, 2**64 - 1).map(np.uint64)
shares = st.sampled_from([0.0, 0.1, 0.5, 1.0])


@settings(max_examples=40)
@given(corpora, st.integers(1, 24), kinds, shares, keys)
def test_stretches_of_a_corpus(shards, room, kind, share, key):
    stretches = cut_corpus(shards, room, SequencesConfig(kind=kind, short_share=share), key)
    rows = iter(zip(*(getattr(stretches, name).tolist() for name in vars(stretches)), strict=True))
    number = -1
    for shard, held in enumerate(shards):
        start = 0
        for document in held:
            number += 1
            begin = 0
            while begin < len(document):
                of, where, absolute, end = next(rows)
                assert (of, where, absolute) == (number, shard, start + begin)
                cut = end - start
                assert begin < cut <= min(begin + room, len(document))
                first = begin == 0 and len(document) > room
                if share == 0 and not first:
                    assert cut == greedy_cut(document, begin, room, kind)
                elif cut < len(document):  # a place is as good as the best one within reach
                    if kind == "sentences" and last(document, "S", begin, room):
                        assert document[cut] == "S"
                    elif last(document, "Sw", begin, room):
                        assert document[cut] in "Sw"
                begin = cut
            start += len(document)
    assert next(rows, None) is None


@given(corpora, st.integers(1, 24), shares, keys, st.data())
def test_cuts_depend_on_nothing_but_the_document(shards, room, share, key, data):
    config = SequencesConfig(short_share=share)
    total = sum(map(len, shards))
    chosen = sorted(data.draw(st.sets(st.integers(0, total - 1))))
    with tempfile.TemporaryDirectory() as name:
        corpus = write_corpus(Path(name), shards)
        whole = cuts_of(cut_documents(corpus, np.arange(total), room, config, key))
        some = cuts_of(cut_documents(corpus, np.array(chosen, dtype=np.int64), room, config, key))
    assert some == {number: whole[number] for number in chosen}
    # The same text at the same place, with other documents before it and all in one shard.
    flat = [document for held in shards for document in held]
    other = [document if i in some else "Sww" for i, document in enumerate(flat)]
    assert {i: c for i, c in cuts_of(cut_corpus([other], room, config, key)).items() if i in some} == some


@pytest.mark.parametrize("document", ["S" * 400, "S" + "w" * 399, "S" + "." * 399, "Sww." * 100])
@pytest.mark.parametrize("kind", ["sentences", "chunks"])
def test_no_border_stays(seed, document, kind):
    """Also within a sentence that is longer than a sequence, and within an endless word."""

    def cuts(seed: int, epoch: int) -> dict[int, list[int]]:
        key = derive_key(seed, "cuts", epoch)
        return cuts_of(cut_corpus([[document] * 12], 32, SequencesConfig(kind=kind), key))

    found = cuts(seed, 0)
    assert found == cuts(seed, 0)
    # The probability that all 12 are cut alike by chance is below 8 ** -12.
    assert found not in (cuts(seed, 1), cuts(seed + 1, 0))
    assert len({tuple(each) for each in found.values()}) > 1


@pytest.mark.parametrize("share", [0.1, 1.0])
def test_the_share_of_short_stretches(seed, share):
    room = 10
    stretches = cut_corpus([["S" * 30_000]], room, SequencesConfig(short_share=share), derive_key(seed))
    sizes = (stretches.end - stretches.begin)[1:-1]
    expected = share * (room - 1) / room  # a limit drawn evenly from 1 to room is room itself now and then
    low, high = binom.ppf([FALSE_ALARM / 2, 1 - FALSE_ALARM / 2], len(sizes), expected)
    assert low <= (sizes < room).sum() <= high
    short = np.bincount(sizes[sizes < room], minlength=room)[1:]
    statistic = ((short - short.mean()) ** 2 / short.mean()).sum()
    assert statistic < chi2.isf(FALSE_ALARM, room - 2)


# Pairs

Range = tuple[int, int, int]
"""Shard, first token there, and how many."""


def ranges(sequences: Sequences) -> list[tuple[Range, Range | None, int]]:
    """First segment, second segment and label of each sequence, which has the length that is stored."""
    found = []
    for i in range(len(sequences)):
        second_length = int(sequences.second_length[i])
        special = PAIR_SPECIAL_TOKENS if second_length else SPECIAL_TOKENS
        first_length = int(sequences.length[i]) - second_length - special
        assert first_length > 0
        first = (int(sequences.shard[i]), int(sequences.begin[i]), first_length)
        second = (int(sequences.second_shard[i]), int(sequences.second_begin[i]), second_length)
        found.append((first, second if second_length else None, int(sequences.pair[i])))
    return found


def document_of(corpus: Corpus, segment: Range) -> tuple[int, int]:
    """The one document of a segment: (shard, index there)."""
    shard, begin, length = segment
    index = np.searchsorted(corpus.shards[shard].offsets, [begin, begin + length - 1], side="right") - 1
    assert index[0] == index[1]
    return shard, int(index[0])


def check(corpus: Corpus, sequences: Sequences, max_length: int) -> None:
    seen = [np.zeros(len(shard.tokens), dtype=int) for shard in corpus.shards]
    assert (sequences.length <= max_length).all()
    for first, second, label in ranges(sequences):
        for shard, begin, length in filter(None, (first, second)):
            seen[shard][begin : begin + length] += 1
        home = document_of(corpus, first)
        if second is None:
            assert label == NO_PAIR
            continue
        assert label in (0, 1)
        away = document_of(corpus, second)
        assert (home == away) == (label == 0)
        assert read_bits(corpus.shards[second[0]].sentence_bits, second[1], second[1] + 1)[0]
        if label == 0:
            assert second[:2] == (first[0], first[1] + first[2])
    for counts in seen:
        assert (counts == 1).all()


@given(corpora, st.integers(5, 24), st.sampled_from([0.0, 0.1, 1.0]), st.integers(0, 2**32))
def test_pairs_of_a_corpus(shards, max_length, share, seed):
    with tempfile.TemporaryDirectory() as name:
        corpus = write_corpus(Path(name), shards)
        config = SequencesConfig(kind="nsp", short_share=share)
        blocks = Blocks(corpus, PackingConfig(max_length=max_length), config, seed, Path(name))
        check(corpus, blocks.cut(0, 0), max_length)


def random_stretches(seed: int, n: int, room: int, documents: int) -> tuple[Stretches, list[np.ndarray]]:
    """Stretches of up to `room` tokens, most of them nearly full; every token starts a sentence."""
    draw = np.random.default_rng(seed)
    full = draw.random(n) < 0.7
    sizes = np.where(full, draw.integers(room - 5, room + 1, n), draw.integers(2, room + 1, n))
    begin = np.concatenate([[0], np.cumsum(sizes)])
    document = np.sort(draw.integers(0, documents, n))
    bits = np.full(begin[-1] // 8 + 1, 255, dtype=np.uint8)
    return Stretches(document, np.zeros(n, np.uint32), begin[:-1], begin[1:]), [bits]


def test_half_of_the_pairs_are_random_and_lengths_do_not_tell_which(seed):
    n, room = 20_000, 100
    stretches, bits = random_stretches(seed, n, room, documents=2000)
    sequences = pair_stretches(stretches, bits, room, np.uint64(seed))
    random = int((sequences.pair == 1).sum())
    # Few find no partner outside their own document: those of the longest first segments, which fit with few.
    alone = int((sequences.pair == NO_PAIR).sum())
    assert alone < 0.001 * n
    low, high = binom.ppf([FALSE_ALARM / 2, 1 - FALSE_ALARM / 2], n, 0.5)
    assert low <= random + alone / 2 <= high

    own = dict(zip(stretches.begin.tolist(), stretches.end.tolist(), strict=True))
    chosen = sequences.pair == 1
    first = (sequences.length - sequences.second_length - PAIR_SPECIAL_TOKENS)[chosen]
    ends = np.array([own[begin] for begin in sequences.begin[chosen].tolist()])
    instead_of = ends - sequences.begin[chosen] - first
    # Partners drawn from all that fit would differ in length by about a quarter of the room.
    assert np.abs(sequences.second_length[chosen] - instead_of).mean() < 0.03 * room
    # Partners are from far and near, before and after.
    distance = sequences.second_begin[chosen] - sequences.begin[chosen]
    low, high = binom.ppf([FALSE_ALARM / 2, 1 - FALSE_ALARM / 2], random, 0.5)
    assert low <= (distance > 0).sum() <= high
    assert np.abs(distance).mean() > 0.3 * stretches.end[-1]  # a third, if both were drawn evenly


def test_one_document_is_most_of_the_corpus(seed):
    stretches, bits = random_stretches(seed, 20_000, 60, documents=20)
    stretches.document[1000:] = 20
    sequences = pair_stretches(stretches, bits, 60, np.uint64(seed))
    chosen = sequences.pair == 1
    # About 500 stretches of the other documents are to get partners. Each also becomes a partner.
    assert 800 < chosen.sum() < 1200
    large = stretches.begin[1000]
    assert ((sequences.begin[chosen] < large) | (sequences.second_begin[chosen] < large)).all()


def test_a_piece_is_cut_at_any_of_its_sentences(seed):
    """Five sentences of 3 tokens: each of the four borders a quarter of the time."""
    n = 4000
    sentences = np.tile([1, 0, 0], 5 * n)
    begin = np.arange(n) * 15
    stretches = Stretches(np.arange(n), np.zeros(n, np.uint32), begin, begin + 15)
    bits = [np.packbits(sentences, bitorder="little")]
    sequences = pair_stretches(stretches, bits, 15, np.uint64(seed))
    split = sequences.second_begin[sequences.pair >= 0] % 15
    places, counts = np.unique(split, return_counts=True)
    assert places.tolist() == [3, 6, 9, 12]
    low, high = binom.ppf([FALSE_ALARM / 8, 1 - FALSE_ALARM / 8], n, 0.25)
    assert ((low <= counts) & (counts <= high)).all()
