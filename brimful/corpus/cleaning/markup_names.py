"""What the names of elements say, and the kernels that read a name.

Import this module inside functions: it needs numba.
"""

import numpy as np
from numba import njit

BLOCK = 1 << 0  # begins and ends a paragraph
LINE = 1 << 1  # ends a line
CELL = 1 << 2  # is set apart by a blank, and bounds what is in it
APART = 1 << 3  # is set apart by a blank
VOID = 1 << 4  # has no content
RAW = 1 << 5  # holds no markup and no text for readers
SHORT = 1 << 6  # is raw, and no block is in it
SCRIPT = 1 << 7  # is raw, and may mention any tag
DROP = 1 << 8  # holds no text of the page's own
HIDE = 1 << 9  # is not shown
LOOSE = 1 << 10  # does not keep a list item open
LINK = 1 << 11
HEADING = 1 << 12
RUBY = 1 << 13  # holds characters and how they are read
PRE = 1 << 14  # keeps its line breaks
LISTING = 1 << 15  # bounds the elements whose end may be left out
TABLE = 1 << 16
LINKS_GO = 1 << 17  # boilerplate if it consists of links
MANY_LINKS_GO = 1 << 18  # boilerplate if it consists of many links
FOOTER = 1 << 19  # boilerplate if it is small
WHOLE = 1 << 20  # the page itself, whatever its attributes say
# Elements whose end tag may be left out end where one of their group begins, in tables also one above.
GROUP = 24
PARAGRAPH, ITEM, DEFINITION, READING, SECTION, ROW, DATA = 1, 2, 3, 4, 5, 6, 7

_NAMES = {
    BLOCK: (
        "blockquote center details dialog fieldset figcaption figure form head hgroup legend optgroup search"
        " section summary"
    ),
    BLOCK | HEADING: "h1 h2 h3 h4 h5 h6",
    BLOCK | LOOSE: "address div",
    BLOCK | WHOLE: "article body html main",
    BLOCK | VOID: "hr",
    BLOCK | PRE: "pre listing xmp",
    BLOCK | LISTING: "dir dl menu ol ul",
    BLOCK | LISTING | TABLE: "table",
    BLOCK | MANY_LINKS_GO: "aside header",
    BLOCK | DROP: "nav footer",
    BLOCK | PARAGRAPH << GROUP: "p",
    BLOCK | ITEM << GROUP: "li",
    BLOCK | DEFINITION << GROUP: "dd dt",
    BLOCK | TABLE: "caption",
    BLOCK | TABLE | SECTION << GROUP: "tbody tfoot thead",
    BLOCK | TABLE | ROW << GROUP: "tr",
    CELL | TABLE | DATA << GROUP: "td th",
    APART: "button label option textarea",
    LINE | VOID: "br",
    VOID: "area base basefont bgsound col embed frame img input keygen link meta param source track wbr",
    RAW: "style",
    RAW | SHORT: "iframe title",
    RAW | SCRIPT: "script",
    DROP: (
        "annotation annotation-xml audio canvas datalist noembed noframes noscript select svg template video"
    ),
    DROP | READING << GROUP: "rp rt rtc",
    RUBY: "ruby",
    LINK: "a",
}
_OFFSET, _PRIME = np.uint64(0xCBF29CE484222325), np.uint64(0x100000001B3)  # FNV-1a
_SLOTS = 1024


def _table() -> tuple[np.ndarray, np.ndarray]:
    """Open-addressed table: hash of a name -> what it says."""
    keys, values = np.zeros(_SLOTS, np.uint64), np.zeros(_SLOTS, np.int32)
    for value, names in _NAMES.items():
        for name in names.split():
            key = int(_OFFSET)
            for byte in name.encode():
                key = (key ^ byte) * int(_PRIME) % 2**64
            slot = key % _SLOTS
            while keys[slot]:
                slot = (slot + 1) % _SLOTS
            keys[slot], values[slot] = key, value
    return keys, values


_KEYS, _VALUES = _table()


@njit
def is_blank(byte):
    """Is this a byte that separates attributes? U+0000 is taken for a blank."""
    return byte == 32 or 9 <= byte <= 13 or byte == 0


@njit
def is_letter(byte):
    """Is this an ASCII letter?"""
    return 97 <= byte | 32 <= 122


@njit
def read_name(data, i):
    """(place after a tag's name, hash of the name in lower case)."""
    key = _OFFSET
    while i < len(data):
        byte = data[i]
        if is_blank(byte) or byte in (47, 60, 62):  # / < >
            break
        key = (key ^ np.uint64(byte | 32 if 65 <= byte <= 90 else byte)) * _PRIME
        i += 1
    return i, key


@njit
def meaning(key):
    """What a name says, by its hash: int32, 0 for unknown names."""
    slot = key % np.uint64(_SLOTS)
    while _KEYS[slot] != 0:
        if _KEYS[slot] == key:
            return _VALUES[slot]
        slot = (slot + np.uint64(1)) % np.uint64(_SLOTS)
    return np.int32(0)
