"""Word spans of a text, and which tokens start a word: the unit of whole-word masking.

One segmenter serves every tokenizer. Letters, digits and their marks form words; each punctuation
mark is a word; runs of Han characters are cut by rjieba; the user's lexicon is laid over the result,
so that 腾讯控股(00700) or Coca Cola is one word. Token ids come from the raw text alone: a token belongs
to the word that holds its first character, whatever the tokenizer's own pre-tokens are.
"""

import importlib.metadata
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from brimful.corpus.text.characters import HAN, MARK, SINGLE, SPACE, character_classes, code_points
from brimful.corpus.words.word_lists import word_list

if TYPE_CHECKING:
    from brimful.corpus.words.han import HanSegmenter
    from brimful.corpus.words.lexicon import Lexicon

Language = Literal["auto", "zh", "en"]


class Segmenter:
    """Cuts a text into words.

    Args:
        language: `auto` cuts Han runs wherever there are any, `zh` always loads the Chinese segmenter,
            `en` leaves Han runs whole.
        lexicon: words that stay whole. A lexicon word is found only where it does not cut a word of
            letters in two (`AI` is not found in `MAIN`); of those, the longest from the left.
    """

    def __init__(self, language: Language = "auto", lexicon: list[str] | None = None) -> None:
        self._segment_han = language != "en"
        self._han_segmenter = self._load_han_segmenter() if language == "zh" else None
        self._lexicon = self._load_lexicon(lexicon) if lexicon else None

    def spans(self, text: str) -> np.ndarray:
        """The words of `text` in order: character begin and end, int64 (words, 2). Spaces are in no word."""
        if not text:
            return np.empty((0, 2), np.int64)
        from brimful.corpus.words.boundaries import spans_from, word_starts_by_class

        codes = code_points(text)
        starts, classes, marks = word_starts_by_class(codes, character_classes(), SPACE, SINGLE, MARK)
        inside, han = classes != SPACE, (classes == HAN) & ~marks
        if self._segment_han and han.any():
            self._han_segmenter = self._han_segmenter or self._load_han_segmenter()
            begins = self._han_segmenter.word_begins(codes)
            starts[begins[han[begins]]] = True
        if self._lexicon:
            self._lexicon.lay(codes, starts, inside, han)
        return spans_from(starts, inside)

    @staticmethod
    def _load_han_segmenter() -> "HanSegmenter":
        from brimful.corpus.words.han import HanSegmenter

        return HanSegmenter(character_classes() == HAN)

    @staticmethod
    def _load_lexicon(entries: list[str]) -> "Lexicon":
        from brimful.corpus.words.lexicon import Lexicon

        return Lexicon(entries)


def word_starts(begins: np.ndarray, spans: np.ndarray) -> np.ndarray:
    """Which tokens start a word (or a sentence, given sentence spans).

    Args:
        begins: each token's first character, int (tokens,), non-decreasing.
        spans: character spans in order, int64 (words, 2). A space counts as part of the span after it,
            since byte-level and SentencePiece tokens carry the space before their word.

    Returns:
        bool (tokens,): the token's span differs from the previous token's span.
    """
    from brimful.corpus.words.boundaries import changes_of_owner

    return changes_of_owner(begins, spans)


def segmenter_name() -> str:
    """The package that cuts runs of Han characters here, with its version: `rjieba 0.2.2`.

    Raises:
        BrimfulError: no such package is installed.
    """
    from brimful.corpus.words.han import cutter_name

    name = cutter_name()
    return f"{name} {importlib.metadata.version(name)}"


def read_lexicon(path: str | Path) -> list[str]:
    """The entries of a lexicon file, in order, each once (`word_lists`).

    Raises:
        BrimfulError: the file cannot be read or holds no entry.
    """
    return word_list(path, "lexicon").words


def read_list(path: str | Path, what: str) -> list[str]:
    """The words of a file, in order, each once.

    Args:
        what: the name of such a file in messages.

    Raises:
        BrimfulError: the file cannot be read or holds no word.
    """
    return word_list(path, what).words


def entries_found(segmenter: Segmenter, entries: Collection[str], texts: Iterable[str]) -> int:
    """How many entries of a segmenter's lexicon are words of the texts."""
    known = set(entries)
    found: set[str] = set()
    for text in texts:
        found.update(known.intersection(text[begin:end] for begin, end in segmenter.spans(text).tolist()))
        if len(found) == len(known):
            break
    return len(found)
