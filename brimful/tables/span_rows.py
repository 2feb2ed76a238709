"""Texts with labelled spans as tools for annotation write them: the parts of one record.

Read are our own lines, doccano's, Label Studio's (whole or in short), Prodigy's, spaCy's and Dataturks'
records, CLUENER's and CBLUE's, and tokens with tags as in Hugging Face datasets. What the offsets of spans
mean is for `offsets` to say, when all records are known.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from brimful.base.errors import BrimfulError


class Given(NamedTuple):
    """A span as it stands in a file: offsets that count what only the whole file tells."""

    start: int
    end: int
    label: str
    text: str | None


class SpanRecord(NamedTuple):
    """One text.

    Attributes:
        text: the text, or the words it is made of.
        spans: with offsets in the text, or in the words.
        tags: one for each word, or each character of the text; None: there are spans.
        several: how many annotations there were of which one was read.
    """

    text: str | list[str]
    spans: list[Given]
    tags: list[str] | None = None
    several: int = 1


_TEXTS = ("text", "content", "sentence", "data", "raw", "raw_text", "originalText", "document")
_WORDS = ("tokens", "words", "tokenized_text", "text", "sentence", "chars", "content")
_TAGS = ("ner_tags", "tags", "labels", "label", "ner", "bio", "ner_tag", "tag", "iob", "fine_ner_tags")
_SPANS = ("spans", "entities", "label", "labels", "entity", "annotations", "annotation", "entity_list", "ner")
_START = ("start", "startoffset", "begin", "beginoffset", "from", "startidx", "startindex", "startpos",
          "startposition", "startchar", "charstart", "startchr", "offset", "beg", "b", "s")  # fmt: skip
_END = ("end", "endoffset", "stop", "to", "endidx", "endindex", "endpos", "endposition", "endchar", "charend",
        "endchr", "e")  # fmt: skip
_LENGTH = ("length", "len")
_LABEL = ("label", "labels", "type", "labeltype", "entitytype", "entitygroup", "tag", "category", "ner",
          "class", "entitylabel", "entity")  # fmt: skip
_OWN = ("text", "word", "surface", "surfaceform", "mention", "span", "string", "form", "phrase", "entitytext",
        "value", "entity", "name")  # fmt: skip
_PAIR = ("position", "pos", "offsets", "indices", "loc")


def read_record(
    row: Any, where: str, *, labelled: bool, names: Mapping[str, Sequence[str]]
) -> SpanRecord | None:
    """The parts of a record; None for one that its annotator rejected.

    Args:
        where: the place of the record, for messages.
        names: of tags that are numbers, by their column.

    Raises:
        BrimfulError: it has no text or no spans, or a span without offsets or label.
    """
    if isinstance(row, list) and len(row) == 2 and isinstance(row[0], str) and isinstance(row[1], dict):
        row = {"text": row[0], **row[1]}  # spaCy's training data
    if not isinstance(row, dict):
        raise BrimfulError(f"{where} must be a JSON object, not {json.dumps(row, ensure_ascii=False):.40}")
    if labelled and row.get("answer") in ("reject", "ignore"):  # Prodigy
        return None
    if isinstance(row.get("data"), dict):  # Label Studio
        return _label_studio(row, where, labelled)
    words = next((row[key] for key in _WORDS if _is_words(row.get(key))), None)
    text = next((row[key] for key in _TEXTS if isinstance(row.get(key), str)), None)
    key = next((key for key in _TAGS if _is_tags(row.get(key), words, text)), None)
    tags = None if key is None else _named(row[key], names.get(key), where)
    if words is not None and (text is None or tags is not None):
        if not labelled:
            return SpanRecord(words, [])
        if tags is not None:
            return SpanRecord(words, [], tags)
        return SpanRecord(words, _spans(row, where))
    if text is None:
        raise BrimfulError(f'{where} has no text: a line is {{"text": ..., "spans": [[start, end, label]]}}')
    if not labelled:
        return SpanRecord(text, [])
    if tags is not None:
        return SpanRecord(text if len(tags) == len(text) else text.split(), [], tags)
    return SpanRecord(text, _spans(row, where))


def _is_words(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(word, str) for word in value)


def _is_tags(value: Any, words: list[str] | None, text: str | None) -> bool:
    """Whether a value has a tag for each word, or for each character or word of the text."""
    if not isinstance(value, list) or not value:
        return False
    if not (all(type(tag) is int for tag in value) or all(isinstance(tag, str) for tag in value)):
        return False
    if words is not None and value is not words:
        return len(value) == len(words)
    return text is not None and len(value) in (len(text), len(text.split()))


def _named(tags: list[Any], names: Sequence[str] | None, where: str) -> list[str]:
    """Tags as texts.

    Raises:
        BrimfulError: they are numbers without names.
    """
    if not isinstance(tags[0], int):
        return tags
    if names is None:
        raise BrimfulError(
            f"{where}: its tags are numbers, and the file does not say which: write their names, or save the"
            " data set with to_parquet of Hugging Face datasets, which keeps them"
        )
    if wrong := next((tag for tag in tags if not 0 <= tag < len(names)), None):
        raise BrimfulError(f"{where}: the tag {wrong} is none of the {len(names)} that the file names")
    return [names[tag] for tag in tags]


def _label_studio(row: Mapping[str, Any], where: str, labelled: bool) -> SpanRecord:
    """A task of Label Studio's JSON: of several annotations the first that was not cancelled."""
    data = row["data"]
    text = data.get("text")
    if not isinstance(text, str):
        texts = [value for value in data.values() if isinstance(value, str)]
        if len(texts) != 1:
            raise BrimfulError(f"{where} has no text: data of Label Studio needs the key text")
        text = texts[0]
    if not labelled:
        return SpanRecord(text, [])
    made = row.get("annotations", row.get("completions"))
    if not isinstance(made, list):
        raise BrimfulError(f"{where} has no annotations")
    kept = [each for each in made if isinstance(each, dict) and not each.get("was_cancelled")]
    kept.sort(key=lambda each: not each.get("ground_truth"))
    if not kept:
        raise BrimfulError(f"{where} has no annotation: leave such tasks out of the export")
    results = [part for part in kept[0].get("result", []) if isinstance(part, dict)]
    places = [part for part in results if isinstance(part.get("value"), dict) and "start" in part["value"]]
    return SpanRecord(text, _spans({"spans": [part["value"] for part in places]}, where), None, len(kept))


