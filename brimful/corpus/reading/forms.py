"""What a file is: as its name says, unless its first bytes contradict the name."""

import json
import os
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from brimful.corpus.reading.archives import read_chunks
from brimful.corpus.reading.inputs import format_of

_HEAD = 1 << 16
# Lines behind one that is broken.
_LOOKED_AT = 20
_RECORDS = ("json", "jsonl", "csv", "tsv")
_TABLES = {b"PAR1": "parquet", b"ARROW1": "arrow"}
_FOREIGN = {
    b"PK\x03\x04": "a zip archive or an Office document",
    b"\xd0\xcf\x11\xe0": "an Office document",
    b"SQLite format 3\0": "a database of SQLite",
    b"\x89PNG": "a picture",
    b"\xff\xd8\xff": "a picture",
    b"{\\rtf": "a document in Rich Text Format",
}
_POINTER = b"version https://git-lfs.github.com/spec/"
_SAID = {
    "text": "text",
    "html": "HTML",
    "json": "JSON",
    "jsonl": "JSON lines",
    "csv": "CSV",
    "tsv": "TSV",
    "parquet": "Parquet",
    "arrow": "Arrow",
}
_PAGE = re.compile(r"\s*(<\?xml[^>]*>\s*)?(<!--.*?-->\s*)*<(!doctype\s+html|html|head|body)\b", re.I | re.S)
_MARKS = ((b"\xff\xfe", "utf-16-le"), (b"\xfe\xff", "utf-16-be"), (b"\xef\xbb\xbf", "utf-8"))


@dataclass(frozen=True)
class Form:
    """How a file is read.

    Attributes:
        kind: one of the values of `inputs.FORMATS`.
        note: a warning, where its content contradicts its name.
        wrong: why it is not read at all, and the remedy.
    """

    kind: str
    note: str = ""
    wrong: str = ""


def form_of(path: str, wanted: Sequence[str]) -> Form:
    """What a file is; what its name says, if it cannot be read.

    Args:
        wanted: the fields that hold text; a file that is named .txt is a table only if it has one.
    """
    try:
        state = os.stat(path)
        return _form(path, tuple(wanted), state.st_size, state.st_mtime_ns)
    except OSError:
        return Form(format_of(path))


@lru_cache(maxsize=4096)
def _form(path: str, wanted: tuple[str, ...], size: int, modified: int) -> Form:
    named = format_of(path)
    head = b""
    for chunk in read_chunks(path, Counter()):
        head += chunk[:_HEAD]
        if len(head) >= _HEAD:
            break
    for magic, kind in _TABLES.items():
        if head.startswith(magic):
            return Form(kind) if kind == named else _contradiction(named, kind)
    for magic, what in _FOREIGN.items():
        if head.startswith(magic):
            return Form(named, wrong=f"is {what}, not {_SAID[named]}: save it as text, CSV or JSON lines")
    if head.startswith(_POINTER):
        return Form(
            named, wrong=f"is a pointer of Git LFS, not {_SAID[named]}: get the file itself, git lfs pull"
        )
    if named in ("parquet", "arrow", "html"):
        return Form(named)
    text = _decoded(head)
    if named in _RECORDS and _PAGE.match(text):
        return Form(named, wrong=f"is an HTML page, not {_SAID[named]}: was it downloaded as it should be?")
    kind = _kind(text, named, wanted, complete=len(head) < _HEAD)
    if kind == named or {kind, named} == {"json", "jsonl"}:
        return Form(kind)
    return _contradiction(named, kind)


def _contradiction(named: str, kind: str) -> Form:
    return Form(kind, note=f"is {_SAID[kind]}, not {_SAID[named]}, and is read so")


def _decoded(head: bytes) -> str:
    for mark, name in _MARKS:
        if head.startswith(mark):
            return head[len(mark) :].decode(name, "replace")
    return head.decode("utf-8", "replace")


def _kind(text: str, named: str, wanted: tuple[str, ...], *, complete: bool) -> str:
    lines = [line for line in text.split("\n") if line.strip()]
    if not complete:
        lines = lines[:-1] or lines
    if not lines:
        return named
    begin = lines[0].lstrip(" \t\ufeff\r\x1e")[:1]
    if named not in ("json", "jsonl") and begin not in ("{", "["):
        return _delimited(lines, wanted) if named == "text" else named
    first, second = (_value(line) for line in [*lines, ""][:2])
    if named in ("json", "jsonl"):
        if first is None and begin in ("{", "["):
            is_long = not complete and len(lines) == 1
            is_broken = begin == "{" and lines[0].rstrip()[-1] not in "{[," and _has_record(lines[1:])
            return "jsonl" if is_broken else named if is_long and begin == "{" else "json"
        if isinstance(first, list) and first and isinstance(first[0], dict | list):
            return "json"
        if len(lines) > 1:
            return "jsonl" if lines[1].lstrip()[:1] == begin or type(first) is type(second) else named
        # A line alone is a record, or holds some.
        if not isinstance(first, dict) or any(name in first for name in wanted):
            return named
        return "json" if any(isinstance(value, list | dict) for value in first.values()) else named
    if isinstance(first, dict) and isinstance(second, dict):
        kind = "jsonl"
    elif begin == "[" and isinstance(record := _first_of(text), dict):
        kind, first = "json", record
    else:
        return named
    return kind if named != "text" or any(isinstance(first.get(name), str) for name in wanted) else named


def _has_record(lines: list[str]) -> bool:
    """Whether one of the first lines is a record, so that those before it are broken."""
    return any(line[0] == "{" and isinstance(_value(line), dict) for line in lines[:_LOOKED_AT])


def _value(line: str) -> object:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def _first_of(text: str) -> object:
    """The first element of a list."""
    rest = text[text.index("[") + 1 :].lstrip()
    try:
        value, end = json.JSONDecoder().raw_decode(rest)
    except (ValueError, RecursionError):
        return None
    return value if rest[end:].lstrip()[:1] in (",", "]") else None


def _delimited(lines: list[str], wanted: tuple[str, ...]) -> str:
    """ "tsv" or "csv", if the first line is a header with a column that is wanted, or columns are wanted by
    number and all lines have as many tabs; otherwise "text"."""
    if len(lines) < 3:
        return "text"
    tabs = {line.count("\t") for line in lines}
    if any(name.isdecimal() for name in wanted) and len(tabs) == 1 and tabs != {0}:
        return "tsv"
    for form, delimiter in (("tsv", "\t"), ("csv", ",")):
        names = [name.strip('" \r') for name in lines[0].split(delimiter)]
        if len(names) > 1 and {*wanted} & {*names}:
            return form
    return "text"
