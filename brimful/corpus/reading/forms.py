"""The form of a file: its name decides; the file is refused if its first bytes contradict the name."""

import json
import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import lru_cache

from brimful.base.console import quote_for_shell
from brimful.base.errors import BrimfulError
from brimful.corpus.reading.archives import member_of, read_chunks
from brimful.corpus.reading.charsets import Decoder
from brimful.corpus.reading.dialects import are_numbers
from brimful.corpus.reading.inputs import format_of, split_suffix
from brimful.corpus.reading.json_records import AROUND_VALUES, is_list_of
from brimful.corpus.reading.lines import read_head, recognise_charset
from brimful.corpus.reading.many_texts import ManyTexts, begins_a_page, find_many_texts

_HEAD_CHARACTERS = 1 << 14
# The first line of a file of JSON is looked at even if it is longer than the head.
_LONGEST_LINE_CHARACTERS = 1 << 24
_FORM_NAMES = {"json": "JSON", "jsonl": "JSON lines", "csv": "CSV", "tsv": "TSV"}
_FORM_NAMES |= {"parquet": "Parquet", "arrow": "Arrow"}
_COLUMN_MAGIC = {b"PAR1": "parquet", b"ARROW1": "arrow"}
_FOREIGN_MAGIC = {
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
_NUMBERED_LINE = re.compile(r"\d+\t[^\t]*[^\t\s]")
_LEAST_NUMBERED_SHARE = 0.95
_BY_NUMBER = "OPTIONS"
_DECODER = json.JSONDecoder()


def form_of(
    path: str, fields: Sequence[str], encoding: str = "utf-8", *, by_number: str = "--read.field 2"
) -> str:
    """Return the form of a file, a value of `inputs.FORMATS`. If the file cannot be read, its name decides.

    Args:
        fields: the fields that hold text, or the numbers of columns.
        encoding: the charset that the user names.
        by_number: the options with which a message proposes to name columns by their numbers.

    Raises:
        BrimfulError: the file's first bytes contradict its name, or show a form that is not read.
    """
    try:
        state = os.stat(path)
        form, refusal = _find_form(path, tuple(fields), encoding, state.st_size, state.st_mtime_ns)
    except OSError:
        return format_of(path)
    if refusal:
        raise BrimfulError(f"{path} {refusal.replace(_BY_NUMBER, by_number)}")
    return form


def many_texts_of(path: str, encoding: str) -> ManyTexts | None:
    """Return the form of a file that holds many texts; None for any other file.

    Raises:
        BrimfulError, OSError: the file cannot be read.
    """
    if format_of(path) != "text":
        return None
    chunks = read_chunks(path, Counter())
    text, _ = _read_text(read_head(chunks, _HEAD_CHARACTERS), chunks, encoding)
    return _find_many_texts(path, text)


def _find_many_texts(path: str, text: str) -> ManyTexts | None:
    return None if begins_a_page(text) else find_many_texts(split_suffix(path)[0], text)


# Every file is looked at before the first is read, and again when it is read.
@lru_cache(maxsize=4096)
def _find_form(
    path: str, fields: tuple[str, ...], encoding: str, size: int, modified: int
) -> tuple[str, str]:
    """Return the form of a file, and the reason for refusing it, or an empty text."""
    named = format_of(member_of(path) if split_suffix(path) == ("", ".zip") else path)
    chunks = read_chunks(path, Counter())
    head = read_head(chunks, _HEAD_CHARACTERS)
    for magic, form in _COLUMN_MAGIC.items():
        if head.startswith(magic):
            return form, "" if form == named else _name_it(path, form)
    for magic, description in _FOREIGN_MAGIC.items():
        if head.startswith(magic):
            return named, f"is {description}"
    if named in ("parquet", "arrow", "html"):
        return named, ""
    text, is_whole = _read_text(head, chunks, encoding)
    if named != "text" and begins_a_page(text):
        return named, f"is an HTML page, not {_FORM_NAMES[named]}: was it downloaded as it should be?"
    lines = list(filter(str.strip, re.split("[\r\n]+", text)))
    if not is_whole:
        lines = lines[:-1] or lines  # the last one may be cut
    if named in ("json", "jsonl"):
        return _find_json_form(text, lines, named, fields, is_whole=is_whole), ""
    if _holds_records(text, is_whole=is_whole):
        return named, _name_it(path, _find_json_form(text, lines, "jsonl", fields, is_whole=is_whole))
    if named != "text":
        return named, ""
    many_texts = _find_many_texts(path, text)
    if many_texts:
        return named, many_texts.refuse([path], encoding)
    return _find_text_form(path, lines, fields)


def _read_text(head: bytes, chunks: Iterator[bytes], encoding: str) -> tuple[str, bool]:
    """Return the first characters of a file (of JSON the first line), and whether they are the whole file."""
    decoder = Decoder(recognise_charset(head, encoding, False, Counter()))
    piece = text = decoder.decode(head).lstrip(AROUND_VALUES)
    # An array of records is recognised by its beginning, without the rest of the line.
    needs_line = text.startswith(("{", "[")) and not _LIST_OF_RECORDS.match(text)
    while needs_line and "\n" not in piece and len(text) < _LONGEST_LINE_CHARACTERS:
        chunk = next(chunks, b"")
        if not chunk:
            break
        piece = decoder.decode(chunk)
        text += piece
    end = max(_HEAD_CHARACTERS, text.find("\n") + 1) if needs_line else _HEAD_CHARACTERS
    return text[:end], len(text) <= end and not next(chunks, b"")


def _name_it(path: str, form: str) -> str:
    stem, compression = os.path.splitext(path) if split_suffix(path)[1] else (path, "")
    name = os.path.basename(f"{os.path.splitext(stem)[0]}.{form}{compression}")
    return f"is {_FORM_NAMES[form]}: name it {quote_for_shell(name)}"


def _parse(line: str) -> object:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def _is_record(value: object) -> bool:
    """Return whether a value of JSON is an object, or a list of objects, texts or lists."""
    return bool(value) and (isinstance(value, dict) or is_list_of(value, dict | list | str))


def _holds_records(text: str, *, is_whole: bool) -> bool:
    """Return whether a text begins with two records of JSON, is one record, or is cut within one of them."""
    place = 0
    for _ in range(2):
        try:
            value, end = _DECODER.raw_decode(text, place)
        except json.JSONDecodeError as error:
            # The cut of the text causes an error at its very end, or within a string.
            is_cut = error.msg.startswith("Unterminated") or error.pos >= len(text) - len("\\uFFFF")
            return is_cut and not is_whole and text.startswith(("{", "["))
        except (ValueError, RecursionError):  # too deep, or a number of thousands of digits
            return False
        if not _is_record(value):
            return False
        place = len(text) - len(text[end:].lstrip(AROUND_VALUES))
        if place == len(text):
            break
    return True


def _find_json_form(
    text: str, lines: list[str], named: str, fields: tuple[str, ...], *, is_whole: bool
) -> str:
    """Return "jsonl" where each line is a value, which can be read line by line; else "json"."""
    lines = [line.strip(AROUND_VALUES) for line in lines] or [""]
    first = lines[0]
    if _LIST_OF_RECORDS.match(first):
        return "json"
    value = _parse(first)
    if len(lines) == 1 and is_whole and isinstance(value, dict):
        # The file is one record, or an object that holds a list of records.
        return "json" if set(fields).isdisjoint(value) else named
    if value is not None and (len(lines) > 1 or not is_whole):
        return "jsonl"
    if _holds_records(text, is_whole=is_whole):
        return "json"
    for line in lines:  # a broken line does not change the form of the file
        if line[:1] == first[:1] and _is_record(_parse(line)):
            return "jsonl"
    return named


def _find_text_form(path: str, lines: list[str], fields: tuple[str, ...]) -> tuple[str, str]:
    """Return the form of a .txt file, and the reason for refusing it. A table needs column numbers."""
    for form, delimiter in (("tsv", "\t"), ("csv", ",")) if len(lines) > 2 else ():
        header = [name.strip('"\ufeff ') for name in lines[0].split(delimiter)]
        fewest = max(1, len(header) - 1)
        is_table = min(line.count(delimiter) for line in lines[:3]) >= fewest
        if is_table and not set(header).isdisjoint(fields) and not are_numbers(fields, header):
            return "text", _name_it(path, form)
    if any(map(str.isdecimal, fields)):
        tabbed = sum("\t" in line.strip() for line in lines)
        return "tsv" if 2 * tabbed > len(lines) else "text", ""
    numbered = len(list(filter(_NUMBERED_LINE.match, lines)))
    if len(lines) > 2 and numbered >= _LEAST_NUMBERED_SHARE * len(lines):
        return "text", f"has columns between tabs: read them by number, {_BY_NUMBER}"
    return "text", ""
