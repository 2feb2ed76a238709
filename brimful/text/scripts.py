"""The script of a character, as far as reports about tokens need it."""

import functools

import numpy as np

from brimful.text.code_points import HAN, SPACE, character_classes

SCRIPTS = ("Han", "Latin", "kana", "Hangul", "other")
BLANK = len(SCRIPTS)
_LATIN = [(0x41, 0x5A), (0x61, 0x7A), (0xAA, 0xAA), (0xBA, 0xBA), (0xC0, 0xD6), (0xD8, 0xF6), (0xF8, 0x24F)]
_LATIN += [(0x1E00, 0x1EFF), (0xFF21, 0xFF3A), (0xFF41, 0xFF5A)]
_KANA = [(0x3041, 0x30FF), (0x31F0, 0x31FF), (0xFF66, 0xFF9F), (0x1B000, 0x1B16F)]
_HANGUL = [(0x1100, 0x11FF), (0x3131, 0x318E), (0xA960, 0xA97C), (0xAC00, 0xD7FB)]


@functools.cache
def character_scripts() -> np.ndarray:
    """The index in SCRIPTS of every code point, or BLANK; uint8 (0x110000,)."""
    classes = character_classes()
    table = np.full(len(classes), SCRIPTS.index("other"), np.uint8)
    table[classes == HAN] = SCRIPTS.index("Han")
    for ranges, script in ((_LATIN, "Latin"), (_KANA, "kana"), (_HANGUL, "Hangul")):
        for first, last in ranges:
            table[first : last + 1] = SCRIPTS.index(script)
    table[classes == SPACE] = BLANK
    return table
