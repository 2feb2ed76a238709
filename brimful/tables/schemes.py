"""Schemes of tags: how the names of tags say which tokens are a span, and which label it has.

A tag is a mark and a label, such as B-PER. All schemes are converted to the marks of one (Krishnan and
Ganapathy, 2005): B for the first token of a span, I for those within, E for the last, S for a span of one
token, O for others. The set of marks tells the scheme, as seqeval defines them:

    IO                    only I; a label without a mark counts as I
    IOB1                  B only where a span directly follows another with the same label
    BIO (IOB2)            B and I
    IOE1, IOE2            I and E
    IOBES, BIOE           as named; BILOU has L and U for E and S, BMES has M for I, BMEWO has W for S

Marks stand before or behind their labels, with - or _ between them, or without labels.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from brimful.base.errors import BrimfulError
from brimful.tables.table import LabelledSpan

OUTSIDE = "O"
CONTINUED = "X"
"""The mark of a token that continues a word: a span with the token before it also has this token."""
NEVER = ""
"""The mark of tags that only special tokens have, such as [CLS]."""
UNNAMED = "_"
"""The label of spans whose tags are only marks, as in seqeval."""

_MARKS = {"B": "B", "I": "I", "E": "E", "S": "S", "L": "E", "U": "S", "M": "I", "W": "S"}
_SPLITS = (("-", True), ("-", False), ("_", True), ("_", False), ("", True))
"""The separators of mark and label, and whether the mark is first; without a separator, a tag is only a mark.
"""
_SPECIAL = ("[cls]", "[sep]", "[pad]", "[unk]", "<s>", "</s>", "<pad>", "<unk>", "<start>", "<stop>", "pad")


class Tag(NamedTuple):
    """The meaning of a tag.

    Attributes:
        mark: B, I, E, S or O; CONTINUED or NEVER.
        label: the label of the span; empty for O, CONTINUED and NEVER.
    """

    mark: str
    label: str


def read_tags(names: Iterable[str]) -> dict[str, Tag]:
    """Return the meaning of each tag of a set; the set tells where marks stand.

    If only some names have marks, a name without one means I, as in the pipelines of `transformers`; but a
    single such name means O if O is missing.

    Raises:
        BrimfulError: the tags describe no spans.
    """
    names = list(dict.fromkeys(names))
    outside = OUTSIDE if OUTSIDE in names else OUTSIDE.lower()
    candidates = [name for name in names if name != outside and name.lower() not in _SPECIAL]
    has_outside = outside in names
    marked = _read_marks(candidates)
    if not marked and not has_outside and candidates:
        raise BrimfulError(
            f"the tags {_list_names(candidates)} have no marks such as B- and I-, and lack O: with them"
            " every token would be in a span; call the tag of tokens outside of spans O"
        )
    unmarked = [name for name in candidates if name not in marked and name.upper() != CONTINUED]
    if marked and not has_outside and len(unmarked) == 1:  # otherwise every token would be in a span
        outside = unmarked[0]
    tags: dict[str, Tag] = {}
    for name in names:
        if name == outside:
            tags[name] = Tag(OUTSIDE, "")
        elif name.lower() in _SPECIAL:
            tags[name] = Tag(NEVER, "")
        elif marked and name.upper() == CONTINUED:
            tags[name] = Tag(CONTINUED, "")
        else:
            tags[name] = marked.get(name, Tag("I", name))
    if not any(label for _, label in tags.values()):
        raise BrimfulError(f"the tags {_list_names(names)} name no label for spans")
    return tags


def spans_of(tags: Sequence[Tag], places: Sequence[tuple[int, int]]) -> list[LabelledSpan]:
    """Return the spans that tags describe, by the rules of conlleval and of seqeval's default mode.

    A span begins at B and S, where the label changes, and after O; it ends before the next one, and after E
    and S. Where tags keep to their scheme, these are the spans that the scheme defines.

    Args:
        places: the characters of each tagged word.
    """
    spans: list[LabelledSpan] = []
    is_inside = is_open = False  # the previous word is in a span; that span may continue
    for (mark, label), (start, end) in zip(tags, places, strict=True):
        if mark == CONTINUED:
            if is_inside:
                spans[-1] = spans[-1]._replace(end=end)
            continue
        is_inside = mark not in (OUTSIDE, NEVER)
        if is_inside:
            if is_open and mark not in "BS" and spans[-1].label == label:
                spans[-1] = spans[-1]._replace(end=end)
            else:
                spans.append(LabelledSpan(start, end, label))
        is_open = is_inside and mark not in "ES"
    return spans


def is_tag(name: str) -> bool:
    """Whether a name is O, or has the mark of a tag."""
    return name in (OUTSIDE, OUTSIDE.lower()) or any(_split_mark(name, *split) for split in _SPLITS)


def _read_marks(names: Sequence[str]) -> dict[str, Tag]:
    """Return the tags that have marks, split in the way that most names allow; empty if names have none."""
    candidates = [name for name in names if name.upper() != CONTINUED]
    best: dict[str, Tag] = {}
    for separator, mark_is_first in _SPLITS:
        tags: dict[str, Tag] = {}
        for name in candidates:
            tag = _split_mark(name, separator, mark_is_first)
            if tag is not None:
                tags[name] = tag
        if not separator and len(set(tags.values())) < 2:
            continue  # a single S is the name of a label
        # If two ways read equally many names, the one with fewer labels wins: E-B and E-I have the label E.
        if (len(tags), -_count_labels(tags)) > (len(best), -_count_labels(best)):
            best = tags
    if len(best) < len(candidates) and _count_labels(best) == len(best):
        return {}  # what looks like a mark is a part of names: B-cell, T-cell
    return best


def _count_labels(tags: dict[str, Tag]) -> int:
    return len({tag.label for tag in tags.values()})


def _split_mark(name: str, separator: str, mark_is_first: bool) -> Tag | None:
    if not separator:
        mark, label = name, UNNAMED
    elif mark_is_first:
        mark, _, label = name.partition(separator)
    else:
        label, _, mark = name.rpartition(separator)
    if mark.upper() not in _MARKS or not label:
        return None
    return Tag(_MARKS[mark.upper()], label)


def _list_names(names: Sequence[str]) -> str:
    return ", ".join(names[:8]) + (" ..." if len(names) > 8 else "")
