"""Files of texts with labelled spans: JSON lines with character spans, or CoNLL columns of words and tags."""

import json
import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from brimful.console import warn
from brimful.errors import BrimfulError
from brimful.tasks.layouts import OWN_LAYOUT, Layout
from brimful.tasks.spans import OUTSIDE, Span, spans_of_tags
from brimful.tasks.table import Table, Take, everything, json_lines
from brimful.tasks.text_files import readable, text_lines

CONLL = (".conll", ".bio", ".iob", ".iob2", ".bioes", ".txt", ".tsv")
_COLUMNS = re.compile(r"[^ \t\n]+")
_MARKS = ("B", "I", "E", "S", "L", "U")


@dataclass(frozen=True)
class TaggedTable(Table):
    """Texts whose labels are lists of spans, in order.

    Attributes:
        words: for each text of a CoNLL file the characters of its words; empty lists for other files.
    """

    words: Sequence[list[tuple[int, int]]]

    types = {"labels": list[Span], "words": list[tuple[int, int]]}  # noqa: RUF012


def read_tagged(
    path: Path | str, *, labelled: bool, layout: Layout = OWN_LAYOUT, take: Take = everything
) -> TaggedTable:
    """Read .jsonl lines {"text": ..., "spans": [[start, end, label], ...]}, or CoNLL columns.

    CoNLL columns hold one word a line, the word first and its tag (BIO, IOB1, BIOES or BILOU) last, with tabs
    or spaces between them and an empty line between texts. The words of a text are joined by spaces, except
    between characters of scripts that write none, and in texts of which every word is a character. Without
    labels, a .txt file holds one text a line.

    The files of a layout (CLUENER) are JSON lines whatever their names are. Of spans that overlap there, the
    first and longest stays, and a warning counts the others.

    Raises:
        BrimfulError: the file cannot be read or is empty; a line has no text, no spans, a span outside the
            text, one that overlaps with another, or a tag of another scheme.
    """
    path = Path(path)
    form = path.suffix.lower()
    lines = form == ".jsonl" or layout.rewrite is not None
    if not lines and form not in CONLL:
        raise BrimfulError(
            f"{path}: texts with spans are .jsonl files, or CoNLL columns in {', '.join(CONLL)}"
        )
    with readable(path):
        if lines:
            rows = list(take(_json_rows(path, labelled, layout)))
        elif form == ".txt" and not labelled:
            rows = list(take(_line_rows(path)))
        else:
            rows = list(take(_conll_rows(path, labelled)))
    if not rows:
        raise BrimfulError(f"{path} has no texts")
    texts, spans, words, ids = (list(column) for column in zip(*(row[1:] for row in rows), strict=True))
    numbers = np.array([row[0] for row in rows], dtype=np.int64)
    ids = [one for one in ids if one]
    named = ids if len(ids) == len(texts) else None
    return TaggedTable(path, texts, None, spans if labelled else None, words, lines=numbers, ids=named)


_Text = tuple[str, list[Span], list[tuple[int, int]], str]
_Row = tuple[int, str, list[Span], list[tuple[int, int]], str]
"""The line of a text, the text, its spans, its words, its id in a submission or nothing."""


def _json_rows(path: Path, labelled: bool, layout: Layout) -> Iterator[_Row]:
    dropped = 0
    for number, row in json_lines(path):
        where = f"{path}, line {number}"
        name = ""
        if layout.rewrite is not None:
            try:
                row = layout.rewrite(row)
            except (AttributeError, KeyError, TypeError, ValueError) as error:
                raise BrimfulError(f"{where} is not in the layout {layout.name}") from error
            given = len(row["spans"])
            row["spans"] = _apart(row["spans"])
            dropped += given - len(row["spans"])
            name = str(row.get(layout.id, ""))
        text = row.get("text")
        if not isinstance(text, str):
            raise BrimfulError(
                f'{where} has no text: a line is {{"text": ..., "spans": [[start, end, label]]}}'
            )
        yield number, text, _checked(row.get("spans"), text, where) if labelled else [], [], name
    if dropped and labelled:
        warn(f"{path}: {dropped:,} of its spans overlap with another and are left out")


