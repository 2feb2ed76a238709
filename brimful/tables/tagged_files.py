"""Files of texts with labelled spans: JSON with places of spans or with tags of words, or CoNLL columns."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from brimful.base.console import pluralise, warn
from brimful.base.errors import BrimfulError
from brimful.tables.annotations import plain_rows
from brimful.tables.conll import joined, read_sentences
from brimful.tables.file_rows import PLACES, NumberedRows, open_rows
from brimful.tables.layouts import OWN_LAYOUT, FileLayout
from brimful.tables.offsets import Place, place_spans, quoted
from brimful.tables.schemes import OUTSIDE, Tag, is_tag, read_tags, spans_of
from brimful.tables.span_rows import SpanRecord, key_of_spans, read_record
from brimful.tables.table import LabelledSpan, Table, Take, everything
from brimful.tables.text_files import readable, suffix_of, text_lines

_BY_RECORD = (".json", ".jsonl", ".ndjson", ".parquet", ".arrow")
_NEITHER = (".csv", ".xlsx", ".xml", ".ann")
_KEYS = ("tokens", "data")
"""Keys that show a record, beside the text."""
_SPACED = "read without the white space at the ends"
_EMPTY = "left out that hold no character but white space"
_OVERLAPPING = "left out that overlap with another, which begins before or is longer"


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
        suffix = suffix_of(path)
    if suffix in _NEITHER and (labelled or suffix != ".csv"):
        raise BrimfulError(
            f"{path}: texts with spans are .jsonl, .json or .parquet files, or CoNLL columns (.conll, .bio,"
            " .bmes, .txt, .tsv ...)"
        )
    place, numbered = "line", None
    with readable(path):
        if suffix in _BY_RECORD or (suffix == ".csv" and not labelled):
            form, numbered = open_rows(path, [layout.columns.text, *_KEYS], layout, every=True)
            place = PLACES.get(form, "line")
        rows = list(take(_rows(path, suffix, numbered, place, labelled, layout)))
    if not rows:
        raise BrimfulError(f"{path} has no texts")
    texts, spans, words = (list(column) for column in zip(*(row[1:] for row in rows), strict=True))
    numbers = np.array([row[0] for row in rows], dtype=np.int64) if place == "line" else None
    return TaggedTable(path, texts, None, spans if labelled else None, words, lines=numbers)


_Row = tuple[int, str, list[LabelledSpan], list[tuple[int, int]]]
"""The line of a text, the text, its spans, its words."""
_Records = Iterable[tuple[int, SpanRecord]]


def _rows(
    path: Path,
    suffix: str,
    numbered: NumberedRows | None,
    place: str,
    labelled: bool,
    layout: FileLayout,
) -> Iterator[_Row]:
    if numbered is not None:
        records = _records_of_json(path, numbered, place, labelled, layout)
    elif suffix == ".txt" and not labelled:
        records = _records_of_lines(path)
    else:
        records = _records_of_columns(path, labelled, layout)
    if labelled:
        records = list(records)
        all_spans = _spans(path, place, records, layout.offsets)
    for row, (number, record) in enumerate(records):
        words = [word for word in record.words if word[0] < word[1]]
        yield number, record.text, all_spans[row] if labelled else [], words


def _records_of_json(
    path: Path, rows: NumberedRows, place: str, labelled: bool, layout: FileLayout
) -> _Records:
    is_labelled, other_key = False, ""
    for number, row in plain_rows(rows, path, place, layout, labelled=labelled, spans=True):
        where = f"{path}, {place} {number}"
        record = read_record(row, where, columns=layout.columns, labelled=labelled)
        is_labelled = is_labelled or bool(record.spans)
        other_key = other_key or key_of_spans(row)
        yield number, record
    if labelled and other_key and not is_labelled:
        raise BrimfulError(f"{path} has its spans under another key: --columns.label {other_key} names it")


def _records_of_lines(path: Path) -> _Records:
    for number, line in enumerate(text_lines(path, newline="\n"), 1):
        yield number, SpanRecord(line.removesuffix("\n").removesuffix("\r"))


def _records_of_columns(path: Path, labelled: bool, layout: FileLayout) -> _Records:
    sentences, characters = read_sentences(path, labelled=labelled, columns=layout.columns)
    for line, words, tags in sentences:
        yield line, SpanRecord(*joined(words, characters), tags=tags)


def _spans(path: Path, place: str, records: _Records, unit: str) -> list[list[LabelledSpan]]:
    """The spans of each text.

    Raises:
        BrimfulError: a span is outside its text, or has another text at its offsets than its own.
    """
    places: list[Place] = []
    tags: list[tuple[str, list[str]]] = []
    for number, record in records:
        where = f"{place} {number}"
        tags.append((where, record.tags or []))
        places += [Place(where, record.text, span.start, span.end, span.text) for span in record.spans]
    meanings = _meanings(path, tags)
    placed = iter(place_spans(path, "span", places, unit))
    changed: dict[str, list[str]] = {_SPACED: [], _EMPTY: [], _OVERLAPPING: []}
    rows: list[list[LabelledSpan]] = []
    for number, record in records:
        if record.tags is None:
            spans = [LabelledSpan(*next(placed), span.label) for span in record.spans]
        else:
            spans = spans_of([meanings[tag] for tag in record.tags], record.words)
        rows.append(_apart(spans, record.text, f"{place} {number}", changed))
    for what, examples in changed.items():
        if examples:
            warn(f"{path}: {pluralise(len(examples), 'span')} {what} ({examples[0]})")
    return rows


def _apart(
    spans: Iterable[LabelledSpan], text: str, where: str, changed: dict[str, list[str]]
) -> list[LabelledSpan]:
    """Spans in order, without white space at their ends, of which none overlap."""
    trimmed: list[LabelledSpan] = []
    for span in spans:
        part = text[span.start : span.end]
        start = span.start + len(part) - len(part.lstrip())
        end = start + len(part.strip())
        if start == end:
            changed[_EMPTY].append(f"{where}: {[*span]}")
            continue
        if part != part.strip():
            changed[_SPACED].append(f"{where}: {part!r:.60}")
        trimmed.append(LabelledSpan(start, end, span.label))
    apart: list[LabelledSpan] = []
    for span in sorted(trimmed, key=lambda span: (span.start, -span.end)):
        if apart and span.start < apart[-1].end:
            before = apart[-1]
            inner, outer = quoted(text[span.start : span.end]), quoted(text[before.start : before.end])
            changed[_OVERLAPPING].append(f"{where}: {inner} {span.label} in {outer} {before.label}")
        else:
            apart.append(span)
    return apart


def _meanings(path: Path, rows: Sequence[tuple[str, Sequence[str]]]) -> dict[str, Tag]:
    """What the tags of a file mean. A warning counts those that continue a span which no tag began.

    Where no B or S begins a span of its own, the file's scheme (IO, IOB1, IOE) begins spans with I.
    """
    names = {tag for _, tags in rows for tag in tags}
    if names <= {OUTSIDE, OUTSIDE.lower()}:
        return dict.fromkeys(names, Tag(OUTSIDE, ""))
    unknown = [name for name in names if not is_tag(name)]
    if unknown and len(unknown) < len(names - {OUTSIDE}):
        where = next(where for where, tags in rows if unknown[0] in tags)
        raise BrimfulError(
            f"{path}, text at {where}: {unknown[0]!r:.60} is not a tag such as O, B-PER or I-PER: a header"
            " must be removed (tail -n +2), and --columns.label names another column or key"
        )
    try:
        meanings = read_tags(sorted(names))
    except BrimfulError as error:
        raise BrimfulError(f"{path}: {error}; --columns.label names another column or key") from error
    unstarted, example = 0, ""
    begins = False
    for where, tags in rows:
        before = Tag(OUTSIDE, "")
        for tag in [meanings[name] for name in tags]:
            is_new = before.label != tag.label or before.mark in ("E", "S")
            begins = begins or (tag.mark in ("B", "S") and is_new)
            if tag.mark in ("I", "E") and is_new:
                unstarted += 1
                example = example or f"first in the text at {where}: {tag.mark}-{tag.label}"
            before = tag
    if unstarted and begins:
        warn(
            f"{path}: {pluralise(unstarted, 'tag')} ({example}) continue a span that no tag began;"
            " each begins one, as in seqeval"
        )
    return meanings
