"""Kernels that find the end of what is not read as markup: comments, scripts, styles, titles.

Where the end is missing, reading goes on where a page may go on: a page is worth more than a script is bad.
`endless` is the place from which on such an end is known to be missing, so that all takes linear time.

Import this module inside functions: it needs numba.
"""

from numba import njit

from brimful.corpus.cleaning.markup_names import BLOCK, SCRIPT, SHORT, WHOLE, is_letter, meaning, read_name

_LT, _GT, _SLASH, _BANG, _DASH = 60, 62, 47, 33, 45


@njit
def after_comment(data, i, endless):
    """The place after a comment, declaration or processing instruction that starts with the `<` at `i`.

    A comment without an end ends at its first `>`.

    Returns:
        (place, `endless`)
    """
    n = len(data)
    start = i
    if i < endless and i + 3 < n and data[i + 1] == _BANG and data[i + 2] == _DASH and data[i + 3] == _DASH:
        dashes = 2
        i += 4
        while i < n:
            if data[i] == _GT and dashes >= 2:
                return i + 1, endless
            if data[i] == _DASH:
                dashes += 1
            elif data[i] != _BANG or dashes < 2:
                dashes = 0
            i += 1
        i = endless = start
    while i < n and data[i] != _GT:
        i += 1
    return i + 1, endless


@njit
def after_raw(data, i, key, kind, endless):
    """The place of the end tag of the raw element named by `key`, whose content starts at `i`.

    Without one, and in a title in any case, it ends at its first block. But a script that is cut off by the
    end of the page is read to there: it may mention blocks.

    Returns:
        (place, `endless`)
    """
    n = len(data)
    start = i
    block = n
    page_ends = not kind & SCRIPT
    while i < n:
        closing = i + 1 < n and data[i + 1] == _SLASH
        if data[i] != _LT or not (closing or (block == n and i + 1 < n and is_letter(data[i + 1]))):
            i += 1
            continue
        end, found = read_name(data, i + 1 + closing)
        if closing and found == key:
            return i, endless
        what = meaning(found)
        if what & BLOCK:
            if kind & SHORT or start >= endless:
                return i, endless
            block = min(block, i)
        page_ends = page_ends or (closing and what & WHOLE)
        i = end
    return (block, start) if page_ends and block < n else (n, endless)
