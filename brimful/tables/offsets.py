"""Places in texts that other tools count: what an offset means, where a span's own text tells.

An offset counts characters (code points), from 0, and a span ends before its end. JavaScript and Java count
UTF-16 units, Go and Rust bytes, Swift graphemes; some tools count from 1, or include the last character, or
count a text that was changed since. One reading holds for a whole file. It is the one under which spans have
their own texts; where there are none, the one under which no span is outside its text or cuts words.
"""

import unicodedata
from bisect import bisect_right
from collections.abc import Callable, Sequence
from functools import cache
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

from brimful.base.console import counted, visible, warn
from brimful.corpus.text.characters import normalised

_MOST_BROKEN = 0.01
"""A reading may take the text from this proportion of the spans that have it as they stand."""
_SAMPLE, _LARGE_SAMPLE = 500, 10_000
"""Spans on which readings are compared: with their own texts, and by their edges."""
_SHOWN = 40


class Place(NamedTuple):
    """Where a span is said to be.

    Attributes:
        row: the number of its text.
        end: None where only the start is given, and the text tells the end.
        text: its own text; None if it has none.
    """

    row: int
    start: int
    end: int | None
    text: str | None


class Reading(NamedTuple):
    """What offsets count.

    Attributes:
        name: `the offsets NAME`.
        lengths: how much each character of a text counts; None: 1.
        first: the offset of the first character.
        inclusive: whether the end is that of the last character.
    """

    name: str
    lengths: Callable[[str], list[int]] | None = None
    first: int = 0
    inclusive: bool = False


class Settled(NamedTuple):
    """Where spans are.

    Attributes:
        places: characters of each; None: outside its text.
        absent: which of them do not have their own text, because it is not in the text at all.
        moved: which were moved to where their own text stands next.
        reading: of the offsets.
    """

    places: list[tuple[int, int] | None]
    absent: list[int]
    moved: list[int]
    reading: Reading


def _graphemes(text: str) -> list[int]:
    """1 for what begins a grapheme, 0 for marks, joined emoji and the second half of a flag."""
    lengths: list[int] = []
    before, flags = "", 0
    for character in text:
        flag = "\U0001f1e6" <= character <= "\U0001f1ff"
        extends = (
            unicodedata.category(character) in ("Mn", "Mc", "Me")
            or character in "\u200d\u200c"
            or "\U0001f3fb" <= character <= "\U0001f3ff"
            or (before == "\u200d" and unicodedata.category(character) == "So")
            or (before == "\r" and character == "\n")
            or (flag and flags % 2 == 1)
        )
        lengths.append(int(not extends or not lengths))
        flags = flags + 1 if flag else 0
        before = character
    return lengths


def _each(length: Callable[[str], int]) -> Callable[[str], list[int]]:
    known = cache(length)
    return lambda text: [known(character) for character in text]


_SPACELESS = _each(lambda c: int(not c.isspace()))
_ESCAPED = {"&": 5, "<": 4, ">": 4, '"': 6, "'": 6}
_UNITS: dict[str, Callable[[str], list[int]] | None] = {
    "": None,
    "count UTF-16 units": _each(lambda c: 1 + (c > "\uffff")),
    "count bytes of UTF-8": _each(lambda c: len(c.encode("utf-8", "surrogatepass"))),
    "count ends of lines as two characters": lambda text: [
        1 + (c == "\n" and text[max(i, 1) - 1] != "\r") for i, c in enumerate(text)
    ],
    "count ends of lines as one character": lambda text: [
        int(not (c == "\r" and text[i + 1 : i + 2] == "\n")) for i, c in enumerate(text)
    ],
    "count graphemes": _graphemes,
    "count decomposed characters (NFD)": _each(lambda c: len(unicodedata.normalize("NFD", c))),
    "count escapes of HTML": _each(lambda c: _ESCAPED.get(c, 1)),
    "leave out white space": _SPACELESS,
}
_BASES = {
    "": (0, False),
    "include the last character": (0, True),
    "begin at 1": (1, False),
    "begin at 1 and include the last character": (1, True),
}
AS_IS = Reading("count characters")
_OTHERS = sorted(
    (
        Reading(" and ".join(filter(None, (unit, base))), lengths, *conventions)
        for unit, lengths in _UNITS.items()
        for base, conventions in _BASES.items()
        if unit or base
    ),
    key=lambda reading: bool(reading.lengths) and bool(reading.first or reading.inclusive),
)
_BY_EDGES = [
    reading for reading in _OTHERS if "white space" not in reading.name and "NFD" not in reading.name
]


