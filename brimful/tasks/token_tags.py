"""The characters of tokens, and the tags that labelled spans give them.

Tags are BIO (Ramshaw and Marcus, 1995; the variant in which every span begins with B-): B-X for the first
token of a span of label X, I-X for the others, O for the rest.
"""

from collections.abc import Sequence

import numpy as np

from brimful.tables.labelled_spans import OUTSIDE


def tag_names(labels: Sequence[str]) -> list[str]:
    """O, then B-X and I-X of each label. Tag 2k + 1 begins a span of label k, and 2k + 2 continues it."""
    return [OUTSIDE, *(f"{mark}-{label}" for label in labels for mark in "BI")]


def tags_of_spans(spans: np.ndarray, places: np.ndarray) -> np.ndarray:
    """The tag of each token, int64 (n,): of the last span that it overlaps with.

    Args:
        spans: int64 (m, 3), ascending: the characters of each span, and the tag that continues it.
        places: int (n, 2), the characters of each token, ascending.
    """
    starts, ends, tags = np.concatenate([[(-1, -1, 0)], spans]).T
    span = np.searchsorted(starts, places[:, 1]) - 1  # the last that starts before the token ends
    span[ends[span] <= places[:, 0]] = 0
    begins = (span > 0) & (span != np.append(0, span[:-1]))
    return tags[span] - begins


def without_spaces(places: np.ndarray, text: str) -> np.ndarray:
    """The characters of tokens (n, 2) without white space at their ends.

    Some tokenizers count the space before a word as part of it. A token of white space alone becomes empty.
    Only the characters from the first token to the last are looked at: a long text is read in windows.
    """
    filled = (places[:, 0] < places[:, 1])[:, None]
    first, end = places.min(initial=len(text), where=filled), places.max(initial=0, where=filled)
    space = np.array([*(character.isspace() for character in text[first:end]), False])
    if not space.any():
        return places
    starts, ends = np.where(filled, places - first, 0).T
    while (leading := (starts < ends) & space[starts]).any():
        starts += leading
    while (trailing := (starts < ends) & space[ends - 1]).any():
        ends -= trailing
    return np.where(filled, np.stack([starts, ends], -1) + first, places)
