"""Texts with labelled spans as the documented tools write them: the parts of one record.

The keys of a record tell its form:

    text, spans                 Brimful's own lines; Prodigy's, with an answer
    text, label or labels       doccano's lines; Label Studio's JSON-MIN
    text, entities              doccano's lines with relations
    data, annotations           Label Studio's JSON
    tokens, ner_tags            Hugging Face datasets

`--columns.text` and `--columns.label` name other keys. docs/data-forms.md has an example of each.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from brimful.base.errors import BrimfulError
from brimful.tables.conll import joined
from brimful.tables.layouts import OWN, Columns

_SPANS = ("spans", "label", "labels", "entities")
_FORMS = (
    "text with spans (Prodigy), with label, labels or entities (doccano, Label Studio's JSON-MIN), data with"
    " annotations (Label Studio), tokens with ner_tags (Hugging Face datasets)"
)


class GivenSpan(NamedTuple):
    """A span as it stands in a file, with offsets in units that the file does not name."""

    start: int
    end: int
    label: str
    text: str | None


@dataclass(frozen=True)
class SpanRecord:
    """One text.

    Attributes:
        words: the characters of each word; empty for a text that has no tags.
        tags: one for each word; None: there are spans.
    """

    text: str
    words: list[tuple[int, int]] = field(default_factory=list)
    spans: list[GivenSpan] = field(default_factory=list)
    tags: list[str] | None = None


def read_record(row: Mapping[str, Any], where: str, *, columns: Columns, labelled: bool) -> SpanRecord:
    """The parts of a record.

    Args:
        where: the place of the record, for messages.

    Raises:
        BrimfulError: it is in no form that is documented.
    """
    text_key = columns.text
    if text_key == OWN.text and ("ner_tags" in row or "text" not in row):
        text_key = "tokens"
    text = row.get(text_key)
    if isinstance(text, list) and _are_texts(text):
        tags = _tags(row, text, columns.label, where) if labelled else None
        return SpanRecord(*joined(text), tags=tags)
    if not isinstance(text, str):
        raise BrimfulError(f"{where} has no text: {_remedy(row)}")
    return SpanRecord(text, spans=_spans(row, columns.label, where) if labelled else [])


def _remedy(row: Mapping[str, Any]) -> str:
    """What to do about a record in another form."""
    if isinstance(row.get("label"), dict):
        return "a label that is an object, as in CLUENER, is read with --layout clue/cluener"
    return (
        f"records are {_FORMS}; --columns.text and --columns.label name other keys, and docs/data-forms.md"
        " has converters for other forms"
    )


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


def _tags(row: Mapping[str, Any], words: Sequence[str], label: str, where: str) -> list[str]:
    tags = row.get("ner_tags" if label == OWN.label else label)
    if not isinstance(tags, list):
        raise BrimfulError(f"{where} has tokens and no tags: {_remedy(row)}")
    if len(tags) != len(words):
        raise BrimfulError(f"{where} has {len(words)} tokens and {len(tags)} tags")
    if not _are_texts(tags):
        raise BrimfulError(
            f"{where}: its tags are numbers, and the file does not name them: write the names, or save the"
            " data set with to_parquet of Hugging Face datasets, which keeps them"
        )
    return tags


def _spans(row: Mapping[str, Any], label: str, where: str) -> list[GivenSpan]:
    keys = _SPANS if label == OWN.label else (label,)
    present = [key for key in keys if isinstance(row.get(key), list)]
    if not present and "annotation_id" in row:
        return []  # JSON-MIN leaves out what nobody annotated
    if not present:
        empty = (
            f'; a text without any has "{keys[0]}": []' if label != OWN.label or "label" not in row else ""
        )
        raise BrimfulError(f"{where} has no spans{empty}: {_remedy(row)}")
    if len(present) > 1:
        raise BrimfulError(f"{where} has {' and '.join(present)}: --columns.label names the one to read")
    spans: list[GivenSpan] = []
    for value in row[present[0]]:
        spans += _span(value, where)
    return spans


def key_of_spans(row: Mapping[str, Any]) -> str:
    """The first key under which there are spans as Label Studio writes them; empty if there is none."""
    for key, value in row.items():
        spans = value if isinstance(value, list) else []
        if any(isinstance(span, dict) and "start" in span and "labels" in span for span in spans):
            return key
    return ""


def _span(value: Any, where: str) -> list[GivenSpan]:
    """A span; several where it has several labels."""
    start: Any = None
    end: Any = None
    labels: Any = None
    text: Any = None
    if isinstance(value, list) and len(value) in (3, 4):
        start, end, label, text = [*value, None][:4]
        labels = [label]
    elif isinstance(value, dict):
        start = value.get("start_offset", value.get("start"))
        end = value.get("end_offset", value.get("end"))
        labels = value.get("labels", [value.get("label")])
        text = value.get("text")
    numbers = type(start) is int and type(end) is int
    if not numbers or not _are_texts(labels) or not isinstance(text, str | None):
        value_text = f"{json.dumps(value, ensure_ascii=False):.80}"
        raise BrimfulError(
            f"{where}: the span {value_text} is not [start, end, label], or an object with start,"
            " end and label"
        )
    if not all(label.strip() for label in labels):
        raise BrimfulError(
            f"{where}: the label of the span {json.dumps(value, ensure_ascii=False):.80} is empty"
        )
    return [GivenSpan(start, end, label.strip(), text or None) for label in labels]
