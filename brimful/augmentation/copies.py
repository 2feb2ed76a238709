"""Make copies of a text in which some words are replaced.

Which words a copy replaces, and by what, follows from a hash of (seed, row, field, copy, word). The
distribution is TinyBERT's (Jiao et al. 2020, algorithm 1): each word is replaced with probability `rate`, by
one of its candidates, each of which is as likely as the others.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy import ndarray

from brimful.augmentation.candidates import Replaceable
from brimful.base.randomness import derive_key, draw_uniform, hash_words
from brimful.corpus.text.character_classes import WORD, character_classes

MIN_RATE = 1.0 / (1 << 53)
"""The distance between draws; it stands in for a rate of 0, by which nothing can be divided."""


def make_copies(
    text: str, words: Sequence[Replaceable], *, row: int, field: int, count: int, rate: float, seed: int
) -> Iterator[str]:
    """Yield `count` copies of a text; no copy if no word has a candidate.

    Args:
        words: the words of the text that may be replaced, in the order of the text.
        row: the row of the text in the file, from 0.
        field: 1 for the second text of a pair, otherwise 0.
        rate: the probability that a word is replaced.
    """
    if not words:
        return
    counts = np.array([len(word.candidates) for word in words])
    for key in copy_keys(seed, row, field, np.arange(count)):
        copy, end = "", 0
        choices = pick_candidates(key, np.arange(len(words)), counts, rate)
        for word, choice in zip(words, choices.tolist(), strict=True):
            if choice >= 0:
                copy = join_parts(copy, text[end : word.begin])
                copy = join_parts(copy, word.candidates[choice])
                end = word.end
        yield join_parts(copy, text[end:])


def copy_keys(seed: int, row: int, field: int, copies: ndarray) -> ndarray:
    """Return the keys of copies (numbered from 0), uint64 (copies,)."""
    key: Any = derive_key(seed, "augment")
    # The 0 was a counter once; it stays, so that earlier versions' copies stay the same.
    for counters in (0, row, field, copies):
        key = hash_words(key, np.asarray(counters))
    return key


def pick_candidates(key: np.uint64, numbers: ndarray, counts: ndarray, rate: float) -> ndarray:
    """Return the candidate that each word becomes in a copy, int64 (words,); -1 for a word that stays.

    Args:
        key: the key of the copy.
        numbers: the words' numbers in their text.
        counts: how many candidates each has.
    """
    draws = draw_uniform(key, numbers)
    # A draw below the rate also chooses the candidate: divided by the rate, it is uniform from 0 to 1.
    choices = np.minimum((draws / max(rate, MIN_RATE) * counts).astype(np.int64), counts - 1)
    return np.where(draws < rate, choices, -1)


def join_parts(start: str, end: str) -> str:
    """Join two parts of a text, with a space where letters would become one word.

    This happens where a Latin word replaces a Chinese one.
    """
    if not start or not end:
        return start + end
    classes = character_classes()
    is_one_word = classes[ord(start[-1])] == classes[ord(end[0])] == WORD
    return f"{start} {end}" if is_one_word else start + end
