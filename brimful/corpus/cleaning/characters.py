"""Rules for characters, and a survey of a text's characters: rules that it shows to have no work are skipped.

Each rule returns (text, number of changes).
"""

import functools
import re
import sys
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from operator import ne
from typing import Any

import numpy as np
from numpy import ndarray

from brimful.base.environment import require_packages
from brimful.corpus.text.characters import code_points, text_of

# Bits that a survey finds.
UNWANTED = 1
INVISIBLE = 2
LINE_BREAK = 4  # a line break other than a line feed
OTHER_BLANK = 8  # whitespace other than a space or a line feed
BLANK_RUN = 16
TOKEN = 32  # a token that looks like a hash or base64
DECLARATION = 64  # `{` or `;`, a name in lower case and a colon, as in style sheets
# Further properties of a character.
_BLANK, _SYMBOL, _IN_TOKEN, _DIGIT, _UPPER, _LOWER, _HEX_LETTER, _NOT_HEX = (1 << k for k in range(7, 15))
SHORTEST_HEX, SHORTEST_BASE64 = 16, 32

_NONCHARACTERS = "".join(f"{chr(p | 0xFFFE)}{chr(p | 0xFFFF)}" for p in range(0x10000, 0xF0000, 0x10000))
CLASSES = {
    UNWANTED: "\x00-\x08\x0e-\x1f\x7f-\x84\x86-\x9f\ud800-\uf8ff\ufdd0-\ufdef\ufff0-\uffff"
    f"{_NONCHARACTERS}\U000f0000-\U0010ffff",
    INVISIBLE: "\u00ad\u200b\u200e\u200f\u202a-\u202e\u2060-\u2069\ufeff",
    LINE_BREAK: "\r\x0b\f\x85\u2028\u2029",
    OTHER_BLANK: r"^\S\n ",
    _BLANK: r"\s",
    # Punctuation, symbols and emoji; not marks, which many scripts need within words.
    _SYMBOL: "!-/:-@\\[-`{-~"
    "\u00a1-\u00a9\u00ab-\u00b1\u00b4\u00b6-\u00b8\u00bb\u00bf\u00d7\u00f7\u2010-\u2027"
    "\u2030-\u205e\u20a0-\u20cf\u2100-\u2bff\u3001-\u3004\u3008-\u3020\u3030\ufe10-\ufe1f\ufe30-\ufe6f"
    "\uff01-\uff0f\uff1a-\uff20\uff3b-\uff40\uff5b-\uff65\uffe0-\uffee\U0001f000-\U0001faff",
    _IN_TOKEN: "A-Za-z0-9+/=_-",
    _DIGIT: "0-9",
    _UPPER: "A-Z",
    _LOWER: "a-z",
    _HEX_LETTER: "A-Fa-f",
    _NOT_HEX: "G-Zg-z+/=_",
}


def _replacing(pattern: str, replacement: str) -> Callable[[str], tuple[str, int]]:
    return functools.partial(re.compile(pattern).subn, replacement)


unify_line_breaks = _replacing(f"\r\n|[{CLASSES[LINE_BREAK]}]", "\n")
"""The line ends of all systems, form feeds and Unicode's separators become line feeds."""
blank_unwanted = _replacing(f"[{CLASSES[UNWANTED]}]", " ")
"""Control, private-use and replacement characters, lone surrogates and noncharacters become spaces."""
blank_surrogates = _replacing("[\ud800-\udfff]", " ")
"""Lone surrogates, which no file can hold, become spaces."""
drop_invisible = _replacing(f"[{CLASSES[INVISIBLE]}]", "")
"""Soft hyphens, zero-width spaces and direction marks are dropped. Joiners, which emoji need, stay."""

# Unicode's stream-safe text format (UAX #15). Normalization takes quadratic time on longer runs of marks.
_LONGEST_MARK_RUN = 30


@dataclass(frozen=True)
class Survey:
    """The bits that occur in a text, and its share of symbols, 0 to 1.

    A run of symbols, such as a ruler or a dot leader, counts as one.
    """

    bits_found: int
    symbol_share: float


