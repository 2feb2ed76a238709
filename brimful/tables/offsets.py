"""The units that the offsets of spans count: characters, or the one that `--offsets` names.

JavaScript and Java count units of UTF-16, Go and Rust bytes of UTF-8. An offset counts from 0, and the
end of a span is the offset after its last unit. A span that carries its own text must have that text at its
offsets.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from brimful.base.console import escape_controls, pluralise
from brimful.base.errors import BrimfulError
from brimful.corpus.text.characters import normalise

_ENCODINGS = {"utf-16": ("utf-16-le", 2), "bytes": ("utf-8", 1)}
"""The encoding whose units are counted, and the bytes of a unit."""
_QUOTED_CHARACTERS = 40


class Place(NamedTuple):
    """The place of a span, as its file gives it.

    Attributes:
        where: the place of its text in the file: `line 3`.
        context: the text that it is a part of.
        end: None where only the start is given, and the span is as long as its own text.
        text: its own text; None if it has none.
    """

    where: str
    context: str
    start: int
    end: int | None
    text: str | None


def place_spans(path: Path, noun: str, places: Sequence[Place], unit: str) -> list[tuple[int, int]]:
    """Return the start and the end of each span, in characters.

    Args:
        noun: what a span is called: `span`, `answer`.
        unit: the unit of offsets: `characters`, `utf-16` or `bytes`.

    Raises:
        BrimfulError: the text at a span's offsets is not the span's own, or a span is outside its context.
    """
    spans, wrong = [], []
    for place in places:
        span = find_span(place, unit)
        if span is None:
            wrong.append(place)
        else:
            spans.append(span)
    if not wrong:
        return spans
    first = wrong[0]
    if first.text is None:
        raise BrimfulError(
            f"{path}, {first.where}: the {noun} from {first.start} to {first.end} is not within its text of"
            f" {len(first.context)} characters: {_remedy(places, unit)}"
        )
    span = _find_characters(first, unit)
    text = "nothing" if span is None else quote(first.context[slice(*span)])
    raise BrimfulError(
        f"{path}: of {pluralise(len(places), noun)}, {len(wrong):,} have another text at their offsets than"
        f" their own ({first.where}: {text} for {quote(first.text)}): {_remedy(places, unit)}"
    )


def _remedy(places: Sequence[Place], unit: str) -> str:
    """Return the units that all offsets of a file fit, as advice."""
    others, fitting = [], []
    for other in ("characters", *_ENCODINGS):
        if other != unit:
            others.append(other)
            if all(find_span(place, other) for place in places):
                fitting.append(other)
    if fitting:
        return f"--offsets {' or '.join(fitting)} fits the whole file"
    return (
        f"neither --offsets {others[0]} nor {others[1]} fits the whole file; correct the offsets"
        " (docs/your-data.md has a converter of spans that are objects with a text)"
    )


def find_span(place: Place, unit: str) -> tuple[int, int] | None:
    """Return the start and the end of a span, in characters; None if it is outside its text, or another text
    is there: case, width and white space may differ, since tools change them."""
    span = _find_characters(place, unit)
    if span is None or place.text is None:
        return span
    text = place.context[slice(*span)]
    has_own_text = text == place.text or normalise(text) == normalise(place.text)
    return span if has_own_text else None


def _find_characters(place: Place, unit: str) -> tuple[int, int] | None:
    """Return the start and the end of a span in characters; None if it is outside its text."""
    start = _count_characters(place.start, place.context, unit)
    if start is None:
        return None
    if place.end is None:
        return start, min(start + len(place.text or ""), len(place.context))
    end = _count_characters(place.end, place.context, unit)
    return None if end is None or end < start else (start, end)


def _count_characters(offset: int, text: str, unit: str) -> int | None:
    """Return the number of characters before an offset; None if it is outside the text or in a character."""
    if offset < 0:
        return None
    if unit == "characters":
        return offset if offset <= len(text) else None
    encoding, size = _ENCODINGS[unit]
    encoded = text.encode(encoding)  # JSON's lone surrogates are refused before
    if offset * size > len(encoded):
        return None
    try:
        return len(encoded[: offset * size].decode(encoding))
    except UnicodeDecodeError:  # within a character
        return None


def quote(text: str) -> str:
    """Return a text for messages, in quotes and not too long."""
    if not text.isspace():
        text = " ".join(escape_controls(text).split())
    if len(text) > _QUOTED_CHARACTERS:
        text = f"{text[:_QUOTED_CHARACTERS]}…"
    return repr(text)