class _Texts:
    """Texts, and the offset of each character as a reading counts."""

    def __init__(self, texts: Sequence[str]) -> None:
        self.texts = texts
        self._row = -1
        self._edges: dict[int, list[int]] = {}

    def _index(self, row: int, offset: int, reading: Reading) -> int | None:
        """The character at an offset; None: there is none."""
        offset -= reading.first
        text = self.texts[row]
        if reading.lengths is None:
            return offset if 0 <= offset <= len(text) else None
        if row != self._row:
            self._row, self._edges = row, {}
        if (key := id(reading.lengths)) not in self._edges:
            self._edges[key] = list(accumulate(reading.lengths(text), initial=0))
        edges = self._edges[key]
        index = bisect_right(edges, offset) - 1
        return index if index >= 0 and edges[index] == offset else None

    def span(self, place: Place, reading: Reading) -> tuple[int, int] | None:
        """The characters of a place; None: it is outside its text."""
        start = self._index(place.row, place.start, reading)
        if start is None:
            return None
        if place.end is None:
            end: int | None = min(start + len(place.text or ""), len(self.texts[place.row]))
        else:
            end = self._index(place.row, place.end + reading.inclusive, reading)
        return None if end is None or end < start else (start, end)

    def holds(self, place: Place, span: tuple[int, int] | None) -> bool:
        """Whether a span has the own text of a place."""
        if span is None or place.text is None:
            return False
        return same_text(self.texts[place.row][span[0] : span[1]], place.text)

    def fits(self, place: Place, reading: Reading) -> bool:
        """Whether a span has the own text of a place under a reading, without a space beside it."""
        span = self.span(place, reading)
        if span is None or not self.holds(place, span):
            return False
        found = self.texts[place.row][span[0] : span[1]]
        return found.strip() == found or found == place.text or reading.lengths is _SPACELESS

    def cuts(self, place: Place, span: tuple[int, int] | None) -> bool:
        """Whether a span is outside its text, is empty, begins or ends within a word, or with a space."""
        if span is None or span[0] == span[1]:
            return True
        text, (start, end) = self.texts[place.row], span
        return (
            text[start].isspace()
            or text[end - 1].isspace()
            or _joined(text[start - 1 : start + 1] if start else "")
            or _joined(text[end - 1 : end + 1])
        )


def _joined(pair: str) -> bool:
    """Whether two neighbours belong to one word of letters, in a script that writes spaces."""
    return len(pair) == 2 and pair.isalnum() and all(c < "\u2e80" or "\uac00" <= c <= "\ud7a3" for c in pair)


def same_text(first: str, second: str) -> bool:
    """Whether two texts are the same but for case, width and white space."""
    return first == second or normalised(first) == normalised(second)


def settle(texts: Sequence[str], places: Sequence[Place]) -> Settled:
    """Find out what offsets mean, and where the spans are.

    Places of the same text should be neighbours.
    """
    known = _Texts(texts)
    spans = [known.span(place, AS_IS) for place in places]
    wrong = [
        i
        for i, (place, span) in enumerate(zip(places, spans, strict=True))
        if place.text is not None and not known.holds(place, span)
    ]
    reading = _of_own_texts(known, places, wrong) if wrong else _of_edges(known, places, spans)
    if reading != AS_IS:
        spans = [known.span(place, reading) for place in places]
        if reading.lengths is _SPACELESS:
            spans = [_trimmed(texts[place.row], span) for place, span in zip(places, spans, strict=True)]
        wrong = [i for i in wrong if not known.holds(places[i], spans[i])]
    absent, moved = [], []
    for i in wrong:
        near = _nearest(texts[places[i].row], places[i].text or "", (spans[i] or (places[i].start,))[0])
        if near is None:
            absent.append(i)
        else:
            moved.append(i)
            spans[i] = near
    return Settled(spans, absent, moved, reading)


def _trimmed(text: str, span: tuple[int, int] | None) -> tuple[int, int] | None:
    """A span without the white space at its ends, which its offsets did not count."""
    if span is None or not (part := text[span[0] : span[1]]).strip():
        return span
    return span[0] + len(part) - len(part.lstrip()), span[1] - len(part) + len(part.rstrip())


