"""Spans of characters with labels, such as names, and their tags on tokens.

Tags are BIO (Ramshaw and Marcus, 1995; the variant in which every span begins with B-): B-X for the first
token of a span of label X, I-X for the others, O for the rest.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from brimful.tables.table import Table

OUTSIDE = "O"


class LabelledSpan(NamedTuple):
    """`text[start:end]` has the label."""

    start: int
    end: int
    label: str


def label_names_of(table: Table) -> list[list[str]] | None:
    """The names in the label of each row: of a class, of several, or of spans; None of other labels."""
    named: list[list[str]] = []
    for label in table.labels or []:
        parts = label if isinstance(label, list) else [label]
        names = [part.label if isinstance(part, LabelledSpan) else part for part in parts]
        if not all(isinstance(name, str) for name in names):
            return None
        named.append(names)
    return named or None


def tag_names(labels: Sequence[str]) -> list[str]:
    """O, then B-X and I-X of each label. Tag 2k + 1 begins a span of label k, and 2k + 2 continues it."""
    return [OUTSIDE, *(f"{mark}-{label}" for label in labels for mark in "BI")]


def tags_of_spans(spans: Sequence[LabelledSpan], labels: dict[str, int], places: np.ndarray) -> np.ndarray:
    """The tag of each token, int64 (n,): of the span that it overlaps with.

    Args:
        spans: of the text, none of which overlap.
        labels: the index of each label.
        places: int (n, 2), the characters of each token, ascending.
    """
    tags = np.zeros(len(places), dtype=np.int64)
    for span in spans:
        inside = np.flatnonzero((places[:, 0] < span.end) & (places[:, 1] > span.start))
        tags[inside] = 2 * labels[span.label] + 2
        tags[inside[:1]] -= 1
    return tags


def without_spaces(places: np.ndarray, text: str) -> np.ndarray:
    """The characters of tokens (n, 2) without white space at their ends.

    Some tokenizers count the space before a word as part of it. A token of white space alone becomes empty.
    """
    space = np.array([*(character.isspace() for character in text), False])
    if not space.any():
        return places
    starts, ends = places[:, 0].copy(), places[:, 1].copy()
    while (leading := (starts < ends) & space[starts]).any():
        starts += leading
    while (trailing := (starts < ends) & space[ends - 1]).any():
        ends -= trailing
    return np.stack([starts, ends], -1)
