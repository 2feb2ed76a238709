"""Find the words of a text that may be replaced: words of letters, except function words and numbers."""

import re
import unicodedata
from collections.abc import Collection
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy import ndarray

from brimful.corpus.text.character_classes import SPACE, character_classes
from brimful.corpus.text.characters import code_points
from brimful.corpus.words.segmenter import Segmenter
from brimful.corpus.words.word_lists import read_lexicon, read_word_list

BUILT_IN = frozenset(Path(__file__).with_name("function_words.txt").read_text(encoding="utf-8").split())
"""Function words of English and Chinese, in lower case."""


@lru_cache(maxsize=1 << 18)
def is_word(text: str) -> bool:
    """Whether a text is letters with their marks; an entry of a lexicon may have spaces between them."""
    for character in text:
        is_mark = unicodedata.category(character)[0] == "M"
        if not (character.isalpha() or is_mark or character == " "):
            return False
    return text[:1].isalpha()


_NUMERALS = "零一二两三四五六七八九十百千万亿几壹贰叁肆伍陆柒捌玖拾佰仟兩萬億幾"
_CHINESE_NUMBER = re.compile(f"第?[{_NUMERALS}]+(?:分之[{_NUMERALS}]+)?.?")


def is_number(text: str) -> bool:
    """Whether a word is a number in Chinese characters, with at most one character behind it: its unit.

    Other words that begin with a numeral and are as short count as numbers too.
    """
    return _CHINESE_NUMBER.fullmatch(text) is not None


def stop_words(file: str | Path | None) -> frozenset[str]:
    """Return the built-in words and the words of a file, one a line, in lower case.

    Raises:
        BrimfulError: the file cannot be read or holds no word.
    """
    if not file:
        return BUILT_IN
    return BUILT_IN | {word.casefold() for word in read_word_list(file, "list of stop words").words}


class Words:
    """Finds the words that may be replaced.

    Args:
        stop: words that may not be replaced, in lower case.
        lexicon: words that stay whole, as in masking.
    """

    def __init__(self, stop: Collection[str], lexicon: list[str] | None = None) -> None:
        self._stop = stop
        self._segmenter = Segmenter("auto", lexicon)

    @classmethod
    def read(cls, stop_file: str | None, lexicon_file: str | None) -> "Words":
        """Read the stop words and the lexicon from files; a file is optional.

        Raises:
            BrimfulError: a file cannot be read, or holds no word.
        """
        lexicon = read_lexicon(lexicon_file) if lexicon_file else None
        return cls(stop_words(stop_file), lexicon)

    def spans(self, text: str) -> ndarray:
        """Return the words of a text that may be replaced: characters begin and end, int64 (words, 2)."""
        spans = []
        for begin, end in self._segmenter.spans(text).tolist():
            word = text[begin:end]
            if word.casefold() not in self._stop and is_word(word) and not is_number(word):
                spans.append((begin, end))
        return np.array(spans, dtype=np.int64).reshape(-1, 2)


def find_token_ranges(
    text: str, offsets: ndarray, ids: ndarray, spans: ndarray, continues: ndarray
) -> ndarray:
    """Find the tokens of words: begin and end, int64 (words, 2); -1 where other text shares the tokens.

    Args:
        offsets: the first character of each token of `text`, and the one behind its last, int (tokens, 2).
            A token may include the space before its word.
        ids: the ids of the tokens, int (tokens,).
        spans: characters of the words, int64 (words, 2).
        continues: bool (vocabulary,), the pieces that only continue a word.
    """
    if not len(ids) or not len(spans):
        return np.full((len(spans), 2), -1, dtype=np.int64)
    begins, ends = offsets.T.astype(np.int64)
    codes = np.append(code_points(text), np.uint32(0))  # an empty token at the end has no character
    is_space = character_classes()[codes[np.minimum(begins, len(codes) - 1)]] == SPACE
    begins += is_space & (begins + 1 < ends)
    first = np.searchsorted(begins, spans[:, 0], side="left")
    last = np.searchsorted(begins, spans[:, 1], side="left")
    inside = np.minimum(first, len(ids) - 1)
    # The tokens begin and end with the word, no token before reaches into it, and none behind continues it.
    fits = (first < last) & (begins[inside] == spans[:, 0]) & (ends[last - 1] == spans[:, 1])
    fits &= (first == 0) | (ends[first - 1] <= spans[:, 0])
    fits &= (last == len(ids)) | ~continues[ids[np.minimum(last, len(ids) - 1)]]
    fits &= ~continues[ids[inside]]
    return np.where(fits[:, None], np.stack([first, last], axis=1), -1)
