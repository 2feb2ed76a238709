"""Unigram training: forward-backward against all spellings, pruning, order of words, size."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from brimful.corpus.tokenize.unigram import (
    LONGEST_LATIN,
    _compiled,
    _grams,
    _seeds,
    _segments,
    train_unigram,
)

WORDS = st.dictionaries(st.text(alphabet="ab中文", min_size=1, max_size=7), st.integers(1, 9), min_size=1)


def spellings(word: str, scores: dict[str, float]):
    """All ways to write `word` in pieces."""
    for cuts in itertools.product([False, True], repeat=len(word) - 1):
        places = [0, *(i + 1 for i, cut in enumerate(cuts) if cut), len(word)]
        pieces = [word[a:b] for a, b in itertools.pairwise(places)]
        if all(piece in scores for piece in pieces):
            yield pieces


@settings(deadline=None)
@given(WORDS)
def test_expected_counts_are_those_over_all_spellings(counts: dict[str, int]) -> None:
    codes, words, weights = _segments(counts, list("ab中文"))
    lattice, scores = _seeds(list(_grams(codes, words, weights, np.full(len(codes), 5))), 1000)
    text = "".join(map(chr, codes))
    pieces = [text[f : f + n] for f, n in zip(lattice.first, lattice.lengths, strict=True)]
    known = dict(zip(pieces, scores, strict=True))
    assert len(known) == len(pieces)
    want = dict.fromkeys(pieces, 0.0)
    for word, count in counts.items():
        ways = [(way, math.exp(sum(known[p] for p in way))) for way in spellings(word, known)]
        total = sum(weight for _, weight in ways)
        for way, weight in ways:
            for piece in way:
                want[piece] += count * weight / total
    got = np.zeros(len(scores))
    _compiled()[0](words, weights, *lattice, scores, got)
    np.testing.assert_allclose(got, [want[piece] for piece in pieces], rtol=1e-9, atol=1e-12)


@settings(deadline=None)
@given(WORDS)
def test_seeds_are_the_repeated_substrings_that_no_longer_one_covers(counts: dict[str, int]) -> None:
    codes, words, weights = _segments(counts, list("ab中文"))
    lattice, _ = _seeds(list(_grams(codes, words, weights, np.full(len(codes), LONGEST_LATIN))), 10_000)
    text = "".join(map(chr, codes))
    got = {text[f : f + n] for f, n in zip(lattice.first, lattice.lengths, strict=True)}
    found: dict[str, int] = {}
    for word, count in counts.items():
        for a, b in itertools.combinations(range(len(word) + 1), 2):
            found[word[a:b]] = found.get(word[a:b], 0) + count

    def covered(part: str) -> bool:
        longer = [other for other in found if part in other and len(other) == len(part) + 1]
        return any(found[other] == found[part] for other in longer)

    assert got == {p for p, n in found.items() if len(p) == 1 or (n > 1 and not covered(p))}


@settings(deadline=None, max_examples=30)
@given(WORDS, st.randoms())
def test_the_order_of_words_does_not_matter(counts: dict[str, int], random) -> None:
    shuffled = list(counts.items())
    random.shuffle(shuffled)
    first = train_unigram(counts, ["a", "中"], 8, longest_han=2)
    assert first == train_unigram(dict(shuffled), ["a", "中"], 8, longest_han=2)


def test_pieces_are_the_repeated_words_and_every_character() -> None:
    counts = {"▁reading": 90, "▁read": 80, "▁sing": 70, "▁singing": 60, "中国人民": 50, "xylophone": 1}
    alphabet = sorted(set("".join(counts)) - set("z"))
    pieces = dict(train_unigram(counts, alphabet, len(alphabet) + 4, longest_han=2))
    assert len(pieces) == len(alphabet) + 4
    assert set(alphabet) <= set(pieces)
    assert {"▁read", "▁sing"} <= set(pieces)
    assert max(len(piece) for piece in pieces if not piece.isascii() and "▁" not in piece) == 2
    assert all(score < 0 for score in pieces.values())
    assert sum(map(math.exp, pieces.values())) == pytest.approx(1, abs=0.05)


def test_unknown_characters_cut_words() -> None:
    pieces = dict(train_unigram({"abzab": 5, "zz": 3}, ["a", "b"], 10, longest_han=4))
    assert set(pieces) == {"a", "b", "ab"}
