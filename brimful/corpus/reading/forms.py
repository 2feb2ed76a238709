"""What a file is: as its name says, unless its first bytes contradict the name; then it is refused."""

import json
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache

from brimful.base.console import quote_for_shell
from brimful.base.errors import BrimfulError
from brimful.corpus.cleaning.markup import begins_a_page
from brimful.corpus.reading.archives import member_of, read_chunks
from brimful.corpus.reading.charsets import Decoder
from brimful.corpus.reading.dialects import are_numbers
from brimful.corpus.reading.inputs import Input, format_of, split_suffix
from brimful.corpus.reading.lines import recognised
from brimful.corpus.reading.many_texts import ManyTexts, find_many_texts

_HEAD_CHARACTERS = 1 << 14
# The first line of a file of JSON is looked at even if it is longer than the head.
_LONGEST_LINE = 1 << 24
_RECORDS = {"json": "JSON", "jsonl": "JSON lines", "csv": "CSV", "tsv": "TSV"}
_NAMES = {**_RECORDS, "parquet": "Parquet", "arrow": "Arrow"}
_COLUMNS = {b"PAR1": "parquet", b"ARROW1": "arrow"}
_FOREIGN = {
    b"PK\x03\x04": "a zip archive or an Office document: save it as text, CSV or JSON lines",
    b"\xd0\xcf\x11\xe0": "an Office document: save it as text, CSV or JSON lines",
    b"SQLite format 3\0": "a database of SQLite: write its table as CSV, sqlite3 -csv -header",
    b"\x89PNG": "a picture",
    b"\xff\xd8\xff": "a picture",
    b"%PDF-": "a PDF document: write its text, pdftotext -enc UTF-8",
    b"{\\rtf": "a document in Rich Text Format: save it as text",
    b"version https://git-lfs.github.com/spec/": "a pointer of Git LFS: get the file itself, git lfs pull",
}
_LIST_OF_RECORDS = re.compile(r"\[\s*(?:[\[{]|$)")
_AROUND_VALUES = " \t\ufeff\r\n\x1e"
_NUMBERED = re.compile(r"\d+\t[^\t]*[^\t\s]")
_NEARLY_ALL = 0.95
_DECODER = json.JSONDecoder()


def form_of(path: str, wanted: Sequence[str], encoding: str = "utf-8") -> str:
    """What a file is: one of the values of `inputs.FORMATS`; what its name says, if it cannot be read.

    Args:
        wanted: the fields that hold text, or the numbers of columns.
        encoding: what it is said to be written in.

    Raises:
        BrimfulError: its first bytes contradict its name, or are of a form that is not read.
    """
    try:
        state = os.stat(path)
        kind, refusal = _form(path, tuple(wanted), encoding, state.st_size, state.st_mtime_ns)
    except OSError:
        return format_of(path)
    if refusal:
        raise BrimfulError(f"{path} {refusal}")
    return kind


def require_forms(inputs: Iterable[Input], wanted: Sequence[str], encoding: str) -> None:
    """Refuse files before any is read.

    Raises:
        BrimfulError: as `form_of`, of the first of them and those that the same command converts; it counts
            the others.
    """
    refused: dict[str, str] = {}
    for item in inputs:
        try:
            form_of(item.path, wanted, encoding)
        except BrimfulError as error:
            refused[item.path] = str(error)
    if refused:
        first, message = next(iter(refused.items()))
        paths = [first]
        if form := many_texts_of(first, encoding):
            paths = [path for path in refused if many_texts_of(path, encoding) == form]
            message = f"{first} {form.refuse(paths, encoding)}"
        others = len(refused) - len(paths)
        more = f" ({others:,} more of the files are refused, too)" if others else ""
        raise BrimfulError(f"{message}{more}")


def many_texts_of(path: str, encoding: str) -> ManyTexts | None:
    """The form of a file that holds many texts; None for any other.

    Raises:
        BrimfulError, OSError: the file cannot be read.
    """
    if format_of(path) != "text":
        return None
    return _many_texts(path, _read_text(*_read_head(path), encoding)[0])


def _many_texts(path: str, text: str) -> ManyTexts | None:
    return None if begins_a_page(text) else find_many_texts(split_suffix(path)[0], text)


@lru_cache(maxsize=4096)
def _form(path: str, wanted: tuple[str, ...], encoding: str, size: int, modified: int) -> tuple[str, str]:
    """The kind of a file, and why it is refused."""
    named = format_of(member_of(path) if split_suffix(path) == ("", ".zip") else path)
    head, chunks = _read_head(path)
    for magic, kind in _COLUMNS.items():
        if head.startswith(magic):
            return kind, "" if kind == named else _name_it(path, kind)
    for magic, what in _FOREIGN.items():
        if head.startswith(magic):
            return named, f"is {what}"
    if named in ("parquet", "arrow", "html"):
        return named, ""
    text, is_whole = _read_text(head, chunks, encoding)
    if named in _RECORDS and begins_a_page(text):
        return named, f"is an HTML page, not {_RECORDS[named]}: was it downloaded as it should be?"
    lines = [line for line in re.split("[\r\n]+", text) if line.strip()]
    if not is_whole:
        lines = lines[:-1] or lines  # the last one may be cut
    if named in ("json", "jsonl"):
        return _json_form(text, lines, named, wanted, is_whole=is_whole), ""
    if _holds_records(text, is_whole=is_whole):
        return named, _name_it(path, _json_form(text, lines, "jsonl", wanted, is_whole=is_whole))
    if named != "text":
        return named, ""
    if many_texts := _many_texts(path, text):
        return named, many_texts.refuse([path], encoding)
    return _text_form(path, lines, wanted)


