"""Files of words as they are distributed: a word a line, dictionaries with frequencies and tags, CSV, JSON.

Read are user dictionaries of jieba (`word 10 n`), HanLP (`word n 10`) and LAC (`word/n`), dictionaries of
Rime, tables with tabs or commas (THUOCL, MeCab), and JSON, in UTF-8, UTF-16 or GB18030. What stands beside
words is left out if most lines have it; words may hold spaces.
"""

import codecs
import csv
import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from brimful.base.errors import BrimfulError

_MOST = 0.9
"""A separator is one if this proportion of the lines has it."""
_SAME = 0.9
"""Frequencies and tags are such if this proportion of the words before them are different."""
_NUMBER = re.compile(r"[+-]?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?")
_NO_COUNT = re.compile(r"[\s|;:=\x01](?:[+-]?(?:nan|NaN|inf|Inf|[Ii]nfinity)|-\d+(?:\.\d+)?)(?:\s+[a-z]+)?$")
"""The end of a line that has no frequency where others have one; in tables negative costs are usual."""
LONGEST_WORD = 1000
"""Characters."""
_NAMES = """
a ad ag al an b bl c cc d df dg dl e eng f g gb gc gg gi gm gp h i j k l loc m mg mq n nb nba nbc nbp nf ng nh
nhd nhm ni nic nis nit nl nm nmc nn nnd nnt np nr nrf nrfg nrj nrt ns nsf nt ntc ntcb ntcf ntch nth nto ntp
nts ntu nw nx nz o org p pba pbei per q qg qt qv r rg rr rry rys ryt ryv rz rzs rzt rzv s t tg u ud ude1 ude2
ude3 ug uj ul un uv uz uzhe v vd vf vg vi vl vn vq vshi vx vyou w x xx y yg z zg
"""
_TAGS = frozenset(_NAMES.split())
"""Tags of parts of speech, of jieba, HanLP and THULAC."""
_COMMENT = re.compile(r"#(?:[ \t#!=-]|$)|//")
_HEADER = frozenset(("word", "words", "term", "terms", "name", "token", "entry", "keyword", "label", "text",
                     "词", "词语", "词条", "名称", "关键词", "单词", "術語", "术语"))  # fmt: skip
_KEYS = ("word", "term", "name", "text", "token", "entry", "keyword", "label", "value")


_PART = r"(?:[^\s/]+/[A-Za-z]\w*)"
_LAC = re.compile(rf"{_PART}(?:\s+{_PART})*")
"""An entry of LAC, of one word or several: `word/n`, `new/a word/n`."""
_FORMS = (
    re.compile(r"(\S.*?)\s*[|;:=\x01]\s*\d+(?:[|;:=\x01].*)?"),  # word|10|n
    re.compile(r"\d+[.、)]?\s+(\S.*)|\d+[.、](\D.*)"),  # 10 word, 1. word
    re.compile(r"'[a-z']+\s+(\S.*)"),  # pinyin of Sogou
    re.compile(
        r"([\u2e80-\U0003ffff]\S*)(?:\s+[\x21-\x7e]+){1,2}"
    ),  # word TAG 10, with tags of the user's own
)
"""Lines of other tools; the group is the word."""
_RIME = re.compile(r"^---\s*$.*?^\.\.\.\s*$", re.MULTILINE | re.DOTALL)
"""The settings at the head of a dictionary of Rime."""


class WordList(NamedTuple):
    """The words of a file.

    Attributes:
        words: in order, each once.
        notes: what was read otherwise than it stands, for warnings: one line each.
    """

    words: list[str]
    notes: list[str]


def word_list(path: str | Path, what: str) -> WordList:
    """Read a file of words.

    Args:
        what: the name of such a file in messages.

    Raises:
        BrimfulError: the file cannot be read, holds no word, or has a line that cannot be one.
    """
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise BrimfulError(f"cannot read the {what} {path}: {error.strerror}") from error
    notes: list[str] = []
    text = _decoded(content, path, what, notes)

    def refuse(part: str, why: str) -> BrimfulError:
        line = text.count("\n", 0, max(0, text.find(part))) + 1
        return BrimfulError(f"{path}, line {line} has {why}: correct the {what}")

    if "\0" in text:
        raise refuse("\0", "a NUL character, as UTF-16 without a mark has, which is no text")
    words = _of_json(text)
    if words is None:
        plain = len(notes)
        lines = [line.strip() for line in _RIME.sub("", text, count=1).splitlines()]
        lines = [line for line in lines if line and not _COMMENT.match(line)]
        words = _of_lines(lines, path, notes)
        wrong = [line for line in lines if "\t" not in line and "," not in line and _NO_COUNT.search(line)]
        if wrong and len(notes) > plain:
            raise refuse(wrong[0], f"no frequency, as other lines have, in {wrong[0]!r:.60}")
    words = list(dict.fromkeys(word for word in map(str.strip, words) if word))
    if not words:
        raise BrimfulError(f"the {what} {path} is empty; write one word a line, or leave it out")
    if len(longest := max(words, key=len)) > LONGEST_WORD:
        raise refuse(longest, f"a word of {len(longest):,} characters, and {LONGEST_WORD:,} is the most")
    if nul := next((word for word in words if "\0" in word), None):  # escaped in JSON
        raise refuse(nul, f"a NUL character in the word {nul!r:.40}")
    return WordList(words, notes)


