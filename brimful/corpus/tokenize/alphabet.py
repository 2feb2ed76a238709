"""The characters that a WordPiece vocabulary starts from, counted in the training text."""

import unicodedata
from collections.abc import Iterable
from typing import Any

import numpy as np

from brimful.corpus.text.characters import BERT_HAN, SPACE, character_classes, code_points

# The alphabet covers this fraction of the text. Rarer characters get the entries that the trainer leaves.
ALPHABET_COVERAGE = 0.9998


class Alphabet:
    """Counts the characters of texts, and notes which ones follow another within a word."""

    def __init__(self, normalizer: Any) -> None:
        self._normalizer = normalizer
        self._counts = np.zeros(0x110000, np.int64)
        self._continues = np.zeros(0x110000, bool)

    def read(self, texts: Iterable[str]) -> list[str]:
        """The normalised texts, which are counted."""
        normalised = [self._normalizer.normalize_str(text) for text in texts]
        codes = code_points("\n".join(normalised))
        if len(codes):
            self._counts += np.bincount(codes, minlength=len(self._counts))
            self._continues[codes[1:][character_classes()[codes[:-1]] != SPACE]] = True
        return normalised

    def choose(self, limit: int) -> tuple[list[str], list[str]]:
        """At most `limit` characters that cover the text; the others. Frequent ones come first."""
        self._counts[character_classes() == SPACE] = 0
        order = np.lexsort((np.arange(len(self._counts)), -self._counts))[: np.count_nonzero(self._counts)]
        covered = np.cumsum(self._counts[order])
        enough = int(np.searchsorted(covered, ALPHABET_COVERAGE * covered[-1])) + 1 if len(order) else 0
        enough = min(enough, limit)
        return [chr(code) for code in order[:enough]], [chr(code) for code in order[enough:]]

    def continuations(self, characters: Iterable[str]) -> list[str]:
        """`##c` for each of the characters that can stand within a word, sorted."""
        return [f"##{character}" for character in sorted(characters) if self._continues_word(character)]

    def _continues_word(self, character: str) -> bool:
        return bool(self._continues[ord(character)]) and _can_continue(ord(character))


def _can_continue(code: int) -> bool:
    if any(first <= code <= last for first, last in BERT_HAN):
        return False
    character = chr(code)
    if code < 128:
        return character.isalnum()
    return not unicodedata.category(character).startswith("P")
