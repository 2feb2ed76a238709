"""Find the sentences of English, Chinese and mixed text.

Punctuation ends a sentence where a space or East Asian text follows, but not after an abbreviation,
initials or a list number, nor before a lower-case letter. A line break ends a sentence, and so do 。！？；.
"""

import functools
import unicodedata

import numpy as np
from numpy import ndarray

from brimful.base.compiled import compiled
from brimful.corpus.text.characters import EAST_ASIAN as EAST_ASIAN_RANGES
from brimful.corpus.text.characters import code_points

# Traits of characters, as bits.
TERMINATOR, FULL, CLOSER, SPACE, LOWER, UPPER, DIGIT, EAST_ASIAN, NO_WORD = (1 << bit for bit in range(9))
_CASED_OR_SPACE = 0x20000
_CHARACTERS = {
    TERMINATOR: ".!?。！？；…｡\n",
    FULL: "。！？；｡",
    CLOSER: "\"'”’」』）】》〉)]»",
    EAST_ASIAN: "“‘",
    NO_WORD: "([\"'“‘",
}

_LINE_BREAK, _FULL_STOP, _ELLIPSIS = ord("\n"), ord("."), ord("…")
_EMPHATIC = ord("!"), ord("?")
_BRACKETS = ord("("), ord("[")
# Characters that are read behind and before a full stop.
_LOOK_AHEAD = 8
_LOOK_BACK = 32

# A full stop behind them, as behind initials, does not end a sentence.
_ABBREVIATIONS = (
    "mr mrs ms dr prof sr jr st vs etc al cf e.g i.e eg ie inc ltd co corp vol fig figs eq eqs sec ch "
    "p pp ed eds jan feb mar apr jun jul aug sep sept oct nov dec gen col sgt capt lt rev hon gov sen rep "
    "approx dept est a.m p.m ph.d resp ca"
)
# Abbreviations only before a digit: `No. 5`.
_BEFORE_NUMBERS = "no nos"


def sentence_spans(text: str) -> ndarray:
    """Return the sentences of `text` in order: character begin and end, int64 (sentences, 2).

    A line break ends a sentence. Whitespace between sentences is in no span.
    """
    abbreviations, before_numbers = _pack_words(_ABBREVIATIONS), _pack_words(_BEFORE_NUMBERS)
    return _cut_sentences(code_points(text), _character_traits(), abbreviations, before_numbers)


@functools.cache
def _pack_words(words: str) -> ndarray:
    """Return words as numbers that are made of their ASCII codes, sorted uint64."""
    return np.array(sorted(int.from_bytes(word.encode()) for word in words.split()), np.uint64)


@functools.cache
def _character_traits() -> ndarray:
    """Return the traits of every code point, uint16 (0x110000,)."""
    table = np.zeros(0x110000, np.uint16)
    for code in range(_CASED_OR_SPACE):
        character = chr(code)
        if character.isspace():
            table[code] = SPACE | NO_WORD
        elif character.islower():
            table[code] = LOWER
        elif character.isupper():
            table[code] = UPPER
        elif unicodedata.category(character) == "Nd":
            table[code] = DIGIT
    for trait, characters in _CHARACTERS.items():
        for character in characters:
            table[ord(character)] |= trait
    for first, last in EAST_ASIAN_RANGES:
        table[first : last + 1] |= EAST_ASIAN
    return table


@compiled
def _skip(codes: ndarray, table: ndarray, place: int, end: int, trait: int) -> int:
    """Return the first place from `place` on whose character lacks a trait, or `end`."""
    while place < end and table[codes[place]] & trait:
        place += 1
    return place


