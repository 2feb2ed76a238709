"""Files of words as they are distributed: a word a line, dictionaries with frequencies and tags, tables.

Read are user dictionaries of jieba (`word 10 n`) and HanLP (`word n 10`) and tables with tabs or commas
(THUOCL, MeCab, Sogou), in UTF-8, UTF-16 or GB18030. What stands beside words is left out if most lines have
it; words may hold spaces.
"""

import codecs
import csv
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from brimful.base.errors import BrimfulError

_MOST = 0.9
"""A separator is one if this proportion of the lines has it."""
_SAME = 0.9
"""Frequencies and tags are such if this proportion of the words before them are different."""
_NUMBER = re.compile(r"[+-]?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?")
_NO_COUNT = re.compile(r"\s(?:[+-]?(?:nan|NaN|inf|Inf|[Ii]nfinity)|-\d+(?:\.\d+)?)(?:\s+[a-z]+)?$")
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
_MARKED = re.compile(rf"\S.*/(?i:{'|'.join(_TAGS)}|time)|\S.*?\|\s*\d+(?:\|.*)?|\d+[.、]\s*\D.*")
"""Lines of other tools, which are refused: `word/n`, `word|10|n`, `1. word`."""
_COMMENT = re.compile(r"#(?:[ \t#!=-]|$)|//")
_HEADER = frozenset(("word", "words", "term", "terms", "name", "token", "entry", "keyword", "label", "text",
                     "词", "词语", "词条", "名称", "关键词", "单词", "術語", "术语"))  # fmt: skip


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
        line = text.count("\n", 0, text.find(part)) + 1
        return BrimfulError(f"{path}, line {line} has {why}: correct the {what}")

    if "\0" in text:
        raise refuse("\0", "a NUL character, as UTF-16 without a mark has, which is no text")
    if Path(path).suffix in (".json", ".jsonl") or _is_json(text):
        raise BrimfulError(f"the {what} {path} is JSON: write one word a line")
    lines = [line.strip() for line in text.splitlines()]
    lines = [line for line in lines if line and not _COMMENT.match(line)]
    found, left_out = _of_lines(lines)
    changed = [pair for pair in zip(lines, found, strict=True) if pair[0] != pair[1]]
    if changed:
        line, word = next((pair for pair in changed if pair[1]), changed[0])
        lost = f"{len(changed):,} of {len(lines):,} lines"
        notes.append(f"{path}: {left_out} {lost} are left out ({word!r:.40} is read of {line!r:.60})")
        wrong = [line for line in lines if "\t" not in line and "," not in line and _NO_COUNT.search(line)]
        if wrong:
            raise refuse(wrong[0], f"no frequency, as other lines have, in {wrong[0]!r:.60}")
    elif 2 * len(marked := [line for line in lines if _MARKED.fullmatch(line)]) > len(lines):
        raise BrimfulError(
            f"the {what} {path} has a tag or a number beside the word in {len(marked):,} of {len(lines):,}"
            f" lines, such as {marked[0]!r:.60}: write one word a line"
        )
    words = list(dict.fromkeys(filter(None, found)))
    if not words:
        raise BrimfulError(f"the {what} {path} is empty; write one word a line, or leave it out")
    if len(longest := max(words, key=len)) > LONGEST_WORD:
        raise refuse(longest, f"a word of {len(longest):,} characters, and {LONGEST_WORD:,} is the most")
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


def _is_json(text: str) -> bool:
    """Whether a text begins with an array or object of JSON that ends where a line ends."""
    try:
        value, end = json.JSONDecoder().raw_decode(text.strip())
    except (ValueError, RecursionError):
        return False
    return isinstance(value, list | dict) and text.strip()[end : end + 1] in ("", "\r", "\n")


def _of_lines(lines: Sequence[str]) -> tuple[list[str], str]:
    """The word of each line, empty where it has none; and what was left out of lines."""
    if sum("\t" in line for line in lines) >= _MOST * len(lines) > 0:
        return _column([[cell.strip() for cell in line.split("\t")] for line in lines]), "other columns of"
    if (rows := _of_commas(lines)) is not None:
        return _column(rows), "other columns of"
    split = [_divided(line) for line in lines]
    marked = [word for line, word in zip(lines, split, strict=True) if word != line]
    if 2 * len(marked) >= len(lines) and len(set(marked)) >= _SAME * len(marked):
        return split, "frequencies and tags behind the words of"
    return list(lines), ""


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
    rest = line
    for part in reversed(parts[kept:]):
        rest = rest.rstrip()[: -len(part)]
    return rest.strip()
