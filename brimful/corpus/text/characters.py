"""Tables of all characters by code point, their classes and scripts, and named ranges of Unicode."""

import functools
import re
import unicodedata

import numpy as np

Ranges = list[tuple[int, int]]
"""First and last code points."""

# Classes of characters, as words see them.
SPACE, WORD, HAN, HIRAGANA, KATAKANA, SINGLE, MARK = range(7)
_HAN: Ranges = [(0x2E80, 0x2FDF), (0x3005, 0x3005), (0x3007, 0x3007), (0x3021, 0x3029), (0x3400, 0x4DBF)]
_HAN += [(0x4E00, 0x9FFF), (0xF900, 0xFAFF), (0x20000, 0x3FFFD)]
_HIRAGANA: Ranges = [(0x3041, 0x3096), (0x309D, 0x309F)]
_KATAKANA: Ranges = [(0x30A1, 0x30FA), (0x30FD, 0x30FF), (0x31F0, 0x31FF), (0xFF66, 0xFF9D)]
# Scripts without spaces that no segmenter here cuts: each letter with its marks is a word.
_UNSPACED: Ranges = [(0x0E01, 0x0E30), (0x0E32, 0x0E33), (0x0E40, 0x0E46), (0x0E80, 0x0EB0)]
_UNSPACED += [(0x0EC0, 0x0EC6), (0x1000, 0x102A), (0x1780, 0x17B3)]
# The prolonged sound mark, joiners, emoji skin tones and variation selectors stay with what they follow.
_MARKS: Ranges = [(0x30FC, 0x30FC), (0xFF70, 0xFF70), (0x180E, 0x180E), (0x200C, 0x200D), (0x1F3FB, 0x1F3FF)]
_MARKS += [(0xE0100, 0xE01EF)]

# Scripts, as reports about tokens see them.
SCRIPTS = ("Han", "Latin", "kana", "Hangul", "other")
NO_SCRIPT = len(SCRIPTS)
"""Whitespace."""
LATIN: Ranges = [(0x41, 0x5A), (0x61, 0x7A), (0xAA, 0xAA), (0xBA, 0xBA), (0xC0, 0xD6), (0xD8, 0xF6)]
LATIN += [(0xF8, 0x24F), (0x1E00, 0x1EFF), (0xFF21, 0xFF3A), (0xFF41, 0xFF5A)]
_KANA: Ranges = [(0x3041, 0x30FF), (0x31F0, 0x31FF), (0xFF66, 0xFF9F), (0x1B000, 0x1B16F)]
HANGUL: Ranges = [(0x1100, 0x11FF), (0x3131, 0x318E), (0xA960, 0xA97C), (0xAC00, 0xD7FB)]

IDEOGRAPHS: Ranges = [(0x3400, 0x9FFF), (0xF900, 0xFAFF), (0x20000, 0x3FFFD)]
HAN_OR_KANA: Ranges = [(0x3005, 0x3007), (0x3041, 0x30FF), *IDEOGRAPHS]
BERT_HAN: Ranges = [(0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xF900, 0xFAFF), (0x20000, 0x2A6DF)]
"""The Han characters to BERT, which sets them apart, so that they never continue a word."""
EAST_ASIAN: Ranges = [(0x2E80, 0x9FFF), (0xAC00, 0xD7AF), (0xF900, 0xFAFF), (0xFF00, 0xFFEF)]
EAST_ASIAN += [(0x20000, 0x3FFFD)]
"""The blocks of Chinese, Japanese and Korean, with their punctuation and full-width forms."""


def code_points(text: str) -> np.ndarray:
    """Return the code points of `text`, uint32 (characters,)."""
    # A text may hold half a surrogate pair, from a JSON escape.
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)


def normalise(text: str) -> str:
    """Return a text without case, width (NFKC) and white space, which tools change when they show a text."""
    return "".join(unicodedata.normalize("NFKC", text).casefold().split())


def one_of(ranges: Ranges) -> str:
    """Return a regular expression for one character of these ranges."""
    parts = [f"{re.escape(chr(first))}-{re.escape(chr(last))}" for first, last in ranges]
    return f"[{''.join(parts)}]"


def fill(table: np.ndarray, ranges: Ranges, value: int) -> None:
    """Set the entries of a table for the code points of these ranges."""
    for first, last in ranges:
        table[first : last + 1] = value


@functools.cache
def character_classes() -> np.ndarray:
    """Return the class of every code point, uint8 (0x110000,)."""
    table = np.full(0x110000, SINGLE, np.uint8)
    # The first two planes by category, two letters such as Lu. Beyond them there are only the Han characters,
    # variation selectors and private use, which have ranges below or are SINGLE.
    categories = "".join(map(unicodedata.category, map(chr, range(0x20000)))).encode()
    major, minor = np.frombuffer(categories, np.uint8).reshape(-1, 2).T
    for letter, value in (("L", WORD), ("N", WORD), ("M", MARK), ("Z", SPACE)):
        table[:0x20000][major == ord(letter)] = value
    table[:0x20000][(major == ord("C")) & (minor == ord("c"))] = SPACE
    named = [(_HAN, HAN), (_HIRAGANA, HIRAGANA), (_KATAKANA, KATAKANA), (_UNSPACED, SINGLE), (_MARKS, MARK)]
    for ranges, value in named:
        fill(table, ranges, value)
    return table


@functools.cache
def character_scripts() -> np.ndarray:
    """Return the index in SCRIPTS of every code point, or NO_SCRIPT; uint8 (0x110000,)."""
    classes = character_classes()
    table = np.full(len(classes), SCRIPTS.index("other"), np.uint8)
    table[classes == HAN] = SCRIPTS.index("Han")
    for ranges, script in ((LATIN, "Latin"), (_KANA, "kana"), (HANGUL, "Hangul")):
        fill(table, ranges, SCRIPTS.index(script))
    table[classes == SPACE] = NO_SCRIPT
    return table