@compiled
def _cut_sentences(
    codes: ndarray, table: ndarray, abbreviations: ndarray, before_numbers: ndarray
) -> ndarray:
    """Return the sentences of a text: character begin and end, int64 (sentences, 2).

    Args:
        codes: code points, uint32 (characters,).
        table: `_character_traits()`.
        abbreviations, before_numbers: the abbreviations, by `_pack_words`.
    """
    room = 16
    spans = np.empty((room, 2), np.int64)
    count = begin = index = 0
    size = len(codes)
    while begin < size:
        # Go to the next mark, then beyond all marks that follow, and beyond quotes and brackets that close.
        while index < size and not table[codes[index]] & TERMINATOR:
            index += 1
        end = index
        if index < size:
            end += 1
            if codes[index] != _LINE_BREAK:
                while end < size and table[codes[end]] & TERMINATOR and codes[end] != _LINE_BREAK:
                    end += 1
                marks_end = end
                end = _skip(codes, table, end, size, CLOSER)
                if end < size and not _ends_sentence(
                    codes, table, abbreviations, before_numbers, begin, index, marks_end, end
                ):
                    index = end
                    continue
        # Spaces around the sentence are in no span.
        first, last = _skip(codes, table, begin, end, SPACE), end
        while last > first and table[codes[last - 1]] & SPACE:
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
    codes: ndarray, table: ndarray, abbreviations: ndarray, before_numbers: ndarray,
    begin: int, first: int, last: int, end: int,
) -> bool:  # fmt: skip
    """Whether marks from `first` to `last`, with closers up to `end`, end the sentence from `begin`."""
    emphatic = ellipsis = False
    for index in range(first, last):
        if table[codes[index]] & FULL:
            return True
        ellipsis |= codes[index] == _ELLIPSIS
        emphatic |= codes[index] in _EMPHATIC
    spaced = table[codes[end]] & SPACE != 0
    if not spaced and not table[codes[end]] & EAST_ASIAN:
        # No space follows either in 3.14, a.b.com or x!=y.
        return ellipsis and not table[codes[end]] & LOWER
    limit = min(end + _LOOK_AHEAD, len(codes))
    following = _skip(codes, table, end, limit, SPACE)
    lower = following < limit and table[codes[following]] & LOWER != 0
    if emphatic:
        return not (spaced and lower)
    if lower:
        return False
    # Not a single full stop: ..., …, ;
    if codes[first] != _FULL_STOP or (last > first + 1 and codes[first + 1] == _FULL_STOP):
        return True
    if not spaced:  # 很好.我 ends a sentence, 3.我 does not
        return first > 0 and table[codes[first - 1]] & EAST_ASIAN != 0
    begin = max(begin, first - _LOOK_BACK)
    numbered = following < len(codes) and table[codes[following]] & DIGIT != 0
    return not (
        _is_list_number(codes, table, begin, first)
        or _is_abbreviation(codes, table, abbreviations, begin, first)
        or (numbered and _is_abbreviation(codes, table, before_numbers, begin, first))
    )


@compiled
def _is_list_number(codes: ndarray, table: ndarray, begin: int, end: int) -> bool:
    """Whether only up to three digits or a letter stand before a full stop, as in `12.` or `(a.`."""
    begin = _skip(codes, table, begin, end, SPACE)
    if begin < end and codes[begin] in _BRACKETS:
        begin += 1
    if _skip(codes, table, begin, end, DIGIT) == end:
        return 1 <= end - begin <= 3
    return end - begin == 1 and codes[begin] < 128 and table[codes[begin]] & (LOWER | UPPER) != 0


@compiled
def _is_abbreviation(codes: ndarray, table: ndarray, abbreviations: ndarray, begin: int, end: int) -> bool:
    """Whether the word that ends at `end` is initials (`J`, `U.S`) or an abbreviation."""
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
            code += np.uint32(32)  # in lower case
        packed = packed << np.uint64(8) | np.uint64(min(code, np.uint32(255)))
    if initials:
        return True
    if end - word > 8:
        return False  # more than a uint64 packs
    place = np.searchsorted(abbreviations, packed)
    return bool(place < len(abbreviations) and abbreviations[place] == packed)
