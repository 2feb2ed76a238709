"""The class and the script of each character, as tables by code point."""

import functools
import unicodedata

import numpy as np
from numpy import ndarray

from brimful.corpus.text.characters import HANGUL, LATIN, Ranges, parse_ranges

# Classes of characters, as words see them.
SPACE, WORD, HAN, HIRAGANA, KATAKANA, SINGLE, MARK = range(7)
_HAN = parse_ranges("2E80-2FDF 3005 3007 3021-3029 3400-4DBF 4E00-9FFF F900-FAFF 20000-3FFFD")
_HIRAGANA = parse_ranges("3041-3096 309D-309F")
_KATAKANA = parse_ranges("30A1-30FA 30FD-30FF 31F0-31FF FF66-FF9D")
# Scripts without spaces for which there is no segmenter here: each letter with its marks is a word.
_UNSPACED = parse_ranges("0E01-0E30 0E32-0E33 0E40-0E46 0E80-0EB0 0EC0-0EC6 1000-102A 1780-17B3")
# The prolonged sound mark, joiners, skin tones and variation selectors stay with the character before.
_MARKS = parse_ranges("30FC FF70 180E 200C-200D 1F3FB-1F3FF E0100-E01EF")
# Scripts, as reports about tokens see them.
SCRIPTS = ("Han", "Latin", "kana", "Hangul", "other")
NO_SCRIPT = len(SCRIPTS)
"""Whitespace."""
_KANA = parse_ranges("3041-30FF 31F0-31FF FF66-FF9F 1B000-1B16F")


def fill(table: ndarray, ranges: Ranges, value: int) -> None:
    """Set the entries of a table for the code points of these ranges."""
    for first, last in ranges:
        table[first : last + 1] = value


@functools.cache
def character_classes() -> ndarray:
    """Return the class of every code point, uint8 (0x110000,)."""
    table = np.full(0x110000, SINGLE, np.uint8)
    # The first two planes go by category, two letters such as Lu. The other planes hold only Han characters,
    # variation selectors and private use, which have ranges below or are SINGLE.
    categories = "".join(map(unicodedata.category, map(chr, range(0x20000)))).encode()
    major, minor = np.frombuffer(categories, np.uint8).reshape(-1, 2).T
    for letter, value in (("L", WORD), ("N", WORD), ("M", MARK), ("Z", SPACE)):
        table[:0x20000][major == ord(letter)] = value
    table[:0x20000][(major == ord("C")) & (minor == ord("c"))] = SPACE
    fill(table, _HAN, HAN)
    fill(table, _HIRAGANA, HIRAGANA)
    fill(table, _KATAKANA, KATAKANA)
    fill(table, _UNSPACED, SINGLE)
    fill(table, _MARKS, MARK)
    return table


@functools.cache
def character_scripts() -> ndarray:
    """Return the index in SCRIPTS of every code point, or NO_SCRIPT; uint8 (0x110000,)."""
    classes = character_classes()
    table = np.full(len(classes), SCRIPTS.index("other"), np.uint8)
    table[classes == HAN] = SCRIPTS.index("Han")
    for ranges, script in ((LATIN, "Latin"), (_KANA, "kana"), (HANGUL, "Hangul")):
        fill(table, ranges, SCRIPTS.index(script))
    table[classes == SPACE] = NO_SCRIPT
    return table
