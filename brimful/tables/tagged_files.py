"""Files of texts with labelled spans: JSON with places of spans or with tags of words, or CoNLL columns."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np

from brimful.base.console import counted, warn
from brimful.base.errors import BrimfulError
from brimful.tables.annotations import plain_rows
from brimful.tables.conll import joined, read_sentences
from brimful.tables.file_rows import all_rows
from brimful.tables.json_files import SUFFIXES, in_lines, records
from brimful.tables.layouts import OWN_LAYOUT, FileLayout
from brimful.tables.offsets import Place, place_spans, quoted
from brimful.tables.schemes import OUTSIDE, Tag, read_tags, spans_of
from brimful.tables.span_rows import SpanRecord, read_record
from brimful.tables.table import LabelledSpan, Table, Take, everything
from brimful.tables.text_files import readable, suffix_of, text_lines

_NEITHER = (".csv", ".xlsx", ".xml", ".ann")
_COLUMNAR = (".parquet", ".arrow")


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
    """Read texts with spans: JSON in lines or an array, Parquet, Arrow, or CoNLL columns in any other file.

    JSON has {"text": ..., "spans": [[start, end, label], ...]}, or what the documented tools for annotation
    write (`span_rows`). CoNLL columns hold one word a line with its tag (`conll`, `schemes`). The words of a
    text are joined by spaces, except between characters of scripts that write none, and in files of which
    every word is a character. Without labels, a .txt file holds one text a line.

    Spaces at the ends of spans do not belong to them. Where spans overlap, the first and longest stays.
    Warnings count both.

    Raises:
        BrimfulError: the file cannot be read or is empty; a line has no text, no spans, a span outside the
            text, or no tag.
    """
    path = Path(path)
    with readable(path):
        form = suffix_of(path)
    by_record = form in (*SUFFIXES, *_COLUMNAR) or layout.rewrite is not None
    if not by_record and form in _NEITHER:
        raise BrimfulError(
            f"{path}: texts with spans are .jsonl, .json or .parquet files, or CoNLL columns (.conll, .bio,"
            " .bmes, .txt, .tsv ...)"
        )
    with readable(path):
        if by_record:
            rows = list(take(_record_rows(path, form, labelled, layout)))
        elif form == ".txt" and not labelled:
            rows = list(take(_line_rows(path)))
        else:
            rows = list(take(_conll_rows(path, labelled, layout)))
        lined = not by_record or (form not in _COLUMNAR and in_lines(path))
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


def _conll_rows(path: Path, labelled: bool, layout: FileLayout) -> Iterator[_Row]:
    sentences, characters = read_sentences(path, labelled=labelled, columns=layout.columns)
    read: list[_Record] = []
    for sentence in sentences:
        text, words = joined(sentence.words, characters)
        if labelled:
            parts = SpanRecord(sentence.words, [], sentence.tags)
            read.append(_Record(sentence.lines[0], parts, text, words))
        else:
            yield sentence.lines[0], text, [], _occupied(words)
    yield from _labelled_rows(path, "line", read, layout.offsets)


def _occupied(places: _Words) -> _Words:
    """The words that hold any character."""
    return [place for place in places if place[0] < place[1]]


def _meanings(path: Path, rows: Sequence[tuple[int, Sequence[str]]]) -> dict[str, Tag]:
    """What the tags of a file mean. A warning counts those that continue a span which no tag began.

    Where no B or S begins a span of its own, the file's scheme (IO, IOB1, IOE) begins spans with I.
    """
    names = {tag for _, tags in rows for tag in tags}
    if names <= {OUTSIDE, OUTSIDE.lower()}:
        return dict.fromkeys(names, Tag(OUTSIDE, ""))
    try:
        meanings = read_tags(sorted(names))
    except BrimfulError as error:
        raise BrimfulError(f"{path}: {error}; --columns.label names another column or key") from error
    unstarted, example = 0, ""
    begins = False
    for line, tags in rows:
        before = Tag(OUTSIDE, "")
        for tag in [meanings[name] for name in tags]:
            is_new = before.label != tag.label or before.mark in ("E", "S")
            begins = begins or (tag.mark in ("B", "S") and is_new)
            if tag.mark in ("I", "E") and is_new:
                unstarted += 1
                example = example or f"first in the text at line {line}: {tag.mark}-{tag.label}"
            before = tag
    if unstarted and begins:
        warn(
            f"{path}: {counted(unstarted, 'tag')} ({example}) continue a span that no tag began;"
            " each begins one, as in seqeval"
        )
    return meanings


class _Record(NamedTuple):
    number: int
    parts: SpanRecord
    text: str
    words: _Words


def _record_rows(path: Path, form: str, labelled: bool, layout: FileLayout) -> Iterator[_Row]:
    columnar = form in _COLUMNAR
    rows = all_rows(path, form, OWN_LAYOUT) if columnar else records(path)
    place = "row" if columnar else "line" if in_lines(path) else "record"
    rows = plain_rows(rows, path, place, layout.columns, labelled=labelled, spans=True)
    read: list[_Record] = []
    for number, row in rows:
        where = f"{path}, {place} {number}"
        if layout.rewrite is not None:
            try:
                row = layout.rewrite(row)
            except (AttributeError, KeyError, TypeError, ValueError) as error:
                raise BrimfulError(f"{where} is not in the layout {layout.name}") from error
        parts = read_record(row, where, columns=layout.columns, labelled=labelled)
        words: _Words = []
        text = parts.text
        if isinstance(text, list):
            text, words = joined(text)
        if labelled:
            read.append(_Record(number, parts, text, words))
        else:
            yield number, text, [], _occupied(words)
    yield from _labelled_rows(path, place, read, layout.offsets)


def _labelled_rows(path: Path, place: str, read: list[_Record], unit: str) -> Iterator[_Row]:
    tags = _meanings(path, [(each.number, each.parts.tags or []) for each in read])
    spans = _spans_in_characters(path, place, read, unit)
    clean = _Cleaning(path, place)
    for row, (number, parts, text, words) in enumerate(read):
        if parts.tags is not None:
            spans[row] = spans_of([tags[tag] for tag in parts.tags], words)
        yield number, text, clean.spans(spans[row], text, number), _occupied(words)
    clean.tell()


def _spans_in_characters(
    path: Path, place: str, read: Sequence[_Record], unit: str
) -> list[list[LabelledSpan]]:
    """The spans of each text.

    Raises:
        BrimfulError: a span is outside its text, or has another text at its offsets than its own.
    """
    texts = [each.text for each in read]
    places: list[Place] = []
    labels: list[str] = []
    for row, record in enumerate(read):
        for span in record.parts.spans:
            places.append(Place(row, span.start, span.end, span.text))
            labels.append(span.label)

    def where(row: int) -> str:
        return f"{place} {read[row].number}"

    spans: list[list[LabelledSpan]] = [[] for _ in read]
    placed = place_spans(path, "span", texts, places, unit, where)
    for (row, start, end, _), label, characters in zip(places, labels, placed, strict=True):
        if characters is None:
            raise BrimfulError(
                f"{path}, {where(row)}: the span {[start, end, label]} is not within its text of"
                f" {len(texts[row])} characters; --offsets utf-16 or --offsets bytes says that offsets count"
                " those"
            )
        spans[row].append(LabelledSpan(*characters, label))
    return spans


@dataclass
class _Cleaning:
    """What is wrong with the spans of a file, and spans without it."""

    path: Path
    place: str
    spaced: list[str] = field(default_factory=list)
    empty: list[str] = field(default_factory=list)
    overlapping: list[str] = field(default_factory=list)

    def spans(self, spans: Iterable[LabelledSpan], text: str, number: int) -> list[LabelledSpan]:
        """Spans in order, without white space at their ends, of which none overlap."""
        trimmed: list[LabelledSpan] = []
        for span in spans:
            part = text[span.start : span.end]
            start = span.start + len(part) - len(part.lstrip())
            end = start + len(part.strip())
            if start == end:
                self.empty.append(f"{self.place} {number}: {[*span]}")
                continue
            if part != part.strip():
                self.spaced.append(f"{self.place} {number}: {part!r:.60}")
            trimmed.append(LabelledSpan(start, end, span.label))
        apart: list[LabelledSpan] = []
        for span in sorted(trimmed, key=lambda span: (span.start, -span.end)):
            if not apart or span.start >= apart[-1].end:
                apart.append(span)
                continue
            before = apart[-1]
            inner, outer = quoted(text[span.start : span.end]), quoted(text[before.start : before.end])
            example = f"{self.place} {number}: {inner} {span.label} in {outer} {before.label}"
            self.overlapping.append(example)
        return apart

    def tell(self) -> None:
        """Warn of all that was changed, a line for each kind."""
        for examples, what in (
            (self.spaced, "read without the white space at the ends"),
            (self.empty, "left out that hold no character but white space"),
            (self.overlapping, "left out that overlap with another, which begins before or is longer"),
        ):
            if examples:
                warn(f"{self.path}: {counted(len(examples), 'span')} {what} ({examples[0]})")
