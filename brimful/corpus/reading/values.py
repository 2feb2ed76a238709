"""Lists that stand for texts."""

import re
import unicodedata
from itertools import pairwise
from typing import Any

from brimful.corpus.reading.faults import Report

# Words are shorter than this on average; sentences without spaces are longer.
_LONGEST_WORDS = 10
_SPACE = re.compile(r"\s")
JOINED_SENTENCES = "has lists of sentences, joined by line ends"


def joined(values: list[Any], report: Report) -> str | None:
    """The text that a list holds; None if it holds anything but texts, lists of them, or their parts.

    Words are joined by spaces (not those of Chinese and Japanese), sentences by line ends, and lists of
    sentences by empty lines.
    """
    if not values:
        return ""
    if all(isinstance(value, list) for value in values):
        parts = [joined(value, report) for value in values]
        return None if None in parts else "\n\n".join(part for part in parts if part)
    if not all(isinstance(value, str) for value in values):
        return _joined_parts(values)
    are_words = len(values) > 2 and not any(map(_SPACE.search, values))
    if are_words and sum(map(len, values)) <= _LONGEST_WORDS * len(values):
        report.note("has lists of words, joined to texts")
        return join_words(values)
    report.note(JOINED_SENTENCES)
    return "\n".join(values)


def _joined_parts(values: list[Any]) -> str | None:
    """The text of a message of a chat: texts, and objects with the text of a link, a bold word ..."""
    parts: list[Any] = [value.get("text") if isinstance(value, dict) else value for value in values]
    return "".join(parts) if all(isinstance(part, str) for part in parts) else None


def join_words(words: list[str]) -> str:
    """The words with spaces between them, where their scripts have spaces."""
    parts = [words[0]]
    for before, word in pairwise(words):
        if not (before and word and _is_unspaced(before[-1]) and _is_unspaced(word[0])):
            parts.append(" ")
        parts.append(word)
    return "".join(parts)


def _is_unspaced(character: str) -> bool:
    is_wide = unicodedata.east_asian_width(character) in "WF"
    return is_wide and not "\uac00" <= character <= "\ud7a3"
