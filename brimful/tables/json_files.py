"""Files of JSON in their usual forms: an object a line, one array, one object, several values in a row."""

import json
import re
from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path
from typing import Any

from brimful.base.console import recorded_warnings
from brimful.base.errors import BrimfulError
from brimful.tables.file_rows import NumberedRows, check_characters, json_lines
from brimful.tables.text_files import suffix_of, text_lines, whole_text

SUFFIXES = (".json", ".jsonl", ".ndjson")
_SPACE = re.compile(r"[ \t\r\n]*")


def json_values(path: Path) -> Iterator[Any]:
    """The JSON values of a file, one after the other.

    Raises:
        BrimfulError: what follows is not JSON, or holds half a surrogate pair.
    """
    text, decoder = whole_text(path), json.JSONDecoder()
    # Characters that no text has can only stand there as escapes.
    has_escapes = "\\u" in text
    end = _SPACE.match(text).end()  # type: ignore[union-attr]
    while end < len(text):
        try:
            value, end = decoder.raw_decode(text, end)
        except json.JSONDecodeError as error:
            place = f"line {error.lineno}"
            raise BrimfulError(f"{path}, {place} is not JSON from character {error.colno} on") from error
        except RecursionError as error:
            raise BrimfulError(f"{path} is not JSON: it is nested too deeply") from error
        if has_escapes:
            check_characters(value, str(path))
        yield value
        end = _SPACE.match(text, end).end()  # type: ignore[union-attr]


def records(path: Path) -> NumberedRows:
    """The number and the object of each record: of each line, or of each part of an array.

    An object that is the whole of a file is one record.

    Raises:
        BrimfulError: as `json_values`, or a record is no object.
    """
    if in_lines(path):
        yield from json_lines(path)
        return
    number = 0
    for value in json_values(path):
        for part in value if isinstance(value, list) else [value]:
            number += 1
            if not isinstance(part, dict):
                shown = json.dumps(part, ensure_ascii=False)
                raise BrimfulError(f"{path}, record {number} must be a JSON object, not {shown:.40}")
            yield number, part


def in_lines(path: Path) -> bool:
    """Whether each line is an object: the first of several is, or it begins as one in a file named .jsonl."""
    with recorded_warnings():  # they come again when the file is read
        lines = (line.strip() for line in text_lines(path) if line.strip())
        first, second = islice(chain(lines, ("", "")), 2)
    if not first.startswith("{"):
        return False
    if suffix_of(path) in (".jsonl", ".ndjson"):
        return first != "{"
    if not second:
        return False
    try:
        json.loads(first)
    except (ValueError, RecursionError):
        return False
    return True
