"""Schemes of tags: how the names of tags say which tokens are a span, and which label it has.

A tag is a mark and a label, such as B-PER. All schemes are read in the marks of one (Krishnan and Ganapathy,
2005): B for the first token of a span, I for those within, E for the last, S for a span of one token, O for
the rest. Which marks there are tells the scheme, as seqeval defines them:

    IO                    I alone; so is a label without marks
    IOB1                  B only where a span touches one of the same label before it
    BIO (IOB2)            B and I
    IOE1, IOE2            I and E
    IOBES, BIOE           as named; BILOU has L and U for E and S, BMES has M for I, BMEWO has W for S

Marks stand before or behind their labels, with - or _ between them, or alone.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from brimful.base.errors import BrimfulError
from brimful.tables.table import LabelledSpan

OUTSIDE = "O"
CONTINUED = "X"
"""The mark of a token that continues a word: it belongs to what the token before it belongs to."""
NEVER = ""
"""The mark of tags that only special tokens have, such as [CLS]."""
UNNAMED = "_"
"""The label of spans whose tags are only marks, as in seqeval."""

_MARKS = {"B": "B", "I": "I", "E": "E", "S": "S", "L": "E", "U": "S", "M": "I", "W": "S"}
_OUTSIDE = (OUTSIDE, OUTSIDE.lower())
_SPECIAL = ("[cls]", "[sep]", "[pad]", "[unk]", "<s>", "</s>", "<pad>", "<unk>", "<start>", "<stop>", "pad")


class Tag(NamedTuple):
    """What a tag means.

    Attributes:
        mark: B, I, E, S or O; CONTINUED or NEVER.
        label: of the span; empty for O, CONTINUED and NEVER.
    """

    mark: str
    label: str


def read_tags(names: Iterable[str]) -> dict[str, Tag]:
    """What each tag of a set means; the set tells where marks stand.

    A name without a mark among others that have one means I, as in the pipelines of `transformers`; but O
    where it is the only one, and O is not there.

    Raises:
        BrimfulError: the tags describe no spans.
    """
    names = list(dict.fromkeys(names))
    outside = next((name for name in _OUTSIDE if name in names), None)
    special = [name for name in names if name.lower() in _SPECIAL]
    candidates = [name for name in names if name != outside and name not in special]
    marked = _marked(candidates)
    if marked is None:
        if outside is None and candidates:
            raise BrimfulError(
                f"the tags {_shown(candidates)} have no marks such as B- and I-, and lack O: with them"
                " every token would be in a span; call the tag of tokens outside of spans O"
            )
        span_tags = {name: Tag("I", name) for name in candidates}
    else:
        unmarked = [name for name in candidates if name not in marked and name.upper() != CONTINUED]
        if outside is None and len(unmarked) == 1:  # or else every token would be in a span
            outside = unmarked[0]
        span_tags = {name: _unmarked(name) for name in candidates if name != outside} | marked
    if not any(tag.label for tag in span_tags.values()):
        raise BrimfulError(f"the tags {_shown(names)} have no label of spans")
    tags = {name: Tag(NEVER, "") for name in special} | span_tags
    if outside is not None:
        tags[outside] = Tag(OUTSIDE, "")
    return {name: tags[name] for name in names}


def spans_of(tags: Sequence[Tag], places: Sequence[tuple[int, int]]) -> list[LabelledSpan]:
    """The spans that tags describe, by the rules of conlleval and of seqeval's default mode.

    A span begins at B and S, where the label changes, and after O; it ends before the next one, and after E
    and S. Where tags keep to their scheme, these are the spans that the scheme defines.

    Args:
        places: the characters of each tagged word.
    """
    spans: list[LabelledSpan] = []
    inside = is_open = False  # the word before is in a span; and the span may go on
    for (mark, label), (start, end) in zip(tags, places, strict=True):
        if mark == CONTINUED:
            if inside:
                spans[-1] = spans[-1]._replace(end=end)
            continue
        inside = mark not in (OUTSIDE, NEVER)
        if inside:
            if is_open and mark not in "BS" and spans[-1].label == label:
                spans[-1] = spans[-1]._replace(end=end)
            else:
                spans.append(LabelledSpan(start, end, label))
        is_open = inside and mark not in "ES"
    return spans


def is_tag(name: str) -> bool:
    """Whether a name is O, or has the mark of a tag."""
    return name in _OUTSIDE or any(split(name) is not None for split in _SPLITS)


def _marked(names: Sequence[str]) -> dict[str, Tag] | None:
    """The tags that have marks, or None where names have none."""
    candidates = [name for name in names if name.upper() != CONTINUED]
    best: dict[str, Tag] = {}
    for split in _SPLITS:
        tags = {name: tag for name in candidates if (tag := split(name)) is not None}
        marks = {tag.mark for tag in tags.values()}
        scheme = bool(marks) and (len(marks) > 1 or split is not _alone)
        if scheme and (len(tags), -_labels(tags)) > (len(best), -_labels(best)):
            best = tags
    if len(best) < len(candidates) and _labels(best) == len(best):
        return None  # what looks like a mark is a part of names: B-cell, T-cell
    return best or None


def _unmarked(name: str) -> Tag:
    return Tag(CONTINUED, "") if name.upper() == CONTINUED else Tag("I", name)


def _labels(tags: dict[str, Tag]) -> int:
    return len({tag.label for tag in tags.values()})


def _tag(mark: str, label: str) -> Tag | None:
    return Tag(_MARKS[mark.upper()], label) if mark.upper() in _MARKS and label else None


def _before(separator: str) -> Callable[[str], Tag | None]:
    return lambda name: _tag(*name.partition(separator)[::2])


def _behind(separator: str) -> Callable[[str], Tag | None]:
    return lambda name: _tag(*name.rpartition(separator)[::-2])


def _alone(name: str) -> Tag | None:
    return _tag(name, UNNAMED)


_SPLITS = (*(side(separator) for separator in "-_" for side in (_before, _behind)), _alone)


def _shown(names: Sequence[str]) -> str:
    return ", ".join(names[:8]) + (" ..." if len(names) > 8 else "")