def _apart(spans: list[Any]) -> list[Any]:
    """Those that begin after the last one that is kept; of the same beginning the longest."""
    kept: list[Any] = []
    for span in sorted(spans, key=lambda span: (span[0], -span[1])):
        if not kept or span[0] >= kept[-1][1]:
            kept.append(span)
    return kept


def _line_rows(path: Path) -> Iterator[_Row]:
    for number, line in enumerate(text_lines(path, newline="\n"), 1):
        yield number, line.removesuffix("\n").removesuffix("\r"), [], [], ""


def _checked(values: Any, text: str, where: str) -> list[Span]:
    """Spans of JSON, sorted."""
    if not isinstance(values, list):
        raise BrimfulError(f'{where} has no spans; write "spans": [] for a text without any')
    spans = []
    for value in values:
        if isinstance(value, dict):
            value = [value.get(key) for key in ("start", "end", "label")]
        if not isinstance(value, list) or [type(part) for part in value] != [int, int, str]:
            raise BrimfulError(f"{where}: the span {json.dumps(value)} is not [start, end, label]")
        span = Span(value[0], value[1], value[2].strip())
        if not span.label:
            raise BrimfulError(f"{where}: the label of the span {json.dumps(value)} is empty")
        if not 0 <= span.start < span.end <= len(text):
            raise BrimfulError(
                f"{where}: the span {list(span)} is not within its text of {len(text)} characters"
            )
        spans.append(span)
    spans.sort()
    for first, second in pairwise(spans):
        if second.start < first.end:
            raise BrimfulError(
                f"{where}: the spans {list(first)} and {list(second)} overlap; keep one of them"
            )
    return spans


def _conll_rows(path: Path, labelled: bool) -> Iterator[_Row]:
    words: list[str] = []
    tags: list[str] = []
    first = 0
    for number, line in enumerate(text_lines(path), 1):
        fields = _COLUMNS.findall(line)  # white space of other kinds, such as U+3000, can be a word
        if not fields or fields[0] == "-DOCSTART-":
            if words:
                yield first, *_text_of_words(words, tags)
                words, tags = [], []
            continue
        before, tab, _ = line.partition("\t")
        if tab and " " in before.strip(" "):
            raise BrimfulError(
                f"{path}, line {number} has a space in {before.strip(' ')!r:.60}, before its first tab:"
                " columns are divided by tabs or by spaces, not by both"
            )
        if labelled and len(fields) < 2:
            raise BrimfulError(f"{path}, line {number} has one column; expected a word and its tag")
        tag = fields[-1] if labelled else OUTSIDE
        mark, dash, label = tag.partition("-")
        if tag != OUTSIDE and not (mark in _MARKS and dash and label):
            raise BrimfulError(f"{path}, line {number}: {tag!r} is not a tag such as O, B-PER or I-PER")
        first = first if words else number
        words.append(fields[0])
        tags.append(tag)
    if words:
        yield first, *_text_of_words(words, tags)


def _text_of_words(words: list[str], tags: list[str]) -> _Text:
    text, places = "", []
    # Files of Chinese have one character a line, also of "2019" and "iPhone".
    characters = all(map(_is_character, words)) and any(_unspaced(word[0]) for word in words)
    for word in words:
        if text and not characters and not (_unspaced(text[-1]) and _unspaced(word[0])):
            text += " "
        places.append((len(text), len(text) + len(word)))
        text += word
    return text, spans_of_tags(tags, places), places, ""


def _unspaced(character: str) -> bool:
    """Whether a character belongs to a script without spaces between words, or to its punctuation."""
    return unicodedata.east_asian_width(character) in "WF" and not "\uac00" <= character <= "\ud7a3"


def _is_character(word: str) -> bool:
    """Whether a word is one character, also with marks that belong to it."""
    return all(unicodedata.category(mark) in ("Mn", "Mc", "Me", "Cf") for mark in word[1:])
