"""Files of texts with labelled spans: JSON with places of spans or with tags of words, or CoNLL columns."""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np

from brimful.base.console import counted, warn
from brimful.base.errors import BrimfulError
from brimful.tables.conll import check_tags, joined, read_sentences
from brimful.tables.file_rows import all_rows
from brimful.tables.json_files import SUFFIXES, in_lines, records
from brimful.tables.labelled_spans import OUTSIDE, LabelledSpan
from brimful.tables.layouts import OWN_LAYOUT, FileLayout
from brimful.tables.offsets import Place, quoted, same_text, settle, tell
from brimful.tables.schemes import Tag, read_tags, spans_of
from brimful.tables.span_rows import Given, SpanRecord, read_record
from brimful.tables.table import Table, Take, everything
from brimful.tables.text_files import readable, suffix_of, text_lines

_NEITHER = (".csv", ".xlsx", ".xml", ".ann")


@dataclass(frozen=True)
class TaggedTable(Table):
    """Texts whose labels are lists of spans, in order.

    Attributes:
        words: for each text of words the characters of them; empty lists for other files.
    """

    words: Sequence[list[tuple[int, int]]]

    types = {"labels": list[LabelledSpan], "words": list[tuple[int, int]]}  # noqa: RUF012


def read_tagged(
    path: Path | str, *, labelled: bool, layout: FileLayout = OWN_LAYOUT, take: Take = everything
) -> TaggedTable:
    """Read texts with spans: JSON in lines or an array, Parquet, or CoNLL columns in a file of another name.

    JSON has {"text": ..., "spans": [[start, end, label], ...]}, or what tools for annotation write
    (`span_rows`); offsets mean what the spans' own texts say (`offsets`). CoNLL columns hold one word a line
    with its tag (`conll`, `schemes`). The words of a text are joined by spaces, except between characters of
    scripts that write none, and in texts of which every word is a character. Without labels, a .txt file
    holds one text a line.

    Spaces at the ends of spans do not belong to them. Of spans that overlap, the first and longest stays.
    Warnings count both, and all else that is read otherwise than it stands.

    Raises:
        BrimfulError: the file cannot be read or is empty; a line has no text, no spans, a span outside the
            text, or no tag.
    """
    path = Path(path)
    with readable(path):
        form = suffix_of(path)
    by_record = form in SUFFIXES or form == ".parquet" or layout.rewrite is not None
    if not by_record and form in _NEITHER:
        raise BrimfulError(
            f"{path}: texts with spans are .jsonl, .json or .parquet files, or CoNLL columns (.conll, .bio,"
            " .bmes, .txt, .tsv ...)"
        )
    with readable(path):
        if by_record:
            rows = list(take(_record_rows(path, labelled, layout)))
        elif form == ".txt" and not labelled:
            rows = list(take(_line_rows(path)))
        else:
            rows = list(take(_conll_rows(path, labelled)))
        lined = not by_record or (form != ".parquet" and in_lines(path))
    if not rows:
        raise BrimfulError(f"{path} has no texts")
    texts, spans, words = (list(column) for column in zip(*(row[1:] for row in rows), strict=True))
    numbers = np.array([row[0] for row in rows], dtype=np.int64) if lined else None
    return TaggedTable(path, texts, None, spans if labelled else None, words, lines=numbers)


_Words = list[tuple[int, int]]
_Row = tuple[int, str, list[LabelledSpan], _Words]
"""The line of a text, the text, its spans, its words."""


def _line_rows(path: Path) -> Iterator[_Row]:
    for number, line in enumerate(text_lines(path, newline="\n"), 1):
        yield number, line.removesuffix("\n").removesuffix("\r"), [], []


def _conll_rows(path: Path, labelled: bool) -> Iterator[_Row]:
    found = read_sentences(path, labelled=labelled)
    if not labelled:
        for sentence, shape in found:
            text, places = joined(sentence.words, shape.characters)
            yield sentence.lines[0], text, [], _held(places)
        return
    sentences = list(found)
    check_tags([sentence for sentence, _ in sentences], path)
    tags = _meanings([sentence.tags for sentence, _ in sentences])
    _check_order(path, [(sentence.lines[0], sentence.tags) for sentence, _ in sentences], tags)
    texts = [joined(sentence.words, shape.characters) for sentence, shape in sentences]
    clean = _Cleaning(path, "line")
    for (sentence, _), (text, places) in zip(sentences, texts, strict=True):
        spans = spans_of([tags[tag] for tag in sentence.tags], places)
        yield sentence.lines[0], text, clean.spans(spans, text, sentence.lines[0]), _held(places)
    clean.tell()


