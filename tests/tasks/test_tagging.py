"""The best tags are the best of all sequences that a scheme allows; models of every scheme are decoded."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from brimful.tasks.span_form import Tagging

SCHEMES = {  # of seqeval, by our marks
    "IOB2": ("BI", "IOB2"),
    "IOE2": ("IE", "IOE2"),
    "BIOES": ("BIES", "IOBES"),
    "BILOU": ("BILU", "BILOU"),
}


def allowed(tags: tuple[str, ...], scheme: str) -> bool:
    """Whether seqeval, strictly, finds each token that is not O in a span of the scheme."""
    strict = pytest.importorskip("seqeval.scheme", reason="seqeval is not installed")
    found = strict.Entities([list(tags)], getattr(strict, scheme)).entities[0]
    inside = {place for entity in found for place in range(entity.start, entity.end)}
    return inside == {place for place, tag in enumerate(tags) if tag != "O"}


@pytest.mark.parametrize("scheme", SCHEMES)
@settings(max_examples=10)
@given(n=st.integers(1, 4), seed=st.integers(0, 2**32 - 1), goes_on=st.booleans())
def test_the_best_tags_are_those_of_all_that_seqeval_allows(scheme: str, n: int, seed: int, goes_on: bool):
    """With X, the tags of words are allowed: X goes on with a word in whatever its first token is."""
    marks, theirs = SCHEMES[scheme]
    names = ["O", *(f"{mark}-{label}" for label in "AB" for mark in marks), *["X"] * goes_on]
    random = np.random.default_rng(seed)
    random.shuffle(names)
    scores = random.normal(size=(n, len(names)))
    sums = {
        tags: sum(scores[place, names.index(tag)] for place, tag in enumerate(tags))
        for tags in product(names, repeat=n)
    }
    words = {tags: tuple(tag for tag in tags if tag != "X") for tags in sums}
    best = next(tags for tags in sorted(sums, key=lambda tags: -sums[tags]) if allowed(words[tags], theirs))
    assert tuple(names[tag] for tag in Tagging.of(names).best(scores)) == best


@pytest.mark.parametrize(
    ("names", "favoured", "wanted"),
    [
        ("O PER LOC", "O PER PER LOC O PER", None),
        ("O I-PER I-LOC", "I-PER I-PER I-LOC O", None),
        ("I-PER B-LOC I-LOC O", "I-LOC I-LOC B-LOC I-PER O", None),  # IOB1
        ("B-A I-A E-A S-A B-B O", "B-B B-B O S-A B-A E-A", None),  # B is never longer than a token
        ("B-A E-A O", "B-A O B-A E-A B-A", None),  # without S, one token is B
        ("B M E S", "S B E B M M E", None),
        ("O B-P I-P X", "B-P X X I-P O X", None),
        ("O B-PER I-PER B-LOC I-LOC X", "B-PER X I-LOC", "B-PER X I-PER"),
        ("O B-PER I-PER B-LOC I-LOC X", "O X I-LOC", "O X O"),
        ("O B-PER I-PER E-PER S-PER X", "B-PER X", "S-PER X"),
    ],
)
def test_allowed_tags_stay_and_what_follows_a_continued_word_follows_its_first_token(
    names: str, favoured: str, wanted: str | None
):
    tags, best = names.split(), (wanted or favoured).split()
    scores = np.full((len(best), len(tags)), -5.0)
    for place, (first, second) in enumerate(zip(favoured.split(), best, strict=True)):
        scores[place, tags.index(second)] = -1.0
        scores[place, tags.index(first)] = 0.0
    assert [tags[tag] for tag in Tagging.of(tags).best(scores)] == best


def test_tags_that_a_model_lacks_never_win():
    tagging = Tagging.of(["O", "B-A", "I-A", "B-LOC"])
    scores = np.log([[0.1, 0.0001, 0.0999, 0.8], [0.2, 0.1, 0.6, 0.1], [0.1, 0.1, 0.1, 0.7]])
    assert tagging.best(scores).tolist() == [3, 0, 3]  # I-A cannot follow B-LOC
