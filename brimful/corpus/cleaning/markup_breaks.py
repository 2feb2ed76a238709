"""Kernels that say where a line break of a page's source means nothing: between two Chinese characters.

Import this module inside functions: it needs numba.
"""

import numpy as np
from numba import njit

# Han characters, kana, Yi, their punctuation and full-width forms: first and last code points. No Hangul.
_WIDE = np.array(
    [
        (0x2E80, 0x312F),
        (0x3190, 0xA4CF),
        (0xF900, 0xFAFF),
        (0xFE30, 0xFE4F),
        (0xFF01, 0xFF9F),
        (0xFFE0, 0xFFE5),
        (0x20000, 0x3FFFD),
    ],
    np.int64,
)
# Written within Chinese text and within others: dashes, quotes, the ellipsis.
_EITHER = np.array([0x2014, 0x2018, 0x2019, 0x201C, 0x201D, 0x2026], np.int64)


@njit
def _wideness(data, i):
    """Of the character in UTF-8 at `i`: 2 in scripts without blanks, 1 in these and others, 0 in others."""
    lead = np.int64(data[i])
    if lead < 0xE2:
        return 0
    if 0xE4 <= lead <= 0xE9:  # most of them: U+4000 to U+9FFF
        return 2
    code = (lead & 15) << 12 | np.int64(data[i + 1] & 63) << 6 | np.int64(data[i + 2] & 63)
    if lead >= 0xF0:
        code = (code << 6 | np.int64(data[i + 3] & 63)) & 0x1FFFFF
    for k in range(len(_WIDE)):
        if _WIDE[k, 0] <= code <= _WIDE[k, 1]:
            return 2
    for either in _EITHER:
        if code == either:
            return 1
    return 0


@njit
def joins(out, size, data, i):
    """Is a line break between the end of out[:size] and data[i:] none for readers, nor a blank?

    So it is in scripts that are written without blanks, of which Hangul is none (CSS Text 3, section 4.1.3).

    Args:
        out: text in UTF-8, uint8.
        size: at least 1.
        data: text in UTF-8, uint8; a character begins at `i`.
    """
    if data[i] < 0x80 or out[size - 1] < 0x80:
        return False
    last = size - 1
    while out[last] & 0xC0 == 0x80:
        last -= 1
    return _wideness(out, last) + _wideness(data, i) >= 3
