"""The scanner under `markup.py`: one pass over the bytes of a page, in time linear in its size.

It reads tags, attributes, comments and raw text as the HTML standard's tokenizer does, but builds no tree: a
bounded stack of the open blocks is all that text needs. So no nesting, misnesting or unclosed tag costs more
than another byte, where tree builders take time quadratic in the depth. Elements deeper than `DEEPEST` are
not followed: their tags go, their text stays.

Import this module inside functions: it needs numba.
"""

import numpy as np
from numba import njit

from brimful.compiled import compiled
from brimful.corpus.cleaning.markup_attributes import points_at_its_place, read_attributes
from brimful.corpus.cleaning.markup_breaks import joins
from brimful.corpus.cleaning.markup_names import (
    APART,
    BLOCK,
    CELL,
    DROP,
    FOOTER,
    GROUP,
    HEADING,
    HIDE,
    LINE,
    LINK,
    LINKS_GO,
    LISTING,
    LOOSE,
    MANY_LINKS_GO,
    PARAGRAPH,
    PRE,
    RAW,
    RUBY,
    SECTION,
    TABLE,
    VOID,
    WHOLE,
    is_blank,
    is_letter,
    meaning,
    read_name,
)
from brimful.corpus.cleaning.markup_unread import after_comment, after_raw

DEEPEST = 512
# What a scan counts.
BOILERPLATE, HIDDEN, TOO_DEEP = 0, 1, 2

_STACKED = BLOCK | CELL | DROP | HIDE | RUBY
_LT, _SLASH, _BANG, _QUESTION, _DASH, _LF = 60, 47, 33, 63, 45, 10
_SMALL_FOOTER = 2000
_FEW_LINKS, _MANY_LINKS = 2, 5
# So many elements that are left out may turn out to have no end; then all of the page is kept.
_MOST_ENDLESS = 8


@njit
def _is_pilcrow(out, begin, end):
    """Is the text of a link a sign that may stand for its own heading, # or ¶?"""
    while begin < end and is_blank(out[begin]):
        begin += 1
    if end - begin == 1:
        return out[begin] == 35
    return end - begin == 2 and out[begin] == 0xC2 and out[begin + 1] == 0xB6


@njit
def _is_custom(data, begin, end):
    """Is this the name of a custom element? They have a hyphen, and no meaning that is known."""
    for k in range(begin, end):  # noqa: SIM110  (numba compiles no generators)
        if data[k] == _DASH:
            return True
    return False


@njit
def _below_closed(keys, kinds, height, key, kind):
    """The height of the stack without what an end tag closes."""
    for k in range(height - 1, -1, -1):
        if keys[k] == key:
            return k
        cell = kinds[k] & CELL and kinds[k] & TABLE
        if (kinds[k] & BLOCK and not kind & (BLOCK | CELL | DROP)) or (cell and not kind & TABLE):
            break
    return height


@njit
def _below_implied(kinds, height, kind):
    """The height of the stack without the elements whose end a start tag implies."""
    group = kind >> GROUP
    lowest = height
    for k in range(height - 1, -1, -1):
        other = kinds[k] >> GROUP
        if group <= PARAGRAPH:
            if other == PARAGRAPH:
                return k
            if kinds[k] & (BLOCK | CELL):
                break
        elif group >= SECTION:
            if kinds[k] & LISTING and kinds[k] & TABLE:
                break
            if other >= group:
                lowest = k
        elif other == group:
            return k
        elif kinds[k] & (BLOCK | CELL | DROP | RUBY) and not kinds[k] & LOOSE and other != PARAGRAPH:
            break
    return lowest


@njit
def _is_cut_off(kinds, keys, skip, rest, has_blocks):
    """Does the end tag that leaves a stack of `rest` elements end one around the skipped one, by mistake?

    Paragraphs and items may end so, and a few words.
    """
    by_mistake = kinds[rest] & WHOLE or (has_blocks and not kinds[skip] >> GROUP)
    return keys[rest] != keys[skip] and by_mistake


