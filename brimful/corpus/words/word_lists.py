"""Files of words: a word a line, a user dictionary of jieba (`word 10 n`), or a word, a tab and a number.

The text is UTF-8, UTF-16 with a mark, or GB18030. Empty lines and comments (`# ...`) are left out; words may
hold spaces. Lists of other tools are refused.
"""

import codecs
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from brimful.base.errors import BrimfulError

LONGEST_WORD = 1000
"""Characters."""
_JIEBA = re.compile(r"(.+?)( [0-9]+)?( [a-z]{1,5})?")
"""A line of a user dictionary, as jieba itself reads it."""
_TABLE = re.compile(r"([^\t]*[^\t ]) *\t *[0-9]+")
_OTHER_TOOLS = re.compile(
    r".*\t.*"  # columns
    r"|.*[,|] *-?[0-9.]+(?:[,|].*)?|[0-9]+,.*"  # word,10 and 10,word,n and word|10|n
    r"|[0-9]+[.、] *\D.*"  # 1. word
    r"|.*[\u4e00-\u9fff](?:/[A-Za-z]+| [a-z]{1,5}(?: [0-9]+)?)"  # 词/n and 词 n and 词 n 10
)
_COMMENT = re.compile(r"#(?:[ \t#!=-]|$)|//")


class WordList(NamedTuple):
    """The words of a file.

    Attributes:
        words: in order, each once.
        notes: what was read otherwise than it stands, for warnings: one line each.
    """

    words: list[str]
    notes: list[str]


def read_word_list(path: str | Path, what: str) -> WordList:
    """Read a file of words.

    Args:
        what: the name of such a file in messages.

    Raises:
        BrimfulError: the file cannot be read, holds no word, is of another form, or has a line that cannot be
            a word.
    """
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise BrimfulError(f"cannot read the {what} {path}: {error.strerror}") from error
    text, notes = _decoded(content, path, what)
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise BrimfulError(
            f"{path}, line {line} has a NUL character, as UTF-16 without a mark has: correct the {what}"
        )
    if text.lstrip()[:1] in ("[", "{") and text.rstrip()[-1:] in ("]", "}") and '"' in text:
        raise BrimfulError(f"the {what} {path} is JSON: write one word a line")
    lines = [line.strip() for line in text.splitlines()]
    lines = [line for line in lines if line and not _COMMENT.match(line)]
    if not lines:
        raise BrimfulError(f"the {what} {path} is empty; write one word a line, or leave it out")
    words = _words_of(lines)
    if words is None:
        words = lines
        others = [line for line in lines if _OTHER_TOOLS.fullmatch(line)]
        if 2 * len(others) > len(lines):
            raise BrimfulError(
                f"the {what} {path} has a tag, a number or columns beside the word in {len(others):,} of"
                f" {len(lines):,} lines, such as {others[0]!r:.60}: write one word a line, as cut -f1 FILE or"
                " awk '{print $1}' FILE does"
            )
    changed = [(line, word) for line, word in zip(lines, words, strict=True) if line != word]
    if changed:
        example, word = changed[0]
        notes.append(
            f"{path}: frequencies and tags behind the words of {len(changed):,} of {len(lines):,} lines are"
            f" left out ({word!r:.40} is read of {example!r:.60})"
        )
    longest = max(words, key=len)
    if len(longest) > LONGEST_WORD:
        line_number = text.count("\n", 0, text.find(longest)) + 1
        raise BrimfulError(
            f"{path}, line {line_number} has a word of {len(longest):,} characters, and {LONGEST_WORD:,} is"
            f" the most: correct the {what}"
        )
    return WordList(list(dict.fromkeys(words)), notes)


def _decoded(content: bytes, path: str | Path, what: str) -> tuple[str, list[str]]:
    """The text, and a note where its encoding is a guess."""
    has_mark = content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    for encoding in ["utf-16"] if has_mark else ["utf-8-sig", "gb18030"]:
        try:
            text = content.decode(encoding)
        except UnicodeDecodeError:
            continue
        return text, [f"{path} is not UTF-8, and is read as GB18030"] if encoding == "gb18030" else []
    raise BrimfulError(f"the {what} {path} is neither UTF-8, UTF-16 nor GB18030: convert it with iconv")


def _words_of(lines: Sequence[str]) -> list[str] | None:
    """The words of a table or of a user dictionary; None if the lines are neither.

    A user dictionary has a frequency in most lines, and each word once: `Boeing 737`, `Boeing 747` are words.
    """
    rows = [_TABLE.fullmatch(line) for line in lines]
    if all(rows):
        return [row[1] for row in rows if row]
    entries = [entry for entry in map(_JIEBA.fullmatch, lines) if entry]
    words = [entry[1] for entry in entries]
    with_frequency = sum(entry[2] is not None for entry in entries)
    tagged = sum(re.search(r" [a-z]{1,5}$", word) is not None for word in words)  # `word n 10` of HanLP
    is_dictionary = 2 * with_frequency > len(lines) and len(set(words)) == len(words) == len(lines)
    return words if is_dictionary and 2 * tagged <= len(lines) else None
