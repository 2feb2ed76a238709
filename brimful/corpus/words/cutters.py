"""Compiled loops over code points: where words start, and which span or script holds a token."""

import numpy as np

from brimful.base.compiled import compiled

_ZERO_WIDTH_JOINER = 0x200D


@compiled
def word_starts_by_class(
    codes: np.ndarray, table: np.ndarray, space: int, single: int, mark: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Where words start by the classes of characters alone, and how marks join what they follow.

    Args:
        codes: code points, uint32 (characters,).
        table: `characters.character_classes()`.
        space, single, mark: classes in it, which `characters` names.

    Returns:
        which characters start a word, bool (characters,); their classes, uint8 (characters,), where a
        mark has the class of the character that it follows; which are such marks, bool (characters,).
    """
    starts = np.zeros(len(codes), np.bool_)
    classes = np.empty(len(codes), np.uint8)
    marks = np.zeros(len(codes), np.bool_)
    before = before_raw = space
    joined = False
    for index, code in enumerate(codes):
        raw = table[code]
        own = raw
        if raw == mark:
            own = single if before_raw == space else before
            marks[index] = before_raw != space
        if own != space and not marks[index]:
            starts[index] = (own == single or own != before) and not joined
        classes[index] = own
        before, before_raw = own, raw
        joined = code == _ZERO_WIDTH_JOINER
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
def count_scripts(
    codes: np.ndarray, begins: np.ndarray, tokens: np.ndarray, unknown: int, table: np.ndarray, scripts: int
) -> np.ndarray:
    """Characters, tokens and unknown tokens by script.

    Args:
        begins: each token's first character, int (tokens,).
        unknown: id of the unknown token, or -1.
        table: the script of every code point, or `scripts` for whitespace.

    Returns:
        int64 (scripts, 3). A token of whitespace belongs to the script of the text after it; at the end,
        to the last script.
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