def _held(places: _Words) -> _Words:
    """The words that hold any character."""
    return [place for place in places if place[0] < place[1]]


def _meanings(rows: Iterable[Sequence[str]]) -> dict[str, Tag]:
    """What the tags of a file mean."""
    names = {tag for tags in rows for tag in tags}
    if names <= {OUTSIDE, OUTSIDE.lower()}:
        return dict.fromkeys(names, Tag(OUTSIDE, ""))
    return read_tags(sorted(names))


def _check_order(path: Path, rows: Sequence[tuple[int, Sequence[str]]], known: dict[str, Tag]) -> None:
    """Warn of tags that continue a span that none began, unless the file's scheme begins spans so."""
    started: list[tuple[int, str]] = []
    begun = apart = 0
    for line, tags in rows:
        before = Tag(OUTSIDE, "")
        for name in tags:
            tag = known[name]
            inside = before.mark in ("B", "I", "X") and before.label == tag.label
            if tag.mark in ("B", "S"):
                begun += 1
                apart += before.label != tag.label
            elif tag.mark in ("I", "E") and not inside:
                started.append((line, name))
            before = tag
    if started and begun and apart:
        line, name = started[0]
        warn(
            f"{path}: {counted(len(started), 'tag')} (first in the text at line {line}: {name!r:.40})"
            " continue a span that no tag began; each begins one, as in seqeval"
        )


def _record_rows(path: Path, labelled: bool, layout: FileLayout) -> Iterator[_Row]:
    parquet = suffix_of(path) == ".parquet"
    rows = all_rows(path, ".parquet", OWN_LAYOUT) if parquet else records(path)
    place = "row" if parquet else "line" if in_lines(path) else "record"
    names = _names_of_tags(path) if parquet else {}
    found: list[_Found] = []
    rejected: list[int] = []
    for number, row in rows:
        where = f"{path}, {place} {number}"
        if layout.rewrite is not None:
            try:
                row = layout.rewrite(row)
            except (AttributeError, KeyError, TypeError, ValueError) as error:
                raise BrimfulError(f"{where} is not in the layout {layout.name}") from error
        record = read_record(row, where, labelled=labelled, names=names)
        if record is None:
            rejected.append(number)
            continue
        words = isinstance(record.text, list)
        text, places = joined(record.text) if isinstance(record.text, list) else (record.text, [])
        if not labelled:
            yield number, text, [], _held(places)
        else:
            found.append(_Found(number, record, text, places if words else None))
    if rejected:
        warn(
            f"{path}: {counted(len(rejected), 'text')} that the annotator rejected or passed over are left"
            f" out ({place} {rejected[0]})"
        )
    if labelled:
        yield from _labelled_rows(path, place, found)


class _Found(NamedTuple):
    number: int
    record: SpanRecord
    text: str
    places: _Words | None


def _names_of_tags(path: Path) -> dict[str, list[str]]:
    """The names of classes that Hugging Face datasets write into the schema of a Parquet file, by column."""
    from pyarrow import ArrowException
    from pyarrow.parquet import read_schema

    try:
        metadata = read_schema(path).metadata or {}
        features = json.loads(metadata.get(b"huggingface", b"{}"))["info"]["features"]
    except (ArrowException, ValueError, KeyError, TypeError):
        return {}
    names = {}
    for column, feature in features.items():
        inner = feature.get("feature", feature) if isinstance(feature, dict) else {}
        if isinstance(inner, dict) and isinstance(inner.get("names"), list):
            names[column] = [str(each) for each in inner["names"]]
    return names


def _labelled_rows(path: Path, place: str, found: list[_Found]) -> Iterator[_Row]:
    several = [each for each in found if each.record.several > 1]
    if several:
        warn(
            f"{path}: {counted(len(several), 'text')} have several annotations ({place} {several[0].number}:"
            f" {several[0].record.several}), of which the first is read"
        )
    tagged = [each for each in found if each.record.tags is not None]
    tags = _meanings([each.record.tags or [] for each in tagged])
    _check_order(path, [(each.number, each.record.tags or []) for each in tagged], tags)
    placed = [each for each in found if each.record.tags is None]
    spans = dict(zip([each.number for each in placed], _spans_of(path, place, placed), strict=True))
    clean = _Cleaning(path, place)
    for number, record, text, places in found:
        if record.tags is None:
            given = spans[number]
        else:
            whole = places or [(i, i + 1) for i in range(len(text))]
            given = spans_of([tags[tag] for tag in record.tags], whole)
        yield number, text, clean.spans(given, text, number), _held(places or [])
    clean.tell()


