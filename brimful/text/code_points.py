"""Texts as arrays of code points, and a table of what each code point is to words."""

import functools
import unicodedata

import numpy as np

# Classes of characters, as words see them.
SPACE, WORD, HAN, HIRAGANA, KATAKANA, SINGLE, MARK = range(7)

_HAN = [(0x2E80, 0x2FDF), (0x3005, 0x3005), (0x3007, 0x3007), (0x3021, 0x3029), (0x3400, 0x4DBF)]
_HAN += [(0x4E00, 0x9FFF), (0xF900, 0xFAFF), (0x20000, 0x3FFFD)]
_HIRAGANA = [(0x3041, 0x3096), (0x309D, 0x309F)]
_KATAKANA = [(0x30A1, 0x30FA), (0x30FD, 0x30FF), (0x31F0, 0x31FF), (0xFF66, 0xFF9D)]
# Scripts without blanks and without a segmenter here: each letter with its marks is a word.
_UNSPACED = [(0x0E01, 0x0E30), (0x0E32, 0x0E33), (0x0E40, 0x0E46), (0x0E80, 0x0EB0), (0x0EC0, 0x0EC6)]
_UNSPACED += [(0x1000, 0x102A), (0x1780, 0x17B3)]
# The prolonged sound mark, joiners, emoji skin tones and variation selectors stay with what they follow.
_MARKS = [(0x30FC, 0x30FC), (0xFF70, 0xFF70), (0x200C, 0x200D), (0x1F3FB, 0x1F3FF), (0xE0100, 0xE01EF)]


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
