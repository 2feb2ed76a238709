"""Files of texts with labelled spans: JSON with places of spans or with tags of words, or CoNLL columns.

The keys of a JSON record tell its form:

    text, spans                 Brimful's own lines; Prodigy's, with an answer
    text, label or labels       doccano's lines; Label Studio's JSON-MIN
    text, entities              doccano's lines with relations
    data, annotations           Label Studio's JSON
    tokens, ner_tags            Hugging Face datasets

`--columns.text` and `--columns.label` name other keys. docs/your-data.md has an example of each.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from brimful.base.errors import BrimfulError
from brimful.base.storage import readable
from brimful.corpus.reading.json_records import is_list_of
from brimful.tables.annotations import plain_rows
from brimful.tables.conll import join_words, read_sentences
from brimful.tables.file_rows import RECORD_SUFFIXES, NumberedRows, open_rows
from brimful.tables.layouts import OWN, OWN_LAYOUT, FileLayout, FileRow
from brimful.tables.offsets import Place, place_spans, quote
from brimful.tables.schemes import OUTSIDE, Tag, is_tag, read_tags, spans_of
from brimful.tables.table import LabelledSpan, Table, Take, lines_of, take_all
from brimful.tables.text_files import suffix_of, text_lines, warn_of

_OTHER_SUFFIXES = (".csv", ".xlsx", ".xml", ".ann")
"""Suffixes of files that are neither records nor CoNLL columns."""
_SPAN_KEYS = ("spans", "label", "labels", "entities")
_TRIMMED = "read without the white space at the ends"
_EMPTY = "left out that hold no character but white space"
_OVERLAPPING = "left out that overlap with another, which begins before or is longer"


@dataclass(frozen=True)
class TaggedTable(Table):
    """Texts whose labels are lists of spans, in order.

    Attributes:
        words: the places of a text's words; an empty list where the file has no words.
    """

    words: Sequence[list[tuple[int, int]]]

    types = {"labels": list[LabelledSpan], "words": list[tuple[int, int]]}  # noqa: RUF012


class FileSpan(NamedTuple):
    """A span of a file, with offsets in units that the file does not name."""

    start: int
    end: int
    label: str
    text: str | None


class TextRecord(NamedTuple):
    """A text of a file."""

    number: int  # its line, or its number from 1
    text: str
    words: Sequence[tuple[int, int]] = ()  # the places of its words, if it has tags
    spans: Sequence[FileSpan] = ()
    tags: list[str] | None = None  # one for each word; None for a text with spans


def read_tagged(
    path: Path | str, *, labelled: bool, layout: FileLayout = OWN_LAYOUT, take: Take = take_all
) -> TaggedTable:
    """Read texts with spans: JSON in lines or an array, Parquet, Arrow, or CoNLL columns in any other file.

    JSON has {"text": ..., "spans": [[start, end, label], ...]}, or the records of the documented tools for
    annotation. CoNLL columns hold one word a line with its tag (`conll`, `schemes`). Spaces join the words of
    a text, except between characters of scripts without spaces, and in files whose words are all characters.
    Without labels, a .txt file holds one text a line.

    Spaces at the ends of a span are left out of it. If spans overlap, the first and longest one stays.
    Warnings count both cases.

    Raises:
        BrimfulError: the file cannot be read or is empty; a line has no text, no spans, a span outside the
            text, or no tag.
    """
    path, place = Path(path), "line"
    with readable(path):
        suffix = suffix_of(path)
        if suffix in _OTHER_SUFFIXES and (labelled or suffix != ".csv"):
            raise BrimfulError(
                f"{path}: texts with spans are .jsonl, .json or .parquet files, or CoNLL columns (.conll,"
                " .bio, .bmes, .txt, .tsv ...)"
            )
        if suffix in (*RECORD_SUFFIXES, ".csv"):
            # A record has the text, or tokens, or data.
            place, rows = open_rows(path, [layout.columns.text, "tokens", "data"], layout, every=True)
            texts = _read_rows(path, rows, place, labelled, layout)
        elif suffix == ".txt" and not labelled:
            texts = _read_lines(path)
        else:
            texts = _read_columns(path, labelled, layout)
        records = list(take(texts))
    if not records:
        raise BrimfulError(f"{path} has no texts")
    numbers, contents, words = list[int](), list[str](), list[list[tuple[int, int]]]()
    for record in records:
        numbers.append(record.number)
        contents.append(record.text)
        words.append([word for word in record.words if word[0] < word[1]])  # JSON may have empty tokens
    spans = _read_spans(path, place, records, layout.offsets) if labelled else None
    return TaggedTable(path, contents, None, spans, words, lines=lines_of(place, numbers))


def _read_rows(
    path: Path, rows: NumberedRows, place: str, labelled: bool, layout: FileLayout
) -> Iterator[TextRecord]:
    """Yield the texts of a table or of JSON."""
    has_spans, other_key = False, ""
    for number, row in plain_rows(rows, path, place, layout, labelled=labelled, spans=True):
        record = _read_record(number, row, f"{path}, {place} {number}", layout, labelled)
        has_spans = has_spans or bool(record.spans)
        other_key = other_key or _find_span_key(row)
        yield record
    if labelled and other_key and not has_spans:
        raise BrimfulError(f"{path} has its spans under another key: --columns.label {other_key} names it")


def _find_span_key(row: FileRow) -> str:
    """Return the first key under which there are spans as Label Studio writes them, or an empty text."""
    for key, value in row.items():
        for span in value if isinstance(value, list) else []:
            if isinstance(span, dict) and "start" in span and "labels" in span:
                return key
    return ""


def _read_lines(path: Path) -> Iterator[TextRecord]:
    for number, line in enumerate(text_lines(path, newline="\n"), 1):
        yield TextRecord(number, line.removesuffix("\n").removesuffix("\r"))


def _read_columns(path: Path, labelled: bool, layout: FileLayout) -> Iterator[TextRecord]:
    sentences, are_characters = read_sentences(path, labelled=labelled, columns=layout.columns)
    for line, words, tags in sentences:
        yield TextRecord(line, *join_words(words, are_characters), tags=tags)


def _read_record(number: int, row: FileRow, where: str, layout: FileLayout, labelled: bool) -> TextRecord:
    columns = layout.columns
    text_key = columns.text
    # Prodigy's records have a text and also tokens, but these tokens are objects and not tagged words.
    if text_key == OWN.text and ("ner_tags" in row or "text" not in row):
        text_key = "tokens"
    text: Any = row.get(text_key)
    if is_list_of(text, str):
        tags = _tags_of_row(row, len(text), columns.label, where) if labelled else None
        return TextRecord(number, *join_words(text), tags=tags)
    if not isinstance(text, str):
        raise BrimfulError(f"{where} has no text: {_remedy(row)}")
    return TextRecord(number, text, spans=_spans_of_row(row, columns.label, where) if labelled else ())


def _remedy(row: FileRow) -> str:
    """Advice about a record in another form."""
    if isinstance(row.get("label"), dict):
        return "a label that is an object, as in CLUENER, is read with --layout clue/cluener"
    return (
        "records are text with spans (Prodigy), with label, labels or entities (doccano, Label Studio's"
        " JSON-MIN), data with annotations (Label Studio), tokens with ner_tags (Hugging Face datasets);"
        " --columns.text and --columns.label name other keys, and docs/your-data.md has converters"
    )


def _tags_of_row(row: FileRow, words: int, label: str, where: str) -> list[str]:
    tags = row.get("ner_tags" if label == OWN.label else label)
    if not isinstance(tags, list):
        raise BrimfulError(f"{where} has tokens and no tags: {_remedy(row)}")
    if len(tags) != words:
        raise BrimfulError(f"{where} has {words} tokens and {len(tags)} tags")
    if not is_list_of(tags, str):
        raise BrimfulError(
            f"{where}: its tags are numbers, and the file does not name them: write the names, or save the"
            " data set with to_parquet of Hugging Face datasets, which keeps them"
        )
    return tags


def _spans_of_row(row: FileRow, label: str, where: str) -> list[FileSpan]:
    keys = _SPAN_KEYS if label == OWN.label else (label,)
    present = [key for key in keys if isinstance(row.get(key), list)]  # the label of a class is a text
    if not present and "annotation_id" in row:
        return []  # JSON-MIN leaves out the key of a text without spans
    if not present:
        has_other_label = label == OWN.label and "label" in row
        empty = "" if has_other_label else f'; a text without any has "{keys[0]}": []'
        raise BrimfulError(f"{where} has no spans{empty}: {_remedy(row)}")
    if len(present) > 1:
        raise BrimfulError(f"{where} has {' and '.join(present)}: --columns.label names the one to read")
    spans: list[FileSpan] = []
    for value in row[present[0]]:
        spans += _read_span(value, where)
    return spans


def _read_span(value: Any, where: str) -> list[FileSpan]:
    """Return a span; several if it has several labels."""
    fields: FileRow = {}
    if isinstance(value, list) and len(value) in (3, 4):
        fields = dict(zip(("start", "end", "label", "text"), value, strict=False))
    elif isinstance(value, dict):
        fields = value
    start: Any = fields.get("start_offset", fields.get("start"))
    end: Any = fields.get("end_offset", fields.get("end"))
    labels, text = fields.get("labels", [fields.get("label")]), fields.get("text")
    has_places = type(start) is int and type(end) is int  # `isinstance` would take True for a number
    fault = ""
    if not has_places or not is_list_of(labels, str) or not isinstance(text, str | None):
        fault = "the span {:.80} is not [start, end, label], or an object with start, end and label"
    elif not all(label.strip() for label in labels):
        fault = "the label of the span {:.80} is empty"
    if fault:
        raise BrimfulError(f"{where}: {fault.format(json.dumps(value, ensure_ascii=False, default=str))}")
    return [FileSpan(start, end, label.strip(), text or None) for label in labels]  # "" says nothing


def _read_spans(path: Path, place: str, records: Sequence[TextRecord], unit: str) -> list[list[LabelledSpan]]:
    """Return the spans of each text."""
    meanings = _read_tag_set(path, place, records)
    # All spans are placed at once, since a refusal names the unit that fits the offsets of the whole file.
    places: list[Place] = []
    for record in records:
        for span in record.spans:
            where = f"{place} {record.number}"
            places.append(Place(where, record.text, span.start, span.end, span.text))
    located = iter(place_spans(path, "span", places, unit))
    changed: dict[str, list[str]] = {_TRIMMED: [], _EMPTY: [], _OVERLAPPING: []}
    rows: list[list[LabelledSpan]] = []
    for record in records:
        if record.tags is None:
            spans = [LabelledSpan(*next(located), span.label) for span in record.spans]
        else:
            spans = spans_of([meanings[tag] for tag in record.tags], record.words)
        rows.append(_separate_spans(spans, record.text, f"{place} {record.number}", changed))
    for fault, examples in changed.items():
        warn_of(path, "span", examples, f"{fault} ({{}})")
    return rows


def _separate_spans(
    spans: Iterable[LabelledSpan], text: str, where: str, changed: dict[str, list[str]]
) -> list[LabelledSpan]:
    """Return the spans in order, without white space at their ends, and without those that overlap with an
    earlier or longer one."""
    trimmed: list[LabelledSpan] = []
    for span in spans:
        part = text[span.start : span.end]
        start = span.start + len(part) - len(part.lstrip())
        end = start + len(part.strip())
        if start == end:
            changed[_EMPTY].append(f"{where}: {[*span]}")
            continue
        if part != part.strip():
            changed[_TRIMMED].append(f"{where}: {part!r:.60}")
        trimmed.append(LabelledSpan(start, end, span.label))
    separate: list[LabelledSpan] = []
    for span in sorted(trimmed, key=lambda span: (span.start, -span.end)):  # the longest of a start is first
        if separate and span.start < separate[-1].end:
            before = separate[-1]
            inner, outer = quote(text[span.start : span.end]), quote(text[before.start : before.end])
            changed[_OVERLAPPING].append(f"{where}: {inner} {span.label} in {outer} {before.label}")
        else:
            separate.append(span)
    return separate


def _read_tag_set(path: Path, place: str, records: Sequence[TextRecord]) -> dict[str, Tag]:
    """Return the meaning of each tag of a file."""
    names = set[str]().union(*(record.tags or () for record in records))
    if names <= {OUTSIDE, OUTSIDE.lower()}:  # a file may have no spans at all
        return dict.fromkeys(names, Tag(OUTSIDE, ""))
    unknown = sorted(name for name in names if not is_tag(name))
    if unknown and len(unknown) < len(names - {OUTSIDE}):  # otherwise the labels have no marks
        number = next(record.number for record in records if unknown[0] in (record.tags or ()))
        raise BrimfulError(
            f"{path}, text at {place} {number}: {unknown[0]!r:.60} is not a tag such as O, B-PER or I-PER: a"
            " header must be removed (tail -n +2), and --columns.label names another column or key"
        )
    try:
        return read_tags(sorted(names))
    except BrimfulError as error:
        raise BrimfulError(f"{path}: {error}; --columns.label names another column or key") from error