def scan(data, out, counts, keep_all):
    """Write the text of a page to `out`; returns its size.

    Blocks are set apart by two line breaks, lines by one, cells by a blank; entities stay as they are. White
    space becomes one blank, or nothing where it breaks a line between two Chinese characters.

    Args:
        data: the page in UTF-8, uint8 (N,).
        out: uint8, at least (N + 2,).
        counts: int64 (3,); BOILERPLATE, HIDDEN and TOO_DEEP are added to.
        keep_all: keep hidden parts and boilerplate.
    """
    n = len(data)
    # The stack of open elements: what they are; size, links and bytes within links where they began.
    keys = np.empty(DEEPEST, np.uint64)
    kinds = np.empty(DEEPEST, np.int32)
    begins = np.empty((DEEPEST, 3), np.int64)
    height = over = 0
    i = size = pre = 0
    gap = 0  # owed before the next text: 1 white space, 2 a blank, 3 a line break, 4 two
    is_broken = False  # is a line break in the white space?
    links = linked = 0
    link = link_end = -1  # where the open link began, where the last one ended
    tag = tag_end = 0  # the attributes of the open link
    in_menu = False  # did the last link begin a block, or follow one that did?
    # The element whose content is left out, and where to go on if it never ends.
    skip, resume, resume_pre = -1, 0, 0
    has_blocks = is_cut_off = False
    endless = 0
    no_comment_ends = no_raw_ends = n  # from there on
    while True:
        if i >= n or is_cut_off:
            if skip < 0:
                return size
            counts[HIDDEN if kinds[skip] & HIDE else BOILERPLATE] -= 1
            i, height, over, pre, skip = resume, skip + 1, 0, resume_pre, -1
            is_cut_off = False
            endless += 1
            keep_all = keep_all or endless == _MOST_ENDLESS
            continue

        byte = data[i]
        follower = data[i + 1] if byte == _LT and i + 1 < n else np.uint8(32)
        closing = follower == _SLASH and i + 2 < n
        if not (closing or is_letter(follower) or follower in (_BANG, _QUESTION)):
            i += 1
            if skip >= 0:
                continue
            if is_blank(byte) and (pre == 0 or byte == 0):
                gap = max(gap, 1)
                is_broken = is_broken or byte == _LF
                continue
            if gap and size and not (gap == 1 and is_broken and joins(out, size, data, i - 1)):
                out[size] = 32 if gap <= 2 else _LF
                out[size + 1] = _LF
                size += max(gap - 2, 1)
            gap = 0
            is_broken = False
            out[size] = byte
            size += 1
            while i < n and data[i] > 32 and data[i] != _LT:  # the rest of the word, faster
                out[size] = data[i]
                size += 1
                i += 1
            continue
        if not is_letter(data[i + 1 + closing]):
            i, no_comment_ends = after_comment(data, i, no_comment_ends)
            continue

        name = i + 1 + closing
        i, key = read_name(data, name)
        name_end = i
        kind = meaning(key)
        if kind == 0 and skip < 0 and _is_custom(data, name, name_end):
            kind = np.int32(APART)
        if closing or skip >= 0:
            i, _, empty = read_attributes(data, i, np.int32(WHOLE))
        else:
            i, kind, empty = read_attributes(data, i, kind)
        if i > n:
            continue
        empty = empty or kind & VOID
        if kind & RAW:
            if not (closing or empty):
                i, no_raw_ends = after_raw(data, i, key, kind, no_raw_ends)
            continue

        if kind & LINK and skip < 0:
            if link >= 0:
                in_heading = height and kinds[height - 1] & HEADING
                if (
                    closing
                    and _is_pilcrow(out, link, size)
                    and (in_heading or points_at_its_place(data, tag, tag_end))
                ):
                    size = link
                linked += size - link
                if size > link:
                    link_end = size
                link = -1
            if not (closing or empty):
                if gap >= 3 or size == (begins[height - 1, 0] if height else 0):
                    in_menu = True
                elif size != link_end:
                    in_menu = False
                elif in_menu or gap or out[size - 1] < 128:  # Chinese goes on without a blank
                    gap = 2
                links += 1
                link = size
                tag, tag_end = name_end, i

        stacked = skip >= 0 or kind & _STACKED
        rest = height
        if closing and stacked and not empty:
            if over:
                over -= 1
            else:
                rest = _below_closed(keys, kinds, height, key, kind)
                if skip >= rest and _is_cut_off(kinds, keys, skip, rest, has_blocks):
                    is_cut_off = True
                    continue
        elif not closing and (kind & BLOCK or kind >> GROUP):
            rest = _below_implied(kinds, height, kind)
        while height > rest:
            height -= 1
            ended = kinds[height]
            if ended & PRE:
                pre -= 1
            if skip == height:
                skip = -1
            elif skip < 0 and not keep_all and ended & (LINKS_GO | MANY_LINKS_GO | FOOTER):
                text = size - begins[height, 0]
                fewest = _FEW_LINKS if ended & LINKS_GO else _MANY_LINKS
                links_only = (linked - begins[height, 2]) * 10 >= text * 6
                footer = ended & FOOTER and text <= _SMALL_FOOTER
                if text and ((links_only and links - begins[height, 1] >= fewest) or footer):
                    counts[BOILERPLATE] += 1
                    size = begins[height, 0]
                    link, link_end = min(link, size), -1

        if skip < 0:
            if kind & BLOCK:
                gap = 4
            elif kind & LINE:
                gap = 4 if gap >= 3 else 3
            elif kind & (CELL | APART):
                gap = max(gap, 2)
        if closing or empty or not stacked:
            continue
        if height == DEEPEST:
            over += 1
            counts[TOO_DEEP] += 1
            continue
        keys[height], kinds[height] = key, kind
        begins[height, 0], begins[height, 1], begins[height, 2] = size, links, linked
        if skip < 0 and kind & (DROP | HIDE) and not keep_all:
            counts[HIDDEN if kind & HIDE else BOILERPLATE] += 1
            skip, resume, resume_pre = height, i, pre
            has_blocks = False
        if kind & BLOCK:
            has_blocks = True
        if kind & PRE:
            pre += 1
        height += 1


scan = compiled(scan)
