"""Lists of words, sentences or parts of messages as one text."""

import re
from itertools import pairwise
from typing import Any

from brimful.corpus.reading.faults import Report
from brimful.corpus.reading.json_records import JOINED_SENTENCES, is_list_of
from brimful.corpus.text.characters import is_unspaced

# Words have fewer characters than this on average; sentences without spaces have more.
_LONGEST_WORD_MEAN = 10
_WHITE_SPACE = re.compile(r"\s")


def join_texts(values: list[Any], report: Report) -> str | None:
    """Return the text that a list holds; None if it holds anything but texts, lists of texts, or parts of a
    message.

    Words are joined by spaces (Chinese and Japanese words by nothing), sentences by line ends, and lists of
    sentences by empty lines.
    """
    if not values:
        return ""
    if is_list_of(values, list):
        paragraphs = [join_texts(value, report) for value in values]
        return "\n\n".join(filter(None, paragraphs)) if None not in paragraphs else None
    if not is_list_of(values, str):
        return _join_message(values)
    text = "".join(values)
    is_short = len(text) <= _LONGEST_WORD_MEAN * len(values)
    if len(values) > 2 and is_short and not _WHITE_SPACE.search(text):
        report.note("has lists of words, joined to texts")
        return _join_words(values)
    report.note(JOINED_SENTENCES)
    return "\n".join(values)


def _join_message(values: list[Any]) -> str | None:
    """Return the text of a message of a chat: texts, and objects with the text of a link, a bold word ..."""
    text = ""
    for value in values:
        part = value.get("text") if isinstance(value, dict) else value
        if not isinstance(part, str):
            return None
        text += part
    return text


def _join_words(words: list[str]) -> str:
    """Join words by spaces, where their scripts have spaces."""
    text = words[0]
    for before, word in pairwise(words):
        if not (before and word and is_unspaced(before[-1]) and is_unspaced(word[0])):
            text += " "
        text += word
    return text
