"""Word spans of a text, and which tokens start a word: the unit of whole-word masking.

One segmenter serves every tokenizer. Letters, digits and their marks form words; each punctuation
mark is a word; runs of Han characters are cut by rjieba; the user's lexicon is laid over the result,
so that 腾讯控股(00700) or Coca Cola is one word. Token ids come from the raw text alone: a token belongs
to the word that holds its first character, whatever the tokenizer's own pre-tokens are.
"""

import functools
import unicodedata
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from brimful.errors import BrimfulError

Language = Literal["auto", "zh", "en"]

SPACE, WORD, HAN, HIRAGANA, KATAKANA, SINGLE, MARK = range(7)
ZERO_WIDTH_JOINER = 0x200D

_HAN = [(0x2E80, 0x2FDF), (0x3005, 0x3005), (0x3007, 0x3007), (0x3021, 0x3029), (0x3400, 0x4DBF)]
_HAN += [(0x4E00, 0x9FFF), (0xF900, 0xFAFF), (0x20000, 0x3FFFD)]
_HIRAGANA = [(0x3041, 0x3096), (0x309D, 0x309F)]
_KATAKANA = [(0x30A1, 0x30FA), (0x30FD, 0x30FF), (0x31F0, 0x31FF), (0xFF66, 0xFF9D)]
# Scripts without blanks and without a segmenter here: each letter with its marks is a word.
_UNSPACED = [(0x0E01, 0x0E30), (0x0E32, 0x0E33), (0x0E40, 0x0E46), (0x0E80, 0x0EB0), (0x0EC0, 0x0EC6)]
_UNSPACED += [(0x1000, 0x102A), (0x1780, 0x17B3)]
# The prolonged sound mark, joiners, emoji skin tones and variation selectors stay with what they follow.
_MARKS = [(0x30FC, 0x30FC), (0xFF70, 0xFF70), (0x200C, 0x200D), (0x1F3FB, 0x1F3FF), (0xE0100, 0xE01EF)]


@dataclass(frozen=True, kw_only=True)
class WordsConfig:
    """What counts as a word."""

    lexicon: str | None = None
    """File of words that must stay whole, one a line, such as names with blanks, digits or brackets."""


@functools.cache
def character_classes() -> np.ndarray:
    """The class of every code point, uint8 (0x110000,)."""
    table = np.full(0x110000, SINGLE, np.uint8)
    by_category = {"L": WORD, "N": WORD, "M": MARK, "Z": SPACE}
    for code in range(0x20000):
        category = unicodedata.category(chr(code))
        table[code] = SPACE if category == "Cc" else by_category.get(category[0], SINGLE)
    ranges = [(_HAN, HAN), (_HIRAGANA, HIRAGANA), (_KATAKANA, KATAKANA), (_UNSPACED, SINGLE), (_MARKS, MARK)]
    for spans, value in ranges:
        for first, last in spans:
            table[first : last + 1] = value
    return table


def code_points(text: str) -> np.ndarray:
    """The code points of `text`, uint32 (characters,)."""
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)


def _spread_over_marks(classes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Give each mark the class of the character it follows; also say where those marks are."""
    classes = classes.copy()
    mark = classes == MARK
    orphan = mark.copy()
    orphan[1:] &= classes[:-1] == SPACE
    classes[orphan] = SINGLE
    mark &= ~orphan
    base = np.maximum.accumulate(np.where(mark, 0, np.arange(len(classes))))
    return classes[base], mark


def _han_cuts(text: str) -> np.ndarray:
    """Where rjieba cuts `text`: sorted character positions, int64."""
    import rjieba

    return np.cumsum(np.fromiter(map(len, rjieba.cut(text)), np.int64))[:-1]


class Segmenter:
    """Cuts a text into words.

    Args:
        language: `auto` cuts Han runs wherever there are any, `zh` always loads the Chinese segmenter,
            `en` leaves Han runs whole.
        lexicon: words that stay whole. A lexicon word is found only where it does not cut a word of
            letters in two (`AI` is not found in `MAIN`).
    """

    def __init__(self, language: Language = "auto", lexicon: list[str] | None = None) -> None:
        self._segment_han = language != "en"
        self._automaton: Any = None
        if language == "zh":
            _han_cuts("")
        if lexicon:
            import ahocorasick_rs

            self._automaton = ahocorasick_rs.AhoCorasick(
                lexicon, matchkind=ahocorasick_rs.MatchKind.LeftmostLongest, store_patterns=False
            )

    def spans(self, text: str) -> np.ndarray:
        """The words of `text` in order: character begin and end, int64 (words, 2). Blanks are in no word."""
        if not text:
            return np.empty((0, 2), np.int64)
        codes = code_points(text)
        classes, mark = _spread_over_marks(character_classes()[codes])
        inside = classes != SPACE
        starts = inside & ~mark
        starts[1:] &= (classes[1:] == SINGLE) | (classes[1:] != classes[:-1])
        starts[1:] &= codes[:-1] != ZERO_WIDTH_JOINER
        han = classes == HAN
        if self._segment_han and han.any():
            cuts = _han_cuts(text)
            starts[cuts[han[cuts] & ~mark[cuts]]] = True
        if self._automaton is not None:
            self._lay_lexicon(text, starts, inside, han)
        begins = np.flatnonzero(starts)
        # A word ends where the next one starts or a blank follows, whichever comes first.
        stops = np.flatnonzero(np.append(starts | ~inside, True))
        ends = stops[np.searchsorted(stops, begins, side="right")]
        return np.stack([begins, ends], axis=1)

    def _lay_lexicon(self, text: str, starts: np.ndarray, inside: np.ndarray, han: np.ndarray) -> None:
        found = self._automaton.find_matches_as_indexes(text)
        if not found:
            return
        matches = np.array(found, np.int64)
        cuttable = np.append(starts | han | ~inside, True)
        matches = matches[cuttable[matches[:, 1]] & cuttable[matches[:, 2]]]
        begins, ends = matches[:, 1], matches[:, 2]
        edges = np.zeros(len(text) + 1, np.int64)
        edges[begins + 1] += 1
        edges[ends] -= 1
        within = np.cumsum(edges)[:-1] > 0  # the match without its first character
        starts[within] = False
        inside[within] = True
        starts[begins] = True
        after = ends[ends < len(text)]
        starts[after] |= inside[after]


def word_starts(begins: np.ndarray, spans: np.ndarray) -> np.ndarray:
    """Which tokens start a word (or a sentence, given sentence spans).

    Args:
        begins: each token's first character, int (tokens,), non-decreasing.
        spans: character spans in order, int64 (words, 2). A blank counts as part of the span after it,
            since byte-level and SentencePiece tokens carry the blank before their word.

    Returns:
        bool (tokens,): the token's span differs from that of the token before it.
    """
    owner = np.searchsorted(spans[:, 1], begins, side="right")
    starts = np.ones(len(begins), bool)
    starts[1:] = owner[1:] != owner[:-1]
    return starts


def read_lexicon(path: str | Path) -> list[str]:
    """The entries of a lexicon file, in order, without repeats.

    Raises:
        BrimfulError: the file cannot be read or holds no entry.
    """
    try:
        text = Path(path).read_text(encoding="utf-8-sig", errors="replace")
    except OSError as error:
        raise BrimfulError(f"cannot read the lexicon {path}: {error.strerror}") from error
    entries = list(dict.fromkeys(line.strip() for line in text.split("\n") if line.strip()))
    if not entries:
        raise BrimfulError(f"the lexicon {path} is empty; write one word a line, or leave it out")
    return entries
