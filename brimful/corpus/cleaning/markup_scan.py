"""The scanner under `markup.py`: one pass over the bytes of a page, in time linear in its size.

It reads tags, attributes, comments and raw text as the HTML standard's tokenizer does, but builds no tree: a
bounded stack of the open blocks is all that text needs. So no nesting, misnesting or unclosed tag costs more
than another byte, where tree builders take time quadratic in the depth. Elements deeper than `DEEPEST` are
not followed: their tags go, their text stays.

Import this module inside functions: it needs numba.
"""

import numpy as np

from brimful.compiled import compiled

DEEPEST = 512
# What a scan counts.
BOILERPLATE, HIDDEN, TOO_DEEP = 0, 1, 2

# What the name of an element says.
BLOCK = 1  # begins and ends a paragraph
LINE = 2  # ends a line
CELL = 4  # is set apart by a blank
VOID = 8  # has no content
RAW = 16  # holds no markup and no text for readers
DROP = 32  # holds no text of the page's own
HIDE = 8192  # is not shown
LOOSE = 32768  # does not keep a list item open
LINK = 64
PRE = 128  # keeps its line breaks
LISTING = 256  # bounds the elements whose end may be left out
TABLE = 512
LINKS_GO = 1024  # boilerplate if it consists of links
MANY_LINKS_GO = 16384  # boilerplate if it consists of many links
FOOTER = 2048  # boilerplate if it is small
WHOLE = 4096  # the page itself, whatever its attributes say
# Elements whose end tag may be left out end where one of their group begins, in tables also one above.
PARAGRAPH, ITEM, DEFINITION, SECTION, ROW, DATA = 1, 2, 3, 4, 5, 6
_GROUP = 16