def _spans_of(path: Path, place: str, found: Sequence[_Found]) -> list[list[LabelledSpan]]:
    """The spans of each text, in characters."""
    texts = [each.text for each in found]
    given = [_in_characters(each.places, found, each.record.spans) if each.places else each.record.spans
             for each in found]  # fmt: skip
    places = [
        Place(row, span.start, span.end, span.text) for row, spans in enumerate(given) for span in spans
    ]
    labels = [span.label for spans in given for span in spans]
    settled = settle(texts, places)

    def where(row: int) -> str:
        return f"{place} {found[row].number}"

    tell(path, "span", texts, places, settled, where)
    if settled.absent:
        first = places[settled.absent[0]]
        warn(
            f"{path}: of {counted(len(places), 'span')}, {len(settled.absent):,} have another text at their"
            f" offsets than their own, which is nowhere in their text, and stay there ({where(first.row)}:"
            f" {quoted(first.text or '')})"
        )
    spans: list[list[LabelledSpan]] = [[] for _ in found]
    for (row, first_character, last, _), label, settled_place in zip(
        places, labels, settled.places, strict=True
    ):
        if settled_place is None:
            raise BrimfulError(
                f"{path}, {where(row)}: the span {[first_character, last, label]} is not within its text of"
                f" {len(texts[row])} characters; if offsets count UTF-16 units or bytes, give each"
                ' span its own "text", which tells'
            )
        spans[row].append(LabelledSpan(*settled_place, label))
    return spans


def _in_characters(words: _Words, found: Sequence[_Found], spans: Sequence[Given]) -> list[Given]:
    """Spans whose offsets count words, with offsets that count characters."""
    inclusive = _includes_last_word(found)
    converted = []
    for span in spans:
        last = span.end + inclusive - 1
        if 0 <= span.start <= last < len(words):
            converted.append(span._replace(start=words[span.start][0], end=words[last][1]))
        else:
            beyond = words[-1][1] + 1  # is refused as outside its text
            converted.append(span._replace(start=beyond, end=beyond, text=None))
    return converted


def _includes_last_word(found: Sequence[_Found]) -> bool:
    """Whether ends of spans are those of their last words: so say their own texts, or spans of one word."""
    votes = [0, 0]
    empty = False
    for _, record, text, words in found:
        for span in record.spans if words else []:
            empty = empty or span.start == span.end
            for inclusive in (0, 1) if span.text else ():
                part = (words or [])[span.start : span.end + inclusive]
                votes[inclusive] += bool(part) and same_text(text[part[0][0] : part[-1][1]], span.text or "")
    return votes[1] > votes[0] or (votes[0] == votes[1] and empty)


@dataclass
class _Cleaning:
    """What is wrong with the spans of a file, and spans without it."""

    path: Path
    place: str
    spaced: list[str] = field(default_factory=list)
    empty: list[str] = field(default_factory=list)
    twice: list[str] = field(default_factory=list)
    overlapping: list[str] = field(default_factory=list)

    def spans(self, spans: Iterable[LabelledSpan], text: str, number: int) -> list[LabelledSpan]:
        """Spans in order, without white space at their ends, of which none overlap."""
        kept: list[LabelledSpan] = []
        for span in sorted(spans, key=lambda span: (span.start, -span.end)):
            part = text[span.start : span.end]
            start, end = (
                span.start + len(part) - len(part.lstrip()),
                span.end - len(part) + len(part.rstrip()),
            )
            if start >= end:
                self.empty.append(f"{self.place} {number}: {[*span]}")
                continue
            if (start, end) != (span.start, span.end):
                self.spaced.append(f"{self.place} {number}: {part!r:.60}")
            kept.append(LabelledSpan(start, end, span.label))
        kept.sort(key=lambda span: (span.start, -span.end))
        apart: list[LabelledSpan] = []
        for span in kept:
            if not apart or span.start >= apart[-1].end:
                apart.append(span)
                continue
            example = f"{self.place} {number}: {quoted(text[span.start : span.end])} {span.label}"
            if span in apart:
                self.twice.append(example)
            else:
                before = apart[-1]
                example += f" in {quoted(text[before.start : before.end])} {before.label}"
                self.overlapping.append(example)
        return apart

    def tell(self) -> None:
        """Warn of all that was changed, a line for each kind."""
        for examples, what in (
            (self.spaced, "read without the white space at the ends"),
            (self.empty, "left out that hold no character but white space"),
            (self.twice, "left out that are there twice"),
            (self.overlapping, "left out that overlap with another, which begins before or is longer"),
        ):
            if examples:
                warn(f"{self.path}: {counted(len(examples), 'span')} {what} ({examples[0]})")
