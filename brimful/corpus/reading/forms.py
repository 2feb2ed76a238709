"""What a file is: as its name says, unless its first bytes contradict the name; then it is refused."""

import json
import os
import re
import shlex
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import chain

from brimful.base.console import visible
from brimful.base.errors import BrimfulError
from brimful.corpus.reading.archives import read_chunks
from brimful.corpus.reading.detection import by_mark
from brimful.corpus.reading.inputs import Input, format_of, split_suffix
from brimful.corpus.reading.many_texts import ManyTexts, find_many_texts

_HEAD_BYTES = 1 << 14
_RECORDS = {"json": "JSON", "jsonl": "JSON lines", "csv": "CSV", "tsv": "TSV"}
_NAMES = {**_RECORDS, "parquet": "Parquet", "arrow": "Arrow"}
_COLUMNS = {b"PAR1": "parquet", b"ARROW1": "arrow"}
_FOREIGN = {
    b"PK\x03\x04": "a zip archive or an Office document: save it as text, CSV or JSON lines",
    b"\xd0\xcf\x11\xe0": "an Office document: save it as text, CSV or JSON lines",
    b"SQLite format 3\0": "a database of SQLite: write its table as CSV, sqlite3 -csv -header",
    b"\x89PNG": "a picture",
    b"\xff\xd8\xff": "a picture",
    b"{\\rtf": "a document in Rich Text Format: save it as text",
    b"version https://git-lfs.github.com/spec/": "a pointer of Git LFS: get the file itself, git lfs pull",
}
_PAGE = re.compile(r"\s*(<\?xml[^>]*>\s*)?(<!--.*?-->\s*)*<(!doctype\s+html|html|head|body)\b", re.I | re.S)
# An object with a name, or a list of these or of lists of texts.
_JSON = re.compile(r'\s*(?:(?:\[\s*)?\{\s*"(?:[^"\\\n]|\\.)*"\s*:|\[\s*\[\s*")')
_LIST_OF_RECORDS = re.compile(r"\[\s*(?:[\[{]|$)")
_AROUND_VALUES = " \t\ufeff\r\x1e"


def form_of(path: str, wanted: Sequence[str]) -> str:
    """What a file is: one of the values of `inputs.FORMATS`; what its name says, if it cannot be read.

    Args:
        wanted: the fields that hold text, or the numbers of columns.

    Raises:
        BrimfulError: its first bytes contradict its name, or are of a form that is not read.
    """
    try:
        state = os.stat(path)
        kind, refusal = _form(path, tuple(wanted), state.st_size, state.st_mtime_ns)
    except OSError:
        return format_of(path)
    if refusal:
        raise BrimfulError(f"{path} {refusal}")
    return kind


def require_forms(inputs: Iterable[Input], wanted: Sequence[str]) -> None:
    """Refuse files before any is read.

    Raises:
        BrimfulError: as `form_of`, of the first of them and those that the same command converts; it counts
            the others.
    """
    refused: dict[str, str] = {}
    for item in inputs:
        try:
            form_of(item.path, wanted)
        except BrimfulError as error:
            refused[item.path] = str(error)
    if refused:
        first, message = next(iter(refused.items()))
        paths = [first]
        if form := many_texts_of(first):
            paths = [path for path in refused if many_texts_of(path) == form]
            message = form.refuse(paths)
        others = len(refused) - len(paths)
        more = f" ({others:,} more of the files are refused, too)" if others else ""
        raise BrimfulError(f"{message}{more}")


def many_texts_of(path: str) -> ManyTexts | None:
    """The form of a file that holds many texts; None for any other.

    Raises:
        BrimfulError, OSError: the file cannot be read.
    """
    if format_of(path) != "text":
        return None
    return find_many_texts(split_suffix(path)[0], _decoded(_read_head(path)))


