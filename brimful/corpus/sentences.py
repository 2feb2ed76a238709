"""Sentence boundaries of English, Chinese and mixed text."""

import re

import numpy as np

_CLOSERS = "\"'”’」』）】》〉)\\]»"
_TERMINATOR = re.compile(rf"[.!?。！？；…｡]+[{_CLOSERS}]*|\n")
_FULL = frozenset("。！？；｡")
_EAST_ASIAN = re.compile(r"[\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff\uff00-\uffef“‘]")
_LAST_WORD = re.compile(r"[^\s(\[\"'“‘]+$")
_LIST_NUMBER = re.compile(r"\s*[(\[]?(?:\d{1,3}|[A-Za-z])")
_LONGEST_WORD = 32

# What a full stop may follow without ending a sentence: abbreviations and initials.
_ABBREVIATION = re.compile(
    r"(?:[A-Z]\.)*[A-Z]|(?i:mr|mrs|ms|dr|prof|sr|jr|st|vs|etc|al|cf|e\.g|i\.e|eg|ie|inc|ltd|co|corp|no|nos|vol|figs?"
    r"|eqs?|sec|ch|pp?|eds?|jan|feb|mar|apr|jun|jul|aug|sept?|oct|nov|dec|gen|col|sgt|capt|lt|rev|hon|gov|sen|rep"
    r"|approx|dept|est|a\.m|p\.m|ph\.d|resp|ca)"
)


def _ends_sentence(text: str, begin: int, match: re.Match[str]) -> bool:
    """Does the punctuation that `match` found end the sentence that began at `begin`?"""
    mark, end = match[0], match.end()
    if mark == "\n" or not _FULL.isdisjoint(mark):
        return True
    rest = text[end : end + 1]
    blank = not rest or rest.isspace()
    if not blank and not _EAST_ASIAN.match(rest):
        return "…" in mark and not rest.islower()  # elsewhere no blank follows: 3.14, a.b.com, x!=y
    following = text[end : end + 8].lstrip()[:1]
    if "!" in mark or "?" in mark:
        return not (blank and following.islower())
    if following.islower():
        return False
    if mark[0] == "." and not mark.startswith(".."):
        if not blank:  # 很好.我 ends a sentence, 3.我 does not
            return bool(_EAST_ASIAN.match(text, match.start() - 1))
        before = text[max(begin, match.start() - _LONGEST_WORD) : match.start()]
        if _LIST_NUMBER.fullmatch(before):
            return False
        word = _LAST_WORD.search(before)
        if word and _ABBREVIATION.fullmatch(word[0]):
            return False
    return True


def sentence_spans(text: str) -> np.ndarray:
    """The sentences of `text` in order: character begin and end, int64 (sentences, 2).

    A line break ends a sentence. Blanks between sentences belong to none.
    """
    spans = []
    begin = 0
    for match in _TERMINATOR.finditer(text):
        if _ends_sentence(text, begin, match):
            spans.append((begin, match.end()))
            begin = match.end()
    spans.append((begin, len(text)))
    trimmed = []
    for first, last in spans:
        body = text[first:last]
        stripped = body.strip()
        if stripped:
            first += len(body) - len(body.lstrip())
            trimmed.append((first, first + len(stripped)))
    return np.array(trimmed, np.int64).reshape(-1, 2)
