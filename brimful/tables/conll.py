"""CoNLL columns: a word a line with its tag, an empty line between texts, comments, -DOCSTART- lines.

Tabs divide the columns if the first line has one, otherwise spaces. The first column is the word and the last
one the tag, or `--columns.text 2 --columns.label 4` names others. All lines of a file have the same number of
columns.
"""

import re
import shlex
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from brimful.base.console import pluralise
from brimful.base.errors import BrimfulError
from brimful.corpus.text.characters import is_unspaced
from brimful.tables.layouts import OWN, Columns
from brimful.tables.schemes import is_tag
from brimful.tables.text_files import text_lines, warn_of

_DOCUMENT = "-DOCSTART-"
_COLUMNS = re.compile(r"[^ \t\n]+")
_NUMBERED_WORD = re.compile(r".+\d", re.DOTALL)
_NUMBER = re.compile(r"\d{1,9}")
_RANGE = re.compile(r"\d+[-.]\d+")
"""The number of a contraction or an empty word in CoNLL-U."""
_COLUMNS_OF_CONLL_U = 10
_NUMBERED_SHARE = 0.8
"""The least proportion of distinct words with a number behind them in a file of numbered characters."""


class Sentence(NamedTuple):
    """The words of a text, their tags, and the line of the first word."""

    line: int
    words: list[str]
    tags: list[str]


def read_sentences(path: Path, *, labelled: bool, columns: Columns) -> tuple[list[Sentence], bool]:
    """Read the texts of a file.

    Returns:
        The texts, and whether all words are characters, some of them of scripts without spaces.

    Raises:
        BrimfulError: a line has more or fewer columns than the first, or no tag; the first column counts
            words; or words have numbers behind them.
    """
    word = _find_column(columns.text, OWN.text, 0)
    reader = _LineReader(path, word, _find_column(columns.label, OWN.label, -1), labelled)
    sentences = list(_read_sentences(path, reader))
    if columns.text == OWN.text and reader.width > 1 + labelled and _have_numbers_for_words(sentences):
        raise BrimfulError(
            f"{path}: its first column counts words or names their text: --columns.text 2 reads the next one"
            " (and --columns.label N the tags, where they are not in the last)"
        )
    words: dict[str, None] = {}
    for sentence in sentences:
        words |= dict.fromkeys(sentence.words)
    if not any(is_unspaced(word[0]) for word in words):
        return sentences, False
    # In Weibo's files of names, each character is followed by its place in its word.
    numbered = [word for word in words if _NUMBERED_WORD.fullmatch(word)]
    if len(numbered) >= _NUMBERED_SHARE * len(words):
        raise BrimfulError(
            f"{path}: the words have numbers behind them ({numbered[0]!r:.20}); remove them with perl -CSD"
            f" -pe 's/^(\\X)\\d+/$1/' {shlex.quote(str(path))} > plain.conll"
        )
    return sentences, all(map(is_character, words))


def _find_column(column: str, default: str, default_place: int) -> int:
    """Return the place of a column in a line."""
    if column == default:
        return default_place
    if not column.isdecimal() or not int(column):
        raise BrimfulError(f"columns of CoNLL files have numbers from 1, not the name {column!r:.40}")
    return int(column) - 1


