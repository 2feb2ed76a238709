"""Copies of a text in which some words are others.

Which words a copy replaces, and by what, is a hash of (seed, row, text, copy, word). The distribution is
TinyBERT's (Jiao et al. 2020, algorithm 1): each word is replaced with probability `rate`, by one of its
candidates, each of which is as likely as the others.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from brimful.augmentation.candidates import Replaceable
from brimful.base.randomness import derive_key, draw_uniform, hash_words
from brimful.corpus.text.characters import WORD, character_classes

SMALLEST_RATE = 1.0 / (1 << 53)
"""The distance of draws: a rate of 0 divides by nothing smaller."""


def make_copies(
    text: str, words: Sequence[Replaceable], *, row: int, field: int, count: int, rate: float, seed: int
) -> Iterator[str]:
    """`count` copies of a text; none if none of its words has a candidate.

    Args:
        words: of the text, in its order.
        row, field: its row in the file, from 0, and 1 for the second of a pair, else 0.
        rate: the probability that a word is replaced.
    """
    if not words:
        return
    counts = np.array([len(word.candidates) for word in words])
    for key in copy_keys(seed, row, field, np.arange(count)):
        copy, end = "", 0
        chosen = picked(key, np.arange(len(words)), counts, rate)
        for word, choice in zip(words, chosen.tolist(), strict=True):
            if choice >= 0:
                copy = joined(joined(copy, text[end : word.begin]), word.candidates[choice])
                end = word.end
        yield joined(copy, text[end:])


def copy_keys(seed: int, row: int, field: int, copies: np.ndarray) -> np.ndarray:
    """The keys of copies (from 0), uint64 (copies,)."""
    key: Any = derive_key(seed, "augment")
    for counters in (0, row, field, copies):  # the 0 keeps the copies of earlier versions
        key = hash_words(key, np.asarray(counters))
    return key


def picked(key: np.uint64, numbers: np.ndarray, counts: np.ndarray, rate: float) -> np.ndarray:
    """The candidate that each word becomes in a copy, int64 (words,); -1: it stays.

    Args:
        key: of the copy.
        numbers: the words' numbers in their text.
        counts: how many candidates each has.
    """
    draws = draw_uniform(key, numbers)
    chosen = np.minimum((draws / max(rate, SMALLEST_RATE) * counts).astype(np.int64), counts - 1)
    return np.where(draws < rate, chosen, -1)


def joined(left: str, right: str) -> str:
    """Two parts of a text, with a space where letters would become one word: where a Latin word stands in for
    a Han one."""
    classes = character_classes()
    meet = left and right and classes[ord(left[-1])] == classes[ord(right[0])] == WORD
    return f"{left} {right}" if meet else left + right
