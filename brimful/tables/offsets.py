"""What the offsets of spans count: characters, or what `--offsets` names.

JavaScript and Java count units of UTF-16, Go and Rust bytes of UTF-8. An offset counts from 0, and a span
ends before its end. A span that carries its own text must have that text at its offsets.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from brimful.base.console import counted, visible
from brimful.base.errors import BrimfulError
from brimful.corpus.text.characters import normalised

_ENCODINGS = {"utf-16": ("utf-16-le", 2), "bytes": ("utf-8", 1)}
"""The encoding whose units are counted, and the bytes of a unit."""
_UNITS = ("characters", *_ENCODINGS)
_SHOWN_CHARACTERS = 40


class Place(NamedTuple):
    """Where a span is said to be.

    Attributes:
        row: the number of its text.
        end: None where only the start is given, and the span is as long as its text.
        text: its own text; None if it has none.
    """

    row: int
    start: int
    end: int | None
    text: str | None


def place_spans(
    path: Path,
    noun: str,
    texts: Sequence[str],
    places: Sequence[Place],
    unit: str,
    where: Callable[[int], str],
) -> list[tuple[int, int] | None]:
    """The characters of each span; None for one that is outside its text.

    Args:
        noun: what a span is called: `span`, `answer`.
        unit: what offsets count: `characters`, `utf-16` or `bytes`.
        where: the place in the file of the text of a row: `line 3`.

    Raises:
        BrimfulError: the texts at the offsets are other ones than the spans carry.
    """
    spans = [_characters(texts[place.row], place, unit) for place in places]
    wrong = [i for i, place in enumerate(places) if not fits(texts[place.row], place, unit)]
    if not wrong:
        return spans
    first, span = places[wrong[0]], spans[wrong[0]]
    there = "nothing" if span is None else quoted(texts[first.row][span[0] : span[1]])
    others = [other for other in _UNITS if other != unit]
    fitting = []
    for other in others:
        if all(fits(texts[place.row], place, other) for place in places):
            fitting.append(other)
    if fitting:
        remedy = f"--offsets {' or '.join(fitting)} fits the whole file"
    else:
        remedy = (
            f"neither --offsets {others[0]} nor {others[1]} fits the whole file; correct the offsets"
            " (docs/data-forms.md has a converter)"
        )
    raise BrimfulError(
        f"{path}: of {counted(len(places), noun)}, {len(wrong):,} have another text at their offsets than"
        f" their own ({where(first.row)}: {there} for {quoted(first.text or '')}): {remedy}"
    )


def fits(text: str, place: Place, unit: str) -> bool:
    """Whether a span has its own text, but for case, width and white space; so has one without a text."""
    if place.text is None:
        return True
    span = _characters(text, place, unit)
    if span is None:
        return False
    there = text[span[0] : span[1]]
    return there == place.text or normalised(there) == normalised(place.text)


def _characters(text: str, place: Place, unit: str) -> tuple[int, int] | None:
    start = _characters_before(place.start, text, unit)
    if start is None:
        return None
    if place.end is None:
        end: int | None = min(start + len(place.text or ""), len(text))
    else:
        end = _characters_before(place.end, text, unit)
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
    text = " ".join(visible(text).split()) if not text.isspace() else text
    return repr(text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + "…")
