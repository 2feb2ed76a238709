"""Sentence boundaries of English, Chinese and mixed text.

Punctuation ends a sentence where a blank or East Asian text follows, but not after an abbreviation, initials
or a list number, nor before a lower-case letter. A line break, and 。！？； always end one.
"""

import functools

import numpy as np

from brimful.text.characters import code_points

# What a full stop may follow without ending a sentence, beside initials.
_ABBREVIATIONS = (
    "mr mrs ms dr prof sr jr st vs etc al cf e.g i.e eg ie inc ltd co corp vol fig figs eq eqs sec ch "
    "p pp ed eds jan feb mar apr jun jul aug sep sept oct nov dec gen col sgt capt lt rev hon gov sen rep "
    "approx dept est a.m p.m ph.d resp ca"
)
# These do so only before a digit: `No. 5`.
_BEFORE_NUMBERS = "no nos"


@functools.cache
def packed_abbreviations() -> tuple[np.ndarray, np.ndarray]:
    """The abbreviations, and those before numbers, without their last full stop.

    Each is one number, made of its ASCII codes; sorted uint64.
    """
    return _packed(_ABBREVIATIONS), _packed(_BEFORE_NUMBERS)


def _packed(words: str) -> np.ndarray:
    return np.array(sorted(int.from_bytes(word.encode(), "big") for word in words.split()), np.uint64)


def sentence_spans(text: str) -> np.ndarray:
    """The sentences of `text` in order: character begin and end, int64 (sentences, 2).

    A line break ends a sentence. Blanks between sentences belong to none.
    """
    from brimful.corpus.words.sentence_cuts import character_traits, cut_sentences

    return cut_sentences(code_points(text), character_traits(), packed_abbreviations())
