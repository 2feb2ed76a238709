"""Kernels that read the attributes of a tag, and what they say of an element.

Import this module inside functions: it needs numba.
"""

import numpy as np
from numba import njit

from brimful.corpus.cleaning.markup_names import BLOCK, DROP, FOOTER, HIDE, LINKS_GO, WHOLE, is_blank


def _word(text: str) -> np.ndarray:
    return np.frombuffer(text.encode(), np.uint8)


_HIDDEN, _STYLE, _ROLE, _ARIA_HIDDEN, _CLASS, _ID = map(
    _word, ["hidden", "style", "role", "aria-hidden", "class", "id"]
)
_TRUE, _NAVIGATION, _SEARCH, _FOOTER_CLASS = map(_word, ["true", "navigation", "search", "footer"])
_DISPLAY, _NONE, _VISIBILITY = map(_word, ["display", "none", "visibility"])
_NAV_CLASSES = tuple(map(_word, ["nav", "menu", "breadcrumb", "sidebar", "pagination", "page-links"]))
# What names the links that point at their own heading.
_PERMALINK_CLASSES = tuple(map(_word, ["permalink", "headerlink", "anchor"]))
_LONGEST_NAME = len(_ARIA_HIDDEN)

_GT, _SLASH, _EQUALS, _HASH = 62, 47, 61, 35
_QUOTES = (34, 39)


@njit
def _starts(data, begin, end, word):
    """Does data[begin:end] start with `word`, in any case?"""
    if end - begin < len(word):
        return False
    for k in range(len(word)):
        byte = data[begin + k]
        if (byte | 32 if 65 <= byte <= 90 else byte) != word[k]:
            return False
    return True


@njit
def _equals(data, begin, end, word):
    return end - begin == len(word) and _starts(data, begin, end, word)


@njit
def _contains(data, begin, end, word):
    for k in range(begin, end - len(word) + 1):  # noqa: SIM110  (numba compiles no generators)
        if _starts(data, k, end, word):
            return True
    return False


@njit
def _declares(data, begin, end, name, value):
    """Does a style attribute hold `name: value`?"""
    for k in range(begin, end - len(name) + 1):
        if _starts(data, k, end, name):
            after = k + len(name)
            while after < end and (is_blank(data[after]) or data[after] == 58):
                after += 1
            if _starts(data, after, end, value):
                return True
    return False


@njit
def _has_token(data, begin, end, word):
    """Is `word` one of the words of a class attribute?"""
    for k in range(begin, end - len(word) + 1):
        after = k + len(word)
        if (
            (k == begin or is_blank(data[k - 1]))
            and (after == end or is_blank(data[after]))
            and _starts(data, k, after, word)
        ):
            return True
    return False


@njit
def _said(data, name, name_end, begin, end, kind):
    """What an attribute adds to the kind of its element: HIDE, DROP, LINKS_GO, FOOTER or nothing."""
    if _equals(data, name, name_end, _HIDDEN):
        return HIDE
    if _equals(data, name, name_end, _STYLE):
        if _declares(data, begin, end, _DISPLAY, _NONE) or _declares(data, begin, end, _VISIBILITY, _HIDDEN):
            return HIDE
    elif _equals(data, name, name_end, _ROLE):
        if _equals(data, begin, end, _NAVIGATION) or _equals(data, begin, end, _SEARCH):
            return DROP
    elif _equals(data, name, name_end, _ARIA_HIDDEN):
        # On a block it may only mean that a dialog was open over the page; inline it is decoration or a copy.
        if not kind & BLOCK and _equals(data, begin, end, _TRUE):
            return HIDE
    elif kind & BLOCK and (_equals(data, name, name_end, _CLASS) or _equals(data, name, name_end, _ID)):
        if _has_token(data, begin, end, _FOOTER_CLASS):
            return FOOTER
        for word in _NAV_CLASSES:
            if _contains(data, begin, end, word):
                return LINKS_GO
    return 0


@njit
def read_attributes(data, i, kind):
    """Read the rest of a tag: (place after it, kind with what its attributes say, is it self-closing?)."""
    n = len(data)
    slash = False
    while i < n and data[i] != _GT:
        if is_blank(data[i]) or data[i] == _SLASH:
            slash = data[i] == _SLASH or slash
            i += 1
            continue
        slash = False
        name = i
        i += 1
        while i < n and not (is_blank(data[i]) or data[i] == _SLASH or data[i] == _GT or data[i] == _EQUALS):
            i += 1
        name_end = i
        while i < n and is_blank(data[i]):
            i += 1
        begin = end = i
        if i < n and data[i] == _EQUALS:
            i += 1
            while i < n and is_blank(data[i]):
                i += 1
            begin = i
            if i < n and data[i] in _QUOTES:
                begin = i + 1
                i += 1
                while i < n and data[i] != data[begin - 1]:
                    i += 1
                end = i
                i += 1
            else:
                while i < n and not (is_blank(data[i]) or data[i] == _GT):
                    i += 1
                end = i
        if not kind & WHOLE and name_end - name <= _LONGEST_NAME:
            kind |= _said(data, name, name_end, begin, end, kind)
    return i + 1, kind, slash


@njit
def points_at_its_place(data, begin, end):
    """Do the attributes data[begin:end] of a link say that it points into its own page?"""
    for k in range(begin + 1, end):
        if data[k] == _HASH and (data[k - 1] == _EQUALS or data[k - 1] in _QUOTES):
            return True
        for word in _PERMALINK_CLASSES:
            if _starts(data, k, end, word):
                return True
    return False
