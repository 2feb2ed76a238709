"""Documents -> stretches: each token once, never too long, cut where a reader would, elsewhere each epoch."""

import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom, chi2

from brimful.base.errors import BrimfulError
from brimful.base.randomness import derive_key
from brimful.data.config import SequencesConfig
from brimful.data.sequences import Stretches, cut_documents, make_sequences
from builders.corpora import Document, corpora, kinds, write_corpus

FALSE_ALARM = 1e-8

pytestmark = pytest.mark.usefixtures("no_sync")

SENTENCES = SequencesConfig()


def cut_corpus(shards: list[list[Document]], *arguments: object) -> Stretches:
    """The stretches of all documents of a corpus that is there for a moment."""
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
    # That all 12 are cut alike by chance: below 8 ** -12.
    assert found not in (cuts(seed, 1), cuts(seed + 1, 0))
    assert len({tuple(each) for each in found.values()}) > 1


@pytest.mark.parametrize("kind", ["sentences", "chunks"])
def test_the_first_limit_is_drawn_evenly(seed, kind):
    room, n = 16, 4000
    stretches = cut_corpus([["S" * 40] * n], room, SequencesConfig(kind=kind), derive_key(seed))
    cuts = cuts_of(stretches)
    sizes = np.bincount([cuts[i][1] for i in range(n)], minlength=room + 1)
    assert sizes[0] == 0
    assert len(sizes) == room + 1
    statistic = ((sizes[1:] - n / room) ** 2 / (n / room)).sum()
    assert statistic < chi2.isf(FALSE_ALARM, room - 1)


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


def test_single_segments_and_their_identities():
    """No place of another shard has the same identity."""
    stretches = cut_corpus([["Sw" * 30] * 20], 14, SENTENCES, np.uint64(1))
    lengths = stretches.end - stretches.begin + 2
    shard = np.repeat([0, 1], len(lengths))
    sequences = make_sequences(shard=shard, begin=np.tile(stretches.begin, 2), length=np.tile(lengths, 2))
    assert len(sequences.pair) == len(sequences.second_length) == 0
    identity = sequences.identity(np.arange(len(sequences)))
    assert identity.dtype == np.uint64
    assert np.array_equal(identity[: len(lengths)], stretches.identity())
    assert len(np.unique(identity)) == len(sequences)


@pytest.mark.parametrize("share", [-0.1, 1.5, float("nan")])
def test_a_share_that_cannot_be(share):
    with pytest.raises(BrimfulError, match=r"sequences\.short_share"):
        SequencesConfig(short_share=share)
