"""Rules on the characters of a text. Each returns (text, how many changes)."""

import functools
import re
import sys
import unicodedata
from collections.abc import Callable
from operator import ne

from brimful.base.errors import BrimfulError
from brimful.corpus.cleaning.survey import CLASSES, INVISIBLE, LINE_BREAK, UNWANTED

_FIND_UNWANTED = re.compile(f"[{CLASSES[UNWANTED]}]")
_FIND_SURROGATE = re.compile("[\ud800-\udfff]")
_FIND_INVISIBLE = re.compile(f"[{CLASSES[INVISIBLE]}]")
_LINE_BREAK = re.compile(f"\r\n|[{CLASSES[LINE_BREAK]}]")


# Unicode's stream-safe text format (UAX #15). Normalization takes quadratic time on longer runs of marks.
_MOST_MARKS = 30


def unify_line_breaks(text: str) -> tuple[str, int]:
    """The line ends of all systems, form feeds and Unicode's separators become line feeds."""
    return _LINE_BREAK.subn("\n", text)


def blank_unwanted(text: str) -> tuple[str, int]:
    """Control, private-use and replacement characters, lone surrogates and noncharacters become spaces."""
    return _FIND_UNWANTED.subn(" ", text)


def blank_surrogates(text: str) -> tuple[str, int]:
    """Lone surrogates, which no file can hold, become spaces."""
    return _FIND_SURROGATE.subn(" ", text)


def drop_invisible(text: str) -> tuple[str, int]:
    """Soft hyphens, zero-width spaces and direction marks go. Joiners, which emoji need, stay."""
    return _FIND_INVISIBLE.subn("", text)


def to_nfkc(text: str) -> tuple[str, int]:
    """Normalize to NFKC; counts texts, not characters. Of a run of combining marks, the first 30 stay."""
    if not text.isascii():
        text = _excess_marks().sub(r"\1", text)
    if unicodedata.is_normalized("NFKC", text):
        return text, 0
    return unicodedata.normalize("NFKC", text), 1


@functools.cache
def _excess_marks() -> re.Pattern[str]:
    marks = "".join(chr(code) for code in range(sys.maxunicode + 1) if unicodedata.combining(chr(code)))
    return re.compile(f"([{marks}]{{{_MOST_MARKS}}})[{marks}]+")


def simplifier() -> Callable[[str], tuple[str, int]]:
    """The rule that turns traditional Chinese characters into simplified ones, by OpenCC's table t2s.

    Raises:
        BrimfulError: OpenCC is not installed.
    """
    try:
        import opencc
    except ImportError:
        raise BrimfulError("clean.simplified needs OpenCC: pip install 'brimful[zh]'") from None
    convert = opencc.OpenCC("t2s").convert

    def simplify(text: str) -> tuple[str, int]:
        if text.isascii():
            return text, 0
        simple = convert(text)
        return simple, sum(map(ne, text, simple))

    return simplify
