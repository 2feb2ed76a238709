"""Named ranges of Unicode, and the code points of a text."""

import re
import unicodedata
from collections.abc import Sequence

import numpy as np

Ranges = list[tuple[int, int]]
"""First and last code points."""


def parse_ranges(text: str) -> Ranges:
    """Read ranges in the notation of Unicode's data files: `4E00-9FFF 3005`."""
    ranges = []
    for part in text.split():
        first, _, last = part.partition("-")
        ranges.append((int(first, 16), int(last or first, 16)))
    return ranges


LATIN = parse_ranges(
    "0041-005A 0061-007A 00AA 00BA 00C0-00D6 00D8-00F6 00F8-024F 1E00-1EFF FF21-FF3A FF41-FF5A"
)
HANGUL = parse_ranges("1100-11FF 3131-318E A960-A97C AC00-D7FB")

HAN_OR_KANA = parse_ranges("3005-3007 3041-30FF 3400-9FFF F900-FAFF 20000-3FFFD")
BERT_HAN = parse_ranges("3400-4DBF 4E00-9FFF F900-FAFF 20000-2A6DF")
"""The Han characters to BERT, which sets them apart, so that they never continue a word."""
EAST_ASIAN = parse_ranges("2E80-9FFF AC00-D7AF F900-FAFF FF00-FFEF 20000-3FFFD")
"""The blocks of Chinese, Japanese and Korean, with their punctuation and full-width forms."""


def code_points(text: str) -> np.ndarray:
    """Return the code points of `text`, uint32 (characters,)."""
    # A text may hold half a surrogate pair, from a JSON escape.
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)


def lengths_of(texts: Sequence[str] | Sequence[bytes]) -> np.ndarray:
    """Return the length of each text, int64 (texts,)."""
    return np.fromiter(map(len, texts), np.int64, len(texts))


def text_of(codes: np.ndarray) -> str:
    """Return the text of code points, uint32 (characters,)."""
    return codes.tobytes().decode("utf-32-le", "surrogatepass")


def normalise(text: str) -> str:
    """Return a text without case, width (NFKC) and white space, which tools change when they show a text."""
    return "".join(unicodedata.normalize("NFKC", text).casefold().split())


def is_unspaced(character: str) -> bool:
    """Whether a character belongs to a script without spaces between words, or to its punctuation."""
    is_wide = unicodedata.east_asian_width(character) in "WF"
    return is_wide and not "\uac00" <= character <= "\ud7a3"  # Korean has spaces


def one_of(ranges: Ranges) -> str:
    """Return a regular expression for one character of these ranges."""
    parts = [f"{re.escape(chr(first))}-{re.escape(chr(last))}" for first, last in ranges]
    return f"[{''.join(parts)}]"