def _read_head(path: str) -> tuple[bytes, Iterator[bytes]]:
    """The first bytes of a file, and what follows."""
    chunks = read_chunks(path, Counter())
    head = b""
    while len(head) < _HEAD_CHARACTERS and (chunk := next(chunks, b"")):
        head += chunk
    return head, chunks


def _read_text(head: bytes, chunks: Iterator[bytes], encoding: str) -> tuple[str, bool]:
    """The first characters of a file, of JSON its whole first line, and whether this is all of it."""
    decoder = Decoder(recognised(head, encoding, False, Counter()))
    piece = text = decoder.decode(head).lstrip(_AROUND_VALUES)
    may_be_json = text.startswith(("{", "[")) and not _LIST_OF_RECORDS.match(text)  # which shows at once
    while may_be_json and "\n" not in piece and len(text) < _LONGEST_LINE and (chunk := next(chunks, b"")):
        piece = decoder.decode(chunk)
        text += piece
    end = max(_HEAD_CHARACTERS, text.find("\n") + 1 if may_be_json else 0)
    return text[:end], len(text) <= end and not next(chunks, b"")


def _name_it(path: str, kind: str) -> str:
    stem, compression = os.path.splitext(path) if split_suffix(path)[1] else (path, "")
    name = os.path.basename(f"{os.path.splitext(stem)[0]}.{kind}{compression}")
    return f"is {_NAMES[kind]}: name it {quote_for_shell(name)}"


def _value(line: str) -> object:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def _is_record(value: object) -> bool:
    """Is a value of JSON an object, or a list of objects, texts or lists?"""
    if not value or not isinstance(value, dict | list):
        return False
    return all(isinstance(each, dict | list | str) for each in value)  # names of an object are texts


def _holds_records(text: str, *, is_whole: bool) -> bool:
    """Are the first two values of a text, or the only one, records of JSON, as far as the text goes?"""
    place = 0
    for _ in range(2):
        try:
            value, end = _DECODER.raw_decode(text, place)
        except json.JSONDecodeError as error:
            is_cut = error.msg.startswith("Unterminated") or error.pos >= len(text) - len("\\uFFFF")
            return is_cut and not is_whole and text.startswith(("{", "["))
        except (ValueError, RecursionError):  # too deep, or a number of thousands of digits
            return False
        if not _is_record(value):
            return False
        place = len(text) - len(text[end:].lstrip(_AROUND_VALUES))
        if place == len(text):
            break
    return True


def _json_form(text: str, lines: list[str], named: str, wanted: tuple[str, ...], *, is_whole: bool) -> str:
    """ "jsonl" where each line is a value, which can be read line by line; else "json"."""
    lines = [line.strip(_AROUND_VALUES) for line in lines] or [""]
    first = lines[0]
    if _LIST_OF_RECORDS.match(first):
        return "json"
    value = _value(first)
    if len(lines) == 1 and is_whole and isinstance(value, dict):  # a record, or it holds some
        return named if any(name in value for name in wanted) else "json"
    if value is not None and (len(lines) > 1 or not is_whole):
        return "jsonl"
    if _holds_records(text, is_whole=is_whole):
        return "json"
    # A broken line does not make a file another form.
    has_lines = any(line[:1] == first[:1] and _is_record(_value(line)) for line in lines)
    return "jsonl" if has_lines else named


def _text_form(path: str, lines: list[str], wanted: tuple[str, ...]) -> tuple[str, str]:
    """A .txt file is prose, unless it holds a table, which is read where columns are wanted by number."""
    for kind, delimiter in (("tsv", "\t"), ("csv", ",")):
        header = [name.strip('"\ufeff ') for name in lines[0].split(delimiter)] if lines else []
        has_rows = len(lines) > 2 and all(line.count(delimiter) >= len(header) - 1 for line in lines[1:3])
        is_named = {*header} & {*wanted} and not are_numbers(wanted, header)
        if has_rows and len(header) > 1 and is_named:
            return "text", _name_it(path, kind)
    if any(name.isdecimal() for name in wanted):
        has_columns = 2 * sum("\t" in line.strip() for line in lines) > len(lines)
        return "tsv" if has_columns else "text", ""
    numbered = sum(bool(_NUMBERED.match(line)) for line in lines)
    if len(lines) > 2 and numbered >= _NEARLY_ALL * len(lines):
        tables = "--columns.text 1 --columns.label 2"
        return "text", f"has columns between tabs: read them by number, --read.field 2 (of tables {tables})"
    return "text", ""