@lru_cache(maxsize=4096)
def _form(path: str, wanted: tuple[str, ...], size: int, modified: int) -> tuple[str, str]:
    """The kind of a file, and why it is refused."""
    named = format_of(path)
    head = _read_head(path)
    for magic, kind in _COLUMNS.items():
        if head.startswith(magic):
            return kind, "" if kind == named else _name_it(path, kind)
    for magic, what in _FOREIGN.items():
        if head.startswith(magic):
            return named, f"is {what}"
    if named in ("parquet", "arrow", "html"):
        return named, ""
    text = _decoded(head)
    if named in _RECORDS and _PAGE.match(text):
        return named, f"is an HTML page, not {_RECORDS[named]}: was it downloaded as it should be?"
    lines = [line for line in re.split("[\r\n]+", text) if line.strip()]
    is_whole = len(head) < _HEAD_BYTES
    if not is_whole:
        lines = lines[:-1] or lines  # the last one may be cut
    if named in ("json", "jsonl"):
        return _json_form(lines, named, wanted, is_whole=is_whole), ""
    if _is_json_under_another_name(lines):
        return named, _name_it(path, _json_form(lines, "jsonl", wanted, is_whole=is_whole))
    return _text_form(path, text, lines, wanted) if named == "text" else (named, "")


def _read_head(path: str) -> bytes:
    head = b""
    for chunk in read_chunks(path, Counter()):
        head += chunk[:_HEAD_BYTES]
        if len(head) >= _HEAD_BYTES:
            break
    return head[:_HEAD_BYTES]


def _decoded(head: bytes) -> str:
    marked = by_mark(head)
    return head.decode(marked.codec if marked else "utf-8", "replace").lstrip("\ufeff")


def _name_it(path: str, kind: str) -> str:
    stem, compression = os.path.splitext(path) if split_suffix(path)[1] else (path, "")
    name = os.path.basename(f"{os.path.splitext(stem)[0]}.{kind}{compression}")
    return f"is {_NAMES[kind]}: name it {visible(shlex.quote(name))}"


def _value(line: str) -> object:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def _is_json(line: str) -> bool:
    return isinstance(_value(line), dict | list)


def _is_json_under_another_name(lines: list[str]) -> bool:
    """Do the first lines of a file that is named otherwise show records?"""
    first, second = ([line.strip(_AROUND_VALUES) for line in lines] + ["", ""])[:2]
    return _is_json(second) if second and _is_json(first) else bool(_JSON.match("\n".join(lines)))


def _json_form(lines: list[str], named: str, wanted: tuple[str, ...], *, is_whole: bool) -> str:
    """ "jsonl" where each line is a value, which can be read line by line; else "json"."""
    first, second = ([line.strip(_AROUND_VALUES) for line in lines] + ["", ""])[:2]
    if _LIST_OF_RECORDS.match(first):
        return "json"
    if not second:  # one object is a record, or holds some
        value = _value(first)
        is_record = isinstance(value, dict) and any(name in value for name in wanted)
        return "json" if is_whole and first.startswith("{") and not is_record else named
    # A broken line does not make a file another form.
    if _value(first) is not None or (first[:1] == second[:1] and _is_json(second)):
        return "jsonl"
    return "json" if first.startswith(("{", "[")) else named


def _text_form(path: str, text: str, lines: list[str], wanted: tuple[str, ...]) -> tuple[str, str]:
    """A .txt file is prose, unless it holds many texts or a table. A table without a header is read where
    columns are wanted by number."""
    if many_texts := find_many_texts(split_suffix(path)[0], text):
        return "text", many_texts.refuse([path])
    for kind, delimiter in (("tsv", "\t"), ("csv", ",")):
        header = [name.strip('"\ufeff ') for name in lines[0].split(delimiter)] if lines else []
        has_rows = len(lines) > 2 and all(line.count(delimiter) >= len(header) - 1 for line in lines[1:3])
        if has_rows and len(header) > 1 and {*header} & {*wanted}:
            return "text", _name_it(path, kind)
    widths = {line.count("\t") for line in lines}
    if len(lines) < 3 or len(widths) > 1 or widths == {0}:
        return "text", ""
    if any(name.isdecimal() for name in wanted):
        return "tsv", ""
    # A tab that begins a paragraph or ends a line divides no columns.
    cells = chain.from_iterable(line.split("\t") for line in lines)
    if all(map(str.strip, cells)):
        tables = "--columns.text 1 --columns.label 2"
        return "text", f"has columns between tabs: read them by number, --read.field 2 (of tables {tables})"
    return "text", ""