def _of_own_texts(known: _Texts, places: Sequence[Place], wrong: Sequence[int]) -> Reading:
    """The reading under which most of the spans have their own texts that do not have them as they stand."""
    astray = set(wrong)
    right = [i for i, place in enumerate(places) if place.text is not None and i not in astray]
    sample = sorted({*wrong[:: -(-len(wrong) // _SAMPLE)], *right[:: max(-(-len(right) // _SAMPLE), 1)]})
    best, reading = 0, AS_IS
    asked = sum(i in astray for i in sample)
    found = dict.fromkeys(_OTHERS, 0)
    broken = dict.fromkeys(_OTHERS, 0)
    for i in sample:  # texts outside, readings inside: a text is measured once
        for other in _OTHERS:
            holds = known.fits(places[i], other)
            found[other] += holds and i in astray
            broken[other] += not holds and i not in astray
    for other in _OTHERS:
        few = broken[other] <= _MOST_BROKEN * (len(sample) - asked)
        if few and found[other] > best and 2 * found[other] >= asked:
            best, reading = found[other], other
    return reading


def _of_edges(known: _Texts, places: Sequence[Place], spans: Sequence[tuple[int, int] | None]) -> Reading:
    """The reading under which spans are in their texts and whole words; as they stand, if that will do."""
    rest = [i for i, place in enumerate(places) if place.end is not None]
    outside = [i for i in rest if spans[i] is None]
    own = any(place.text is not None for place in places)
    if not outside and (own or sum(known.cuts(places[i], spans[i]) for i in rest) < 2):
        return AS_IS
    rest = sorted({*outside[:_SAMPLE], *rest[:: max(-(-len(rest) // _LARGE_SAMPLE), 1)]})
    best: tuple[int, Reading] | None = None
    for other in _BY_EDGES:
        there = {i: known.span(places[i], other) for i in rest}
        if any(there[i] is None for i in outside):
            continue
        changed = [i for i in rest if there[i] != spans[i]]
        before = sum(known.cuts(places[i], spans[i]) for i in changed)
        after = sum(known.cuts(places[i], there[i]) for i in changed)
        lost = any(there[i] is None for i in rest)
        if lost or len(changed) < (1 if outside else 2) or before < len(changed) / 2 or after > before / 10:
            continue
        if best is None or after - before < best[0]:
            best = after - before, other
    return AS_IS if best is None else best[1]


def _nearest(text: str, wanted: str, place: int) -> tuple[int, int] | None:
    """Where a text stands, nearest to a place."""
    wanted = wanted.strip()
    if not wanted:
        return None
    after = text.find(wanted, max(place, 0))
    before = text.rfind(wanted, 0, max(place, 0) + len(wanted))
    found = [start for start in (before, after) if start >= 0]
    if not found:
        return None
    start = min(found, key=lambda start: (abs(start - place), start))
    return start, start + len(wanted)


def tell(
    path: Path,
    noun: str,
    texts: Sequence[str],
    places: Sequence[Place],
    settled: Settled,
    where: Callable[[int], str],
) -> None:
    """Warn of what `settle` changed: one line for the reading, one for what is moved, one for what is absent.

    Args:
        noun: what a span is called: `span`, `answer`.
        where: the place in the file of the text of a row: `line 3`.
    """

    def example(i: int) -> str:
        place = places[i]
        stands = _Texts(texts).span(place, AS_IS)
        found = "nothing" if stands is None else quoted(texts[place.row][stands[0] : stands[1]])
        return f"{where(place.row)}: {found}" + (f" for {quoted(place.text)}" if place.text else "")

    known = _Texts(texts)
    spans = [known.span(place, AS_IS) for place in places]
    if settled.reading != AS_IS:
        changed = [i for i, span in enumerate(spans) if span != settled.places[i]]
        wrong = [i for i in changed if places[i].text is not None and not known.holds(places[i], spans[i])]
        if wrong:
            total = sum(place.text is not None for place in places)
            what = (
                f"of {counted(total, noun)}, {len(wrong):,} have another text at their offsets than their own"
            )
        else:
            wrong = changed
            what = f"of {counted(len(places), noun)}, {len(wrong):,} are outside their text or cut words"
        cut = settled.places[wrong[0]] or (0, 0)
        meant = (
            "" if places[wrong[0]].text else f", not {quoted(texts[places[wrong[0]].row][cut[0] : cut[1]])}"
        )
        warn(
            f"{path}: {what} ({example(wrong[0])}{meant}): the offsets {settled.reading.name}, and are"
            " converted to characters"
        )
    if settled.moved:
        warn(
            f"{path}: of {counted(len(places), noun)}, {len(settled.moved):,} have another text at their"
            f" offsets than their own, and are moved to where it stands ({example(settled.moved[0])})"
        )


def quoted(text: str) -> str:
    """A text for messages, in quotes and not too long."""
    text = " ".join(visible(text).split()) if not text.isspace() else text
    return repr(text if len(text) <= _SHOWN else text[:_SHOWN] + "…")