def _spans(row: Mapping[str, Any], where: str) -> list[Given]:
    key = next((key for key in _SPANS if isinstance(row.get(key), list | dict)), None)
    if key is None:
        raise BrimfulError(f'{where} has no spans; write "spans": [] for a text without any')
    value = row[key]
    if isinstance(value, dict):
        return [*_by_label(value, where)]
    found: list[Given] = []
    for part in value:
        found += _span(part, where)
    return found


def _by_label(value: Mapping[str, Any], where: str) -> Iterator[Given]:
    """Spans of CLUENER: by label, then by text."""
    for label, places in value.items():
        texts = places.items() if isinstance(places, dict) else [(None, places)]
        for text, pairs in texts:
            for pair in pairs if isinstance(pairs, list) else [pairs]:
                if not _is_pair(pair):
                    shown = json.dumps({label: places}, ensure_ascii=False)
                    raise BrimfulError(f"{where}: {shown:.80} is not [start, end] by label")
                yield _checked(pair[0], pair[1], label, text, pair, where)


def _is_pair(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(_number(each) is not None for each in value)


def _number(value: Any) -> int | None:
    """A whole number, also as a text or with a fraction of 0."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value) if not isinstance(value, int) else value
        return int(number) if number == int(number) else None
    except (ValueError, OverflowError):
        return None


def _span(value: Any, where: str) -> list[Given]:
    """A span in one of its forms; several where it has several labels or places."""
    if isinstance(value, list):
        return [_of_list(value, where)]
    if not isinstance(value, dict):
        raise _no_span(value, where)
    if isinstance(value.get("value"), dict):
        value = value | value["value"]
    if isinstance(value.get("points"), list):  # Dataturks
        labels = _labels(value)
        return [_checked(*_place(point, value, where), label, _own(point, ""), value, where)
                for point in value["points"] for label in labels]  # fmt: skip
    start, end = _place(value, value, where)
    labels = _labels(value)
    named = next((key for key in value if _key(key) in _LABEL and isinstance(value[key], str)), "")
    return [_checked(start, end, label, _own(value, named), value, where) for label in labels or [""]]


def _key(name: Any) -> str:
    return str(name).replace("_", "").replace("-", "").lower()


def _get(value: Mapping[str, Any], wanted: Sequence[str], fits: Callable[[Any], bool]) -> Any:
    keys = {_key(key): key for key in value}
    return next((value[keys[name]] for name in wanted if name in keys and fits(value[keys[name]])), None)


def _place(value: Any, whole: Any, where: str) -> tuple[int, int]:
    if isinstance(value, dict):
        start = _number(_get(value, _START, lambda each: _number(each) is not None))
        end = _number(_get(value, _END, lambda each: _number(each) is not None))
        if start is not None and end is None:
            length = _number(_get(value, _LENGTH, lambda each: _number(each) is not None))
            end = None if length is None else start + length
        pair = _get(value, _PAIR, _is_pair) if start is None else None
        if pair is not None:
            start, end = _number(pair[0]), _number(pair[1])
        if start is not None and end is not None:
            return start, end
    raise _no_span(whole, where)


def _labels(value: Mapping[str, Any]) -> list[str]:
    found = _get(value, _LABEL, lambda each: isinstance(each, str | list))
    return [label for label in ([found] if isinstance(found, str) else found or []) if isinstance(label, str)]


def _own(value: Mapping[str, Any], label_key: str) -> str | None:
    """The text that a span says it has."""
    rest = {key: each for key, each in value.items() if key != label_key}
    return _get(rest, _OWN, lambda each: isinstance(each, str) and bool(each.strip()))


def _of_list(value: list[Any], where: str) -> Given:
    """[start, end, label], with the numbers before or behind the label, and perhaps its own text."""
    numbers = [each for each in value if type(each) is int]
    texts = [each for each in value if isinstance(each, str)]
    if len(numbers) != 2 or len(numbers) + len(texts) != len(value) or len(texts) not in (1, 2):
        raise _no_span(value, where)
    own = texts[1] if len(texts) == 2 else None
    return _checked(numbers[0], numbers[1], texts[0], own, value, where)


def _checked(start: Any, end: Any, label: str, own: str | None, value: Any, where: str) -> Given:
    label = label.strip()
    if not label:
        raise BrimfulError(f"{where}: the label of the span {_shown(value)} is empty")
    first, last = _number(start), _number(end)
    if first is None or last is None:
        raise _no_span(value, where)
    return Given(first, last, label, own)


def _no_span(value: Any, where: str) -> BrimfulError:
    return BrimfulError(f"{where}: the span {_shown(value)} is not [start, end, label]")


def _shown(value: Any) -> str:
    return f"{json.dumps(value, ensure_ascii=False):.80}"
