"""Compiled loops over code points: where words start, where sentences end, which of them holds a token."""

import numpy as np

from brimful.compiled import compiled
from brimful.corpus.code_points import (
    BLANK,
    CLOSER,
    DIGIT,
    EAST_ASIAN,
    FULL,
    LOWER,
    MARK,
    NO_WORD,
    SINGLE,
    SPACE,
    TERMINATOR,
    UPPER,
    ZERO_WIDTH_JOINER,
)

_LINE_BREAK, _FULL_STOP, _ELLIPSIS = ord("\n"), ord("."), ord("…")
_EMPHATIC = ord("!"), ord("?")
_BRACKETS = ord("("), ord("[")
_LOOK_AHEAD = 8
_LOOK_BACK = 32


@compiled
def word_starts_by_class(codes: np.ndarray, table: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Where words start by the classes of characters alone, and how marks join what they follow.

    Args:
        codes: code points, uint32 (characters,).
        table: `character_classes()`.

    Returns:
        which characters start a word, bool (characters,); their classes, a mark having that of the character
        that it follows, uint8 (characters,); which are such marks, bool (characters,).
    """
    starts = np.zeros(len(codes), np.bool_)
    classes = np.empty(len(codes), np.uint8)
    marks = np.zeros(len(codes), np.bool_)
    before = before_raw = SPACE
    joined = False
    for index, code in enumerate(codes):
        raw = table[code]
        own = raw
        if raw == MARK:
            own = SINGLE if before_raw == SPACE else before
            marks[index] = before_raw != SPACE
        if own != SPACE and not marks[index]:
            starts[index] = (own == SINGLE or own != before) and not joined
        classes[index] = own
        before, before_raw = own, raw
        joined = code == ZERO_WIDTH_JOINER
    return starts, classes, marks


@compiled
def spans_from(starts: np.ndarray, inside: np.ndarray) -> np.ndarray:
    """Spans that begin at each start and end before the next, or where `inside` ends; int64 (spans, 2)."""
    spans = np.empty((starts.sum(), 2), np.int64)
    number = -1
    is_open = False
    for index in range(len(starts)):
        if is_open and (starts[index] or not inside[index]):
            spans[number, 1] = index
            is_open = False
        if starts[index]:
            number += 1
            spans[number, 0] = index
            is_open = True
    if is_open:
        spans[number, 1] = len(starts)
    return spans


@compiled
def changes_of_owner(begins: np.ndarray, spans: np.ndarray) -> np.ndarray:
    """Which of the places `begins`, in order, lie in another span than the one before, bool (places,)."""
    starts = np.empty(len(begins), np.bool_)
    owner, before = 0, -1
    for index, begin in enumerate(begins):
        while owner < len(spans) and spans[owner, 1] <= begin:
            owner += 1
        starts[index] = owner != before
        before = owner
    return starts


@compiled
def cut_sentences(
    codes: np.ndarray, table: np.ndarray, abbreviations: tuple[np.ndarray, np.ndarray]
) -> np.ndarray:
    """The sentences of a text: character begin and end, int64 (sentences, 2).

    Args:
        codes: code points, uint32 (characters,).
        table: `code_points.character_traits()`.
        abbreviations: `sentences.packed_abbreviations()`.
    """
    room = 16
    spans = np.empty((room, 2), np.int64)
    count = begin = index = 0
    size = len(codes)
    while begin < size:
        while index < size and not table[codes[index]] & TERMINATOR:
            index += 1
        end = index
        if index < size:
            end += 1
            if codes[index] != _LINE_BREAK:
                while end < size and table[codes[end]] & TERMINATOR and codes[end] != _LINE_BREAK:
                    end += 1
                marks_end = end
                while end < size and table[codes[end]] & CLOSER:
                    end += 1
                if end < size and not _ends_sentence(
                    codes, table, abbreviations, begin, index, marks_end, end
                ):
                    index = end
                    continue
        first, last = begin, end
        while first < last and table[codes[first]] & BLANK:
            first += 1
        while last > first and table[codes[last - 1]] & BLANK:
            last -= 1
        if first < last:
            if count == room:
                room *= 2
                spans = np.concatenate((spans, np.empty_like(spans)))
            spans[count, 0], spans[count, 1] = first, last
            count += 1
        begin = index = end
    return spans[:count]


@compiled
def _ends_sentence(
    codes: np.ndarray, table: np.ndarray, abbreviations: tuple[np.ndarray, np.ndarray],
    begin: int, first: int, last: int, end: int,
) -> bool:  # fmt: skip
    """Do the marks `codes[first:last]`, with closers up to `end`, end the sentence that began at `begin`?"""
    emphatic = ellipsis = False
    for index in range(first, last):
        if table[codes[index]] & FULL:
            return True
        ellipsis |= codes[index] == _ELLIPSIS
        emphatic |= codes[index] in _EMPHATIC
    blank = table[codes[end]] & BLANK != 0
    if not blank and not table[codes[end]] & EAST_ASIAN:
        return ellipsis and not table[codes[end]] & LOWER  # elsewhere no blank follows: 3.14, a.b.com, x!=y
    following = end
    while following < min(end + _LOOK_AHEAD, len(codes)) and table[codes[following]] & BLANK:
        following += 1
    lower = following < min(end + _LOOK_AHEAD, len(codes)) and table[codes[following]] & LOWER != 0
    if emphatic:
        return not (blank and lower)
    if lower:
        return False
    if codes[first] != _FULL_STOP or (last > first + 1 and codes[first + 1] == _FULL_STOP):
        return True
    if not blank:  # 很好.我 ends a sentence, 3.我 does not
        return first > 0 and table[codes[first - 1]] & EAST_ASIAN != 0
    begin = max(begin, first - _LOOK_BACK)
    numbered = following < len(codes) and table[codes[following]] & DIGIT != 0
    return not (
        _is_list_number(codes, table, begin, first)
        or _is_abbreviation(codes, table, abbreviations[0], begin, first)
        or (numbered and _is_abbreviation(codes, table, abbreviations[1], begin, first))
    )


@compiled
def _is_list_number(codes: np.ndarray, table: np.ndarray, begin: int, end: int) -> bool:
    """Is this all that stands before a full stop: up to three digits, or one letter, as in `12.` or `(a.`?"""
    while begin < end and table[codes[begin]] & BLANK:
        begin += 1
    if begin < end and codes[begin] in _BRACKETS:
        begin += 1
    digits = begin
    while digits < end and table[codes[digits]] & DIGIT:
        digits += 1
    if digits == end:
        return 1 <= end - begin <= 3
    return end - begin == 1 and codes[begin] < 128 and table[codes[begin]] & (LOWER | UPPER) != 0


@compiled
def _is_abbreviation(
    codes: np.ndarray, table: np.ndarray, abbreviations: np.ndarray, begin: int, end: int
) -> bool:
    """Is the word that ends at `end` initials (`J`, `U.S`), or among the abbreviations?"""
    word = end
    while word > begin and not table[codes[word - 1]] & NO_WORD:
        word -= 1
    if word == end:
        return False
    initials = (end - word) % 2 == 1
    packed = np.uint64(0)
    for index in range(word, end):
        code = codes[index]
        if (index - word) % 2 == 0:
            initials &= code < 128 and table[code] & UPPER != 0
        else:
            initials &= code == _FULL_STOP
        if code < 128 and table[code] & UPPER:
            code += np.uint32(32)
        packed = packed << np.uint64(8) | np.uint64(min(code, np.uint32(255)))
    if initials:
        return True
    if end - word > 8:
        return False
    place = np.searchsorted(abbreviations, packed)
    return bool(place < len(abbreviations) and abbreviations[place] == packed)


@compiled
def count_scripts(
    codes: np.ndarray, begins: np.ndarray, tokens: np.ndarray, unknown: int, table: np.ndarray, scripts: int
) -> np.ndarray:
    """Characters, tokens and unknown tokens by script.

    Args:
        begins: each token's first character, int (tokens,).
        unknown: id of the unknown token, or -1.
        table: the script of every code point, or `scripts` for blanks.

    Returns:
        int64 (scripts, 3). A token of blanks alone belongs to the script of the text after it; at the end, to
        the last script.
    """
    counts = np.zeros((scripts + 1, 3), np.int64)
    for code in codes:
        counts[table[code], 0] += 1
    for index, begin in enumerate(begins):
        while begin + 1 < len(codes) and table[codes[begin]] == scripts:
            begin += 1
        script = table[codes[begin]]
        counts[script, 1] += 1
        counts[script, 2] += tokens[index] == unknown
    counts[scripts - 1, 1:] += counts[scripts, 1:]
    return counts[:scripts]