def survey(text: str) -> Survey:
    """Find the bits and the runs of symbols of a text, in one pass over its characters."""
    bits_found, symbol_runs, others = _compiled(_look)(code_points(text), _table())
    return Survey(bits_found, symbol_runs / max(symbol_runs + others, 1))


def squeeze_blanks(text: str) -> tuple[str, int]:
    """Turn each run of whitespace into a line break if it has one, else a space; count dropped characters."""
    codes = code_points(text)
    out = np.empty_like(codes)
    size = _compiled(_squeeze)(codes, _table(), out)
    return text_of(out[:size]), len(text) - size


@functools.cache
def _table() -> ndarray:
    """Return the bits of each code point of the first two planes, int32 (131072,)."""
    table = np.zeros(1 << 17, np.int32)
    characters = "".join(map(chr, range(len(table))))
    for bit, members in CLASSES.items():
        for match in re.finditer(f"[{members}]+", characters):
            table[match.start() : match.end()] |= bit
    return table


def _look(codes: ndarray, table: ndarray) -> tuple[int, int, int]:
    bits_found = runs = others = 0
    blank = symbol = False
    size = kinds = 0  # of the token so far
    name = 0  # 1 behind { or ; and 2 within a name there
    for place in range(len(codes) + 1):
        code = codes[place] if place < len(codes) else np.uint32(10)  # a line feed ends the last token
        if code < len(table):
            bits = table[code]
        else:  # the higher planes hold hardly any characters
            bits = np.int32(UNWANTED if code >= 0xF0000 or code & 0xFFFE == 0xFFFE else 0)
        if bits & _IN_TOKEN:
            size += 1
            kinds |= bits
        elif size:
            if size >= SHORTEST_HEX and kinds & _DIGIT:
                if not kinds & _NOT_HEX:
                    bits_found |= TOKEN if kinds & _HEX_LETTER else 0
                elif kinds & _LOWER and (size >= SHORTEST_BASE64 or not kinds & _UPPER):
                    bits_found |= TOKEN
            size = kinds = 0
        if place == len(codes):
            break
        bits_found |= bits
        if bits & _BLANK:
            if blank:
                bits_found |= BLANK_RUN
            blank, symbol = True, False
            continue
        blank = False
        if not bits & _SYMBOL:
            others += 1
        elif not symbol:
            runs += 1
        symbol = bits & _SYMBOL != 0
        if code == 59 or code == 123:
            name = 1
        elif name:
            if bits & _LOWER or code == 45:
                name = 2
            else:
                if code == 58 and name == 2:
                    bits_found |= DECLARATION
                name = 0
    return bits_found, runs, others


def _squeeze(codes: ndarray, table: ndarray, out: ndarray) -> int:
    size = 0
    owed = 0  # whitespace
    for code in codes:
        if code < len(table) and table[code] & _BLANK:
            if owed != 10:
                owed = 10 if code == 10 else 32
            continue
        if owed and size:
            out[size] = owed
            size += 1
        owed = 0
        out[size] = code
        size += 1
    return size


@functools.cache
def _compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    from brimful.base.compiled import compiled

    return compiled(function)


def to_nfkc(text: str) -> tuple[str, int]:
    """Normalize to NFKC; count texts, not characters. The first 30 of a run of combining marks stay."""
    if not text.isascii():
        text = _excess_marks().sub(r"\1", text)
    if unicodedata.is_normalized("NFKC", text):
        return text, 0
    return unicodedata.normalize("NFKC", text), 1


@functools.cache
def _excess_marks() -> re.Pattern[str]:
    marks = "".join(chr(code) for code in range(sys.maxunicode + 1) if unicodedata.combining(chr(code)))
    return re.compile(f"([{marks}]{{{_LONGEST_MARK_RUN}}})[{marks}]+")


def simplifier() -> Callable[[str], tuple[str, int]]:
    """Make the rule that turns traditional Chinese characters into simplified ones, by OpenCC's table t2s.

    Raises:
        BrimfulError: OpenCC is not installed.
    """
    require_packages("clean.simplified", "opencc")
    import opencc

    convert = opencc.OpenCC("t2s").convert

    def simplify(text: str) -> tuple[str, int]:
        if text.isascii():
            return text, 0
        simple = convert(text)
        return simple, sum(map(ne, text, simple))

    return simplify