_NAMES = {
    BLOCK: (
        "blockquote center details dialog fieldset figcaption figure form h1 h2 h3 h4"
        " h5 h6 head hgroup legend optgroup search section summary"
    ),
    BLOCK | LOOSE: "address div",
    BLOCK | WHOLE: "article body html main",
    BLOCK | VOID: "hr",
    BLOCK | PRE: "pre listing xmp",
    BLOCK | LISTING: "dir dl menu ol ul",
    BLOCK | LISTING | TABLE: "table",
    BLOCK | MANY_LINKS_GO: "aside header",
    BLOCK | DROP: "nav footer",
    BLOCK | PARAGRAPH << _GROUP: "p",
    BLOCK | ITEM << _GROUP: "li",
    BLOCK | DEFINITION << _GROUP: "dd dt",
    BLOCK | TABLE: "caption",
    BLOCK | TABLE | SECTION << _GROUP: "tbody tfoot thead",
    BLOCK | TABLE | ROW << _GROUP: "tr",
    CELL | TABLE | DATA << _GROUP: "td th",
    CELL: "button label option textarea",
    LINE | VOID: "br",
    VOID: "area base basefont bgsound col embed frame img input keygen link meta param source track wbr",
    RAW: "iframe noembed noframes script style title",
    DROP: "annotation annotation-xml audio canvas datalist noscript select svg template video",
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


def _word(text: str) -> np.ndarray:
    return np.frombuffer(text.encode(), np.uint8)


_HIDDEN, _STYLE, _ROLE, _ARIA_HIDDEN, _CLASS, _ID = map(
    _word, ["hidden", "style", "role", "aria-hidden", "class", "id"]
)
_TRUE, _NAVIGATION, _SEARCH, _FOOTER_CLASS = map(_word, ["true", "navigation", "search", "footer"])
_DISPLAY, _NONE, _VISIBILITY = map(_word, ["display", "none", "visibility"])
_NAV_CLASSES = tuple(map(_word, ["nav", "menu", "breadcrumb", "sidebar", "pagination", "page-links"]))

_LT, _GT, _SLASH, _EQUALS, _BANG, _DASH, _LF = 60, 62, 47, 61, 33, 45, 10
_SMALL_FOOTER = 2000
_FEW_LINKS, _MANY_LINKS = 2, 5


@compiled
def _is_blank(byte):
    return byte == 32 or 9 <= byte <= 13 or byte == 0


@compiled
def _is_letter(byte):
    return 97 <= byte | 32 <= 122


@compiled
def _starts(data, begin, end, word):
    """Does data[begin:end] start with `word`, in any case?"""
    if end - begin < len(word):
        return False
    for k in range(len(word)):
        byte = data[begin + k]
        if (byte | 32 if 65 <= byte <= 90 else byte) != word[k]:
            return False
    return True


@compiled
def _equals(data, begin, end, word):
    return end - begin == len(word) and _starts(data, begin, end, word)


@compiled
def _contains(data, begin, end, word):
    for k in range(begin, end - len(word) + 1):  # noqa: SIM110  (numba compiles no generators)
        if _starts(data, k, end, word):
            return True
    return False


@compiled
def _declares(data, begin, end, name, value):
    """Does a style attribute hold `name: value`?"""
    for k in range(begin, end - len(name) + 1):
        if _starts(data, k, end, name):
            after = k + len(name)
            while after < end and (_is_blank(data[after]) or data[after] == 58):
                after += 1
            if _starts(data, after, end, value):
                return True
    return False


@compiled
def _has_token(data, begin, end, word):
    """Is `word` one of the words of a class attribute?"""
    for k in range(begin, end - len(word) + 1):
        after = k + len(word)
        if (
            (k == begin or _is_blank(data[k - 1]))
            and (after == end or _is_blank(data[after]))
            and _starts(data, k, after, word)
        ):
            return True
    return False


@compiled
def _meaning(key):
    slot = key % np.uint64(_SLOTS)
    while _KEYS[slot] != 0:
        if _KEYS[slot] == key:
            return _VALUES[slot]
        slot = (slot + np.uint64(1)) % np.uint64(_SLOTS)
    return np.int32(0)


@compiled
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


@compiled
def _read_attributes(data, i, kind):
    """Read the rest of a tag: (place after it, kind with what its attributes say, is it self-closing?)."""
    n = len(data)
    slash = False
    while i < n and data[i] != _GT:
        if _is_blank(data[i]) or data[i] == _SLASH:
            slash = data[i] == _SLASH or slash
            i += 1
            continue
        slash = False
        name = i
        i += 1
        while i < n and not (_is_blank(data[i]) or data[i] == _SLASH or data[i] == _GT or data[i] == _EQUALS):
            i += 1
        name_end = i
        while i < n and _is_blank(data[i]):
            i += 1
        begin = end = i
        if i < n and data[i] == _EQUALS:
            i += 1
            while i < n and _is_blank(data[i]):
                i += 1
            begin = i
            if i < n and (data[i] == 34 or data[i] == 39):
                begin = i + 1
                i += 1
                while i < n and data[i] != data[begin - 1]:
                    i += 1
                end = i
                i += 1
            else:
                while i < n and not (_is_blank(data[i]) or data[i] == _GT):
                    i += 1
                end = i
        if not kind & WHOLE and name_end - name <= 11:
            kind |= _said(data, name, name_end, begin, end, kind)
    return i + 1, kind, slash


@compiled
def _after_comment(data, i):
    """The place after a comment, declaration or processing instruction that starts with the `<` at `i`."""
    n = len(data)
    if i + 3 < n and data[i + 1] == _BANG and data[i + 2] == _DASH and data[i + 3] == _DASH:
        dashes = 2
        i += 4
        while i < n:
            if data[i] == _GT and dashes >= 2:
                return i + 1
            if data[i] == _DASH:
                dashes += 1
            elif data[i] != _BANG or dashes < 2:
                dashes = 0
            i += 1
        return n
    while i < n and data[i] != _GT:
        i += 1
    return i + 1


@compiled
def _after_raw(data, i, key):
    """The place of the end tag of the raw element named by `key`, or the end of the data."""
    n = len(data)
    while i < n:
        if data[i] == _LT and i + 1 < n and data[i + 1] == _SLASH:
            end, found = _read_name(data, i + 2)
            if found == key:
                return i
            i = end
        else:
            i += 1
    return n


@compiled
def _read_name(data, i):
    """(place after a tag's name, hash of the name in lower case)."""
    key = _OFFSET
    while i < len(data):
        byte = data[i]
        if _is_blank(byte) or byte in (_SLASH, _GT, _LT):
            break
        key = (key ^ np.uint64(byte | 32 if 65 <= byte <= 90 else byte)) * _PRIME
        i += 1
    return i, key


@compiled
def _is_pilcrow(out, begin, end):
    """Is this the text of a link that only points at its own heading?"""
    while begin < end and _is_blank(out[begin]):
        begin += 1
    if end - begin == 1:
        return out[begin] == 35
    return end - begin == 2 and out[begin] == 0xC2 and out[begin + 1] == 0xB6


@compiled
def _below_closed(keys, kinds, height, key, kind):
    """The height of the stack without what an end tag closes."""
    for k in range(height - 1, -1, -1):
        if keys[k] == key:
            return k
        cell = kinds[k] & CELL and kinds[k] & TABLE
        if (kinds[k] & BLOCK and not kind & (BLOCK | CELL | DROP)) or (cell and not kind & TABLE):
            break
    return height


@compiled
def _below_implied(kinds, height, kind):
    """The height of the stack without the elements whose end a start tag implies."""
    group = kind >> _GROUP
    lowest = height
    for k in range(height - 1, -1, -1):
        other = kinds[k] >> _GROUP
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
        elif kinds[k] & (BLOCK | CELL | DROP) and not kinds[k] & LOOSE and other != PARAGRAPH:
            break
    return lowest


@compiled
def scan(data, out, counts, keep_all):
    """Write the text of a page to `out`; returns its size.

    Blocks are set apart by two line breaks, lines by one, cells by a blank; entities stay as they are.

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
    gap = 0  # owed before the next text: 1 a blank, 2 a line break, 3 two
    links = linked = 0
    link = link_end = -1  # where the open link began, where the last one ended
    # The element whose content is left out, and where to go on if it never ends.
    skip, resume, resume_pre = -1, 0, 0
    while True:
        if i >= n:
            if skip < 0:
                return size
            counts[HIDDEN if kinds[skip] & HIDE else BOILERPLATE] -= 1
            i, height, over, pre, skip, keep_all = resume, skip + 1, 0, resume_pre, -1, True
            continue

        byte = data[i]
        follower = data[i + 1] if byte == _LT and i + 1 < n else np.uint8(32)
        closing = follower == _SLASH and i + 2 < n
        if not (closing or _is_letter(follower) or follower == _BANG or follower == 63):
            i += 1
            if skip >= 0:
                continue
            if _is_blank(byte) and (pre == 0 or byte == 0):
                gap = max(gap, 1)
                continue
            if gap and size:
                out[size] = 32 if gap == 1 else _LF
                out[size + 1] = _LF
                size += max(gap - 1, 1)
            gap = 0
            out[size] = byte
            size += 1
            continue
        if not _is_letter(data[i + 1 + closing]):
            i = _after_comment(data, i)
            continue

        i, key = _read_name(data, i + 1 + closing)
        kind = _meaning(key)
        if closing or skip >= 0:
            i, _, empty = _read_attributes(data, i, np.int32(WHOLE))
        else:
            i, kind, empty = _read_attributes(data, i, kind)
        if i > n:
            continue
        empty = empty or kind & VOID
        if kind & RAW:
            if not (closing or empty):
                i = _after_raw(data, i, key)
            continue

        if kind & LINK and skip < 0:
            if link >= 0:
                if closing and _is_pilcrow(out, link, size):
                    size = link
                linked += size - link
                link = -1
                link_end = size
            if not (closing or empty):
                if link_end == size and size:
                    gap = max(gap, 1)
                links += 1
                link = size

        stacked = skip >= 0 or kind & (BLOCK | CELL | DROP | HIDE)
        rest = height
        if closing and stacked and not empty:
            if over:
                over -= 1
            else:
                rest = _below_closed(keys, kinds, height, key, kind)
        elif not closing and kind & (BLOCK | CELL):
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
                gap = 3
            elif kind & LINE:
                gap = 3 if gap >= 2 else 2
            elif kind & CELL:
                gap = max(gap, 1)
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
        if kind & PRE:
            pre += 1
        height += 1
