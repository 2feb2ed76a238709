"""What the offsets of spans count: characters, or what `--offsets` names.

JavaScript and Java count units of UTF-16, Go and Rust bytes of UTF-8. An offset counts from 0, and a span
ends before its end. A span that carries its own text must have that text at its offsets.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from brimful.base.console import escape_controls, pluralise
from brimful.base.errors import BrimfulError
from brimful.corpus.text.characters import normalised

_ENCODINGS = {"utf-16": ("utf-16-le", 2), "bytes": ("utf-8", 1)}
"""The encoding whose units are counted, and the bytes of a unit."""
_UNITS = ("characters", *_ENCODINGS)
_SHOWN_CHARACTERS = 40


class Place(NamedTuple):
    """Where a span is said to be.

    Attributes:
        where: the place of its text in the file: `line 3`.
        context: its text as a whole.
        end: None where only the start is given, and the span is as long as its own text.
        text: its own text; None if it has none.
    """

    where: str
    context: str
    start: int
    end: int | None
    text: str | None


def place_spans(path: Path, noun: str, places: Sequence[Place], unit: str) -> list[tuple[int, int]]:
    """The characters of each span.

    Args:
        noun: what a span is called: `span`, `answer`.
        unit: what offsets count: `characters`, `utf-16` or `bytes`.

    Raises:
        BrimfulError: the texts at the offsets are other ones than the spans carry, or a span is outside its
            text.
    """
    wrong = [place for place in places if not fits(place, unit)]
    if wrong and wrong[0].text is None:
        raise BrimfulError(
            f"{path}, {wrong[0].where}: the {noun} from {wrong[0].start} to {wrong[0].end} is not within its"
            f" text of {len(wrong[0].context)} characters: {_remedy(places, unit)}"
        )
    if wrong:
        raise BrimfulError(
            f"{path}: of {pluralise(len(places), noun)}, {len(wrong):,} have another text at their offsets"
            f" than their own ({wrong[0].where}:"
            f" {_text_at(wrong[0], unit)} for {quoted(wrong[0].text or '')}):"
            f" {_remedy(places, unit)}"
        )
    return [span for place in places if (span := _characters(place, unit)) is not None]


def _remedy(places: Sequence[Place], unit: str) -> str:
    others = [other for other in _UNITS if other != unit]
    fitting = []
    for other in others:
        if all(fits(place, other) for place in places):
            fitting.append(other)
    if fitting:
        return f"--offsets {' or '.join(fitting)} fits the whole file"
    return (
        f"neither --offsets {others[0]} nor {others[1]} fits the whole file; correct the offsets"
        " (docs/data-forms.md has a converter of spans that are objects with a text)"
    )


def fits(place: Place, unit: str) -> bool:
    """Whether a span is within its text, and has its own one there, but for case, width and white space."""
    span = _characters(place, unit)
    if span is None or place.text is None:
        return span is not None
    there = place.context[slice(*span)]
    return there == place.text or normalised(there) == normalised(place.text)


def _text_at(place: Place, unit: str) -> str:
    span = _characters(place, unit)
    return "nothing" if span is None else quoted(place.context[slice(*span)])


def _characters(place: Place, unit: str) -> tuple[int, int] | None:
    start = _characters_before(place.start, place.context, unit)
    if start is None:
        return None
    if place.end is None:
        end: int | None = min(start + len(place.text or ""), len(place.context))
    else:
        end = _characters_before(place.end, place.context, unit)
    return None if end is None or end < start else (start, end)


def _characters_before(offset: int, text: str, unit: str) -> int | None:
    """The characters before an offset; None: it is outside the text, or within a character."""
    if offset < 0:
        return None
    if unit == "characters":
        return offset if offset <= len(text) else None
    encoding, size = _ENCODINGS[unit]
    encoded = text.encode(encoding)
    if offset * size > len(encoded):
        return None
    try:
        return len(encoded[: offset * size].decode(encoding))
    except UnicodeDecodeError:
        return None


def quoted(text: str) -> str:
    """A text for messages, in quotes and not too long."""
    text = " ".join(escape_controls(text).split()) if not text.isspace() else text
    return repr(text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + "…")