@dataclass
class _LineReader:
    """Reads the word and the tag of each line."""

    path: Path
    word: int  # the column of words, from 0
    tag: int  # the column of tags; -1 is the last
    labelled: bool
    width: int = 0  # the columns of the first line with a word; 0 before it
    separator: str = "spaces"  # "tabs" if that line has one
    comments: list[str] = field(default_factory=list)  # the lines that were left out

    def read(self, line: str, number: int) -> tuple[str, str] | None:
        """Return the word and the tag of a line; None for a comment."""
        if not self.width:  # only comments precede this line
            self.separator = "tabs" if "\t" in line else "spaces"
        if self.separator == "tabs":
            # A word can be a single space, or other white space than tabs and spaces, such as U+3000.
            cells = [cell.strip(" ") or cell[:1] for cell in line.rstrip("\t\n ").split("\t")]
        else:
            cells = _COLUMNS.findall(line)
        if line[0] == " " and len(cells) == self.width - 1:
            cells.insert(0, " ")  # a space among characters
        # In CoNLL-U, a contraction and an empty word have lines of their own, which are not words.
        is_range = len(cells) == _COLUMNS_OF_CONLL_U and _RANGE.fullmatch(cells[0]) is not None
        if is_range or (line[0] == "#" and not self._is_word(cells)):
            self.comments.append(f"line {number}: {line.rstrip()!r:.60}")
            return None
        if not self.width:
            self.width = len(cells)
            least = 1 + max(self.word, self.tag, self.labelled)
            if self.width < least:
                fault = f"{least}: a word and its tag, or those that --columns names"
                raise self._error(number, f"has {pluralise(self.width, 'column')}; expected {fault}")
        if len(cells) != self.width:
            fault = f"the lines before it {self.width}, with {self.separator} between them"
            fault += ": write all in one way"
            raise self._error(number, f"has {pluralise(len(cells), 'column')}, {fault}")
        if not cells[self.word]:
            raise self._error(number, "has a tag and no word: remove the line, or write the word")
        return cells[self.word], cells[self.tag]

    def _is_word(self, cells: Sequence[str]) -> bool:
        """Whether a line that begins with # has as many columns as the others, and a tag."""
        if not self.labelled:
            return len(cells) == (self.width or 1)
        if len(cells) < 2 or (self.width and len(cells) != self.width):
            return False
        return is_tag(cells[min(self.tag, len(cells) - 1)])

    def _error(self, number: int, fault: str) -> BrimfulError:
        return BrimfulError(f"{self.path}, line {number} {fault}")


def _read_sentences(path: Path, reader: _LineReader) -> Iterator[Sentence]:
    sentence = Sentence(0, [], [])
    for number, line in enumerate(chain(text_lines(path), ["\n"]), 1):  # an empty line ends the last text
        if number == 1 and line.startswith("#FORMAT=WebAnno TSV"):
            raise BrimfulError(
                f"{path} is WebAnno TSV: export it as CoNLL 2003 from INCEpTION or WebAnno, or convert it as"
                " docs/your-data.md shows"
            )
        if number == 1 and line.startswith('{"'):
            raise BrimfulError(f"{path} holds JSON, not columns of words and tags: name it .jsonl")
        if not line.strip(" \t\n") or line.startswith(_DOCUMENT):
            if sentence.words:
                yield sentence
            sentence = Sentence(0, [], [])
            continue
        word_and_tag = reader.read(line, number)
        if word_and_tag is not None:
            if not sentence.words:
                sentence = sentence._replace(line=number)
            sentence.words.append(word_and_tag[0])
            sentence.tags.append(word_and_tag[1])
    warn_of(path, "line", reader.comments, "without a word are left out as comments ({})")


def _have_numbers_for_words(sentences: Sequence[Sentence]) -> bool:
    """Whether the words of each text are numbers that count up by 1, or all the same name; some text must
    have several words."""
    has_several = False
    for _, words, _ in sentences:
        has_several = has_several or len(words) > 1
        if len(set(words)) < 2:
            continue
        if not all(map(_NUMBER.fullmatch, words)):
            return False
        first = int(words[0])
        if list(map(int, words)) != list(range(first, first + len(words))):
            return False
    return has_several


def join_words(words: Sequence[str], are_characters: bool = False) -> tuple[str, list[tuple[int, int]]]:
    """Join words to a text, with spaces between them, except between characters of scripts without spaces.

    Args:
        are_characters: whether every word of the file is a character, as in files of Chinese that also divide
            "2019" and "iPhone".

    Returns:
        The text, and the place of each word in it.
    """
    are_characters = are_characters or any(is_unspaced(word[0]) for word in words if word)
    joins_all = are_characters and all(map(is_character, words))
    text, places = "", []
    for word in words:
        if text and word and not joins_all:
            is_joined = is_unspaced(text[-1]) and is_unspaced(word[0])
            has_space = text[-1].isspace() or word[0].isspace()
            if not is_joined and not has_space:
                text += " "
        places.append((len(text), len(text) + len(word)))
        text += word
    return text, places


def is_character(word: str) -> bool:
    """Whether a word is one character, with or without marks that belong to it."""
    return len(word) < 2 or all(unicodedata.category(mark) in ("Mn", "Mc", "Me", "Cf") for mark in word[1:])
