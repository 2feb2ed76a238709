"""Read files of words: a word a line, a user dictionary of jieba (`word 10 n`), or a word, a tab, a number.

The text is UTF-8, UTF-16 with a mark, or GB18030. Empty lines and comments (`# ...`) are left out; words may
hold spaces. Lists of other tools are refused.
"""

import codecs
import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from brimful.base.console import warn
from brimful.base.errors import BrimfulError

LONGEST_WORD = 1000  # characters
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
        words: the words in order, each once.
        notes: a line for each departure from the file as it stands, for warnings.
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
    text, notes = _decode(content, path, what)
    if "\0" in text:
        line = text.partition("\0")[0].count("\n") + 1
        raise BrimfulError(
            f"{path}, line {line} has a NUL character, as UTF-16 without a mark has: correct the {what}"
        )
    if text.lstrip()[:1] in ("[", "{") and text.rstrip()[-1:] in ("]", "}") and '"' in text:
        raise BrimfulError(f"the {what} {path} is JSON: write one word a line")
    lines = [line for line in map(str.strip, text.splitlines()) if line and not _COMMENT.match(line)]
    if not lines:
        raise BrimfulError(f"the {what} {path} is empty; write one word a line, or leave it out")
    words = _read_words(lines)
    if words is None:  # each line is a word, unless most look like the lines of another tool
        words = lines
        others = [line for line in lines if _OTHER_TOOLS.fullmatch(line)]
        if 2 * len(others) > len(lines):
            raise BrimfulError(
                f"the {what} {path} has a tag, a number or columns beside the word in {len(others):,} of"
                f" {len(lines):,} lines, such as {others[0]!r:.60}: write one word a line, as cut -f1 FILE or"
                " awk '{print $1}' FILE does"
            )
    changed = [pair for pair in zip(lines, words, strict=True) if pair[0] != pair[1]]
    if changed:
        example, word = changed[0]
        notes.append(
            f"{path}: frequencies and tags behind the words of {len(changed):,} of {len(lines):,} lines are"
            f" left out ({word!r:.40} is read of {example!r:.60})"
        )
    longest = max(words, key=len)
    if len(longest) > LONGEST_WORD:
        line_number = text.partition(longest)[0].count("\n") + 1
        raise BrimfulError(
            f"{path}, line {line_number} has a word of {len(longest):,} characters, and {LONGEST_WORD:,} is"
            f" the most: correct the {what}"
        )
    return WordList(list(dict.fromkeys(words)), notes)


def read_lexicon(path: str | Path) -> list[str]:
    """Read the words of a lexicon, and warn where they are not the lines as they stand.

    Raises:
        BrimfulError: as `read_word_list`.
    """
    words, notes = read_word_list(path, "lexicon")
    for note in notes:
        warn(note)
    return words


def _decode(content: bytes, path: str | Path, what: str) -> tuple[str, list[str]]:
    """Return the text, and a note where its encoding is a guess."""
    has_mark = content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    with suppress(UnicodeDecodeError):
        return content.decode("utf-16" if has_mark else "utf-8-sig"), []
    if not has_mark:
        with suppress(UnicodeDecodeError):
            return content.decode("gb18030"), [f"{path} is not UTF-8, and is read as GB18030"]
    raise BrimfulError(f"the {what} {path} is neither UTF-8, UTF-16 nor GB18030: convert it with iconv")


def _read_words(lines: Sequence[str]) -> list[str] | None:
    """Return the words of a table or of a user dictionary; None if the lines are neither.

    A user dictionary has a frequency in most lines, and each word once: `Boeing 737`, `Boeing 747` are words.
    """
    rows = list(filter(None, map(_TABLE.fullmatch, lines)))
    if len(rows) == len(lines):
        return [row[1] for row in rows]
    words = []
    with_frequency = tagged = 0
    for entry in filter(None, map(_JIEBA.fullmatch, lines)):
        words.append(entry[1])
        with_frequency += entry[2] is not None
        tagged += re.search(r" [a-z]{1,5}$", entry[1]) is not None  # `word n 10` of HanLP
    is_dictionary = 2 * with_frequency > len(lines) and len(set(words)) == len(words) == len(lines)
    return words if is_dictionary and 2 * tagged <= len(lines) else None