def _decoded(content: bytes, path: str | Path, what: str, notes: list[str]) -> str:
    for mark, encoding in ((codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF16_LE, "utf-16"),
                           (codecs.BOM_UTF16_BE, "utf-16"), (b"", "utf-8"), (b"", "gb18030")):  # fmt: skip
        if not content.startswith(mark):
            continue
        try:
            text = content.decode(encoding)
        except UnicodeDecodeError:
            continue
        if encoding == "gb18030":
            notes.append(f"{path} is not UTF-8, and is read as GB18030")
        return text.removeprefix("\ufeff")
    raise BrimfulError(f"the {what} {path} is neither UTF-8, UTF-16 nor GB18030: convert it with iconv")


def _of_json(text: str) -> list[str] | None:
    """The words of an array, of an object, or of lines of objects; None of another file."""
    if text.lstrip()[:1] not in ("[", "{"):
        return None
    try:
        return _texts(json.loads(text))
    except (ValueError, RecursionError):
        pass
    try:
        return _texts([json.loads(line) for line in text.split("\n") if line.strip()])
    except (ValueError, RecursionError):
        return None


def _texts(value: Any) -> list[str]:
    """The words of lists, of the values or the keys of objects."""
    if isinstance(value, list):
        found: list[str] = []
        for part in value:
            if isinstance(part, str):
                found.append(part)
            elif isinstance(part, dict):
                found += _texts(part)
            elif isinstance(part, list) and part and isinstance(part[0], str):
                found.append(part[0])
        return found
    if isinstance(value, dict):
        if record := [value[key] for key in _KEYS if isinstance(value.get(key), str)]:
            return record[:1]
        if any(isinstance(part, list) for part in value.values()):  # words by their category
            return [word for part in value.values() if isinstance(part, list) for word in _texts(part)]
        return [str(key) for key in value]
    return []


def _of_lines(lines: Sequence[str], path: str | Path, notes: list[str]) -> list[str]:
    def noted(words: Iterable[str], what: str) -> list[str]:
        found = list(words)
        changed = [(line, word) for line, word in zip(lines, found, strict=True) if line != word]
        if changed:
            line, word = next((pair for pair in changed if pair[1]), changed[0])
            lost = f"{len(changed):,} of {len(lines):,} lines"
            notes.append(f"{path}: {what} {lost} are left out ({word!r:.40} is read of {line!r:.60})")
        return found

    if sum("\t" in line for line in lines) >= _MOST * len(lines) > 0:
        rows: list[list[str]] | None = [[cell.strip() for cell in line.split("\t")] for line in lines]
    else:
        rows = _of_commas(lines)
    if rows is not None:
        return noted(_column(rows), "other columns of")
    if all(map(_LAC.fullmatch, lines)):
        return noted(("".join(re.findall(r"(\S+)/\w+", line)) for line in lines), "tags behind the words of")
    for form in _FORMS:
        matches = [form.fullmatch(line) for line in lines]
        if sum(map(bool, matches)) >= _MOST * len(lines) > 1:
            found = [line if match is None else next(filter(None, match.groups()))
                     for line, match in zip(lines, matches, strict=True)]  # fmt: skip
            if len(set(found)) >= _SAME * len(found):
                return noted(found, "what stands beside the words of")
    split = [_divided(line) for line in lines]
    marked = [word for line, word in zip(lines, split, strict=True) if word != line]
    if 2 * len(marked) >= len(lines) and len(set(marked)) >= _SAME * len(marked):
        return noted(split, "frequencies and tags behind the words of")
    return list(lines)


def _column(rows: Sequence[Sequence[str]]) -> list[str]:
    """The column of words: the one that the header names, or the first that is not of numbers."""
    header = [cell.lower() for cell in rows[0]]
    named = next((i for i, name in enumerate(header) if name in _HEADER), None)
    if named is not None:
        return ["", *((row[named] if named < len(row) else "") for row in rows[1:])]
    numbers = len(rows) > 1 and all(_NUMBER.fullmatch(row[0]) for row in rows)
    column = int(numbers and all(len(row) > 1 for row in rows))
    return [row[column] for row in rows]


def _of_commas(lines: Sequence[str]) -> list[list[str]] | None:
    """The rows of a CSV, if a header or numbers show that it is one."""
    if not lines or sum("," in line for line in lines) < _MOST * len(lines):
        return None
    rows = [[cell.strip() for cell in row] for row in csv.reader(lines, skipinitialspace=True)]
    if len(rows) != len(lines):
        return None
    header = len(rows) > 1 and any(cell.lower() in _HEADER for cell in rows[0])
    numbered = sum(any(_NUMBER.fullmatch(cell) for cell in row[1:]) for row in rows)
    return rows if header or numbered >= _MOST * len(rows) else None


def _divided(line: str) -> str:
    """The word of a line without the frequency and tags behind it."""
    parts = line.split()
    kept = len(parts)
    while kept > 1 and (_NUMBER.fullmatch(parts[kept - 1]) or parts[kept - 1] in _TAGS):
        kept -= 1
    if kept == len(parts):
        return line
    rest = line
    for part in reversed(parts[kept:]):
        rest = rest.rstrip()[: -len(part)]
    return rest.strip()
