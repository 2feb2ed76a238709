"""CoNLL columns: a word a line with its tag, an empty line between texts, comments, -DOCSTART- lines.

Columns are divided by tabs if the first line has one, and by spaces otherwise. The word is the first and the
tag the last of them, or those that `--columns.text 2 --columns.label 4` name. All lines of a file
have as many columns.
"""

import re
import shlex
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from pathlib import Path

from brimful.base.console import counted, recorded_warnings, warn
from brimful.base.errors import BrimfulError
from brimful.tables.layouts import OWN, Columns
from brimful.tables.schemes import OUTSIDE, is_tag
from brimful.tables.text_files import text_lines

_DOCUMENT = "-DOCSTART-"
_WEBANNO = "#FORMAT=WebAnno TSV"
_COLUMNS = re.compile(r"[^ \t]+")
_NUMBERED = re.compile(r".+\d", re.DOTALL)
_NUMBER = re.compile(r"\d{1,9}")
_RANGE = re.compile(r"\d+[-.]\d+")
"""The number of a contraction or an empty word in CoNLL-U."""
_COLUMNS_OF_CONLL_U = 10
_MOST_WORDS = 0.9
"""A file of characters with numbers has them behind at least this proportion of its words."""


@dataclass
class Sentence:
    """The words and tags of a text, and the line of each."""

    words: list[str] = field(default_factory=list)
    tags: list[str] = field(default_factory=list)
    lines: list[int] = field(default_factory=list)


def read_sentences(path: Path, *, labelled: bool, columns: Columns) -> tuple[Iterator[Sentence], bool]:
    """The texts of a file, and whether all its words are characters, some of them of scripts without spaces.

    Raises:
        BrimfulError: a line has other columns than the first, or no tag; the first column counts words, or
            words have numbers behind them.
    """
    layout = _Layout(path, _number(columns.text, OWN.text), _number(columns.label, OWN.label), labelled)
    with recorded_warnings():  # they come again when the texts are read
        characters = _check(path, layout, chosen=columns.text != OWN.text)
    return _sentences(path, layout), characters


def _number(column: str, default: str) -> int | None:
    """The place of a column, from 0; None where no option names it."""
    if column == default:
        return None
    if not column.isdecimal() or not int(column):
        raise BrimfulError(f"columns of CoNLL files have numbers from 1, not the name {column!r:.40}")
    return int(column) - 1


@dataclass
class _Layout:
    """Where words and tags stand in a line.

    Attributes:
        width: the columns of the first line with a word; 0 before it.
        is_tabbed: whether that line has a tab.
        comments: the lines that were left out.
        spaced: the words that hold spaces.
    """

    path: Path
    word: int | None
    tag: int | None
    labelled: bool
    width: int = 0
    is_tabbed: bool = False
    comments: list[str] = field(default_factory=list)
    spaced: list[str] = field(default_factory=list)

    def parts(self, line: str, number: int) -> tuple[str, str] | None:
        """The word and the tag of a line; None of a comment.

        Raises:
            BrimfulError: it has other columns than the first line.
        """
        if not self.width:
            self.is_tabbed = "\t" in line
        cells = _cells(line, self.is_tabbed)
        if line[0] == " " and len(cells) == self.width - 1:
            cells.insert(0, " ")  # a space among characters
        tag = self.tag if self.tag is not None else len(cells) - 1
        is_comment = line[0] == "#"
        if is_comment and len(cells) == (self.width or 1 + self.labelled):
            # Words can begin with #, too, and then have as many columns as the others, and a tag.
            is_comment = self.labelled and not is_tag(cells[min(tag, len(cells) - 1)])
        # The parts of a contraction, or its empty words, have lines of their own in CoNLL-U.
        is_range = len(cells) == _COLUMNS_OF_CONLL_U and _RANGE.fullmatch(cells[0]) is not None
        if is_comment or is_range:
            self.comments.append(f"line {number}: {line!r:.60}")
            return None
        self.width = self.width or len(cells)
        if len(cells) != self.width:
            mark = "tabs" if self.is_tabbed else "spaces"
            fault = f"the lines before it {self.width}, with {mark} between them: write all in one way"
            raise self._refusal(number, f"has {counted(len(cells), 'column')}, {fault}")
        least = 1 + max(self.word or 0, self.tag or 0, self.labelled)
        if len(cells) < least:
            expected = "a word and its tag" if least == 2 else f"{least}, as --columns says"
            raise self._refusal(number, f"has {counted(len(cells), 'column')}; expected {expected}")
        word = cells[self.word or 0]
        if " " in word.strip(" "):
            self.spaced.append(f"line {number}: {word!r:.60}")
        if not word:
            raise self._refusal(number, "has a tag and no word: remove the line, or write the word")
        return word, cells[tag] if self.labelled else OUTSIDE

    def _refusal(self, number: int, fault: str) -> BrimfulError:
        return BrimfulError(f"{self.path}, line {number} {fault}")


def _cells(line: str, is_tabbed: bool) -> list[str]:
    """The columns of a line. White space of other kinds than these two, such as U+3000, can be a word."""
    if not is_tabbed:
        return _COLUMNS.findall(line)
    return [cell.strip(" ") or cell[:1] for cell in line.rstrip("\t ").split("\t")]


def _sentences(path: Path, layout: _Layout) -> Iterator[Sentence]:
    layout.comments.clear()
    layout.spaced.clear()
    sentence = Sentence()
    for number, line in enumerate(text_lines(path), 1):
        line = line.rstrip("\n")
        if line.startswith(_WEBANNO):
            raise BrimfulError(
                f"{path} is WebAnno TSV: export it as CoNLL 2003 from INCEpTION or WebAnno, or convert it as"
                " docs/data-forms.md shows"
            )
        if number == 1 and line.startswith('{"'):
            raise BrimfulError(f"{path} holds JSON, not columns of words and tags: name it .jsonl")
        if not line.strip(" \t") or line.startswith(_DOCUMENT):
            if sentence.words:
                yield sentence
                sentence = Sentence()
            continue
        parts = layout.parts(line, number)
        if parts is not None:
            sentence.words.append(parts[0])
            sentence.tags.append(parts[1])
            sentence.lines.append(number)
    if sentence.words:
        yield sentence
    if layout.comments:
        comments = counted(len(layout.comments), "line")
        warn(f"{path}: {comments} without a word are left out as comments ({layout.comments[0]})")
    if layout.spaced:
        words = counted(len(layout.spaced), "word")
        warn(f"{path}: {words} ({layout.spaced[0]}) hold spaces, since tabs divide the columns")


def _check(path: Path, layout: _Layout, *, chosen: bool) -> bool:
    """Refuse a file whose words would not be words. Returns whether all are characters."""
    words: Counter[str] = Counter()
    first_lines: dict[str, int] = {}
    has_several, are_places = False, True
    for sentence in _sentences(path, layout):
        words.update(sentence.words)
        has_several = has_several or len(sentence.words) > 1
        are_places = are_places and _are_places(sentence.words)
        for tag, line in zip(sentence.tags, sentence.lines, strict=True):
            first_lines.setdefault(tag, line)
    if has_several and are_places and layout.width > 1 + layout.labelled and not chosen:
        raise BrimfulError(
            f"{path}: its first column counts words or names their text: --columns.text 2 reads the next one"
            " (and --columns.label N the tags, where they are not in the last)"
        )
    unspaced_words = any(unspaced(word[0]) for word in words)
    numbered = [word for word in words if _NUMBERED.fullmatch(word)]
    if unspaced_words and sum(words[word] for word in numbered) >= _MOST_WORDS * words.total():
        raise BrimfulError(
            f"{path}: the words have numbers behind them ({numbered[0]!r:.20}); remove them with perl -CSD"
            f" -pe 's/^(\\X)\\d+/$1/' {shlex.quote(str(path))} > plain.conll"
        )
    others = [tag for tag in first_lines if not is_tag(tag)]
    if others and len(others) + (OUTSIDE in first_lines) < len(first_lines):
        raise BrimfulError(
            f"{path}, line {first_lines[others[0]]}: {others[0]!r:.60} is not a tag such as O, B-PER or"
            " I-PER; --columns.label N names the column of tags"
        )
    return unspaced_words and all(map(is_character, words))


def _are_places(words: Sequence[str]) -> bool:
    """Whether the words of a text are numbers that count up by 1, or all the same name of the text."""
    if len(set(words)) == 1:
        return True
    numbers = [word for word in words if not _RANGE.fullmatch(word)]
    if not all(_NUMBER.fullmatch(number) for number in numbers):
        return False
    return all(int(after) == int(before) + 1 for before, after in pairwise(numbers))


def joined(words: Sequence[str], characters: bool = False) -> tuple[str, list[tuple[int, int]]]:
    """The text of words, and the characters of each.

    Args:
        characters: whether every word of the file is a character, as in files of Chinese, where "2019" and
            "iPhone" are divided, too.
    """
    alone = all(map(is_character, words)) and (characters or any(unspaced(word[0]) for word in words if word))
    if alone:
        ends = list(accumulate(map(len, words), initial=0))
        return "".join(words), list(pairwise(ends))
    text, places = "", []
    for word in words:
        apart = text and word and not (unspaced(text[-1]) and unspaced(word[0]))
        if apart and not text[-1].isspace() and not word[0].isspace():
            text += " "
        places.append((len(text), len(text) + len(word)))
        text += word
    return text, places


def unspaced(character: str) -> bool:
    """Whether a character belongs to a script without spaces between words, or to its punctuation."""
    return unicodedata.east_asian_width(character) in "WF" and not "\uac00" <= character <= "\ud7a3"


def is_character(word: str) -> bool:
    """Whether a word is one character, also with marks that belong to it."""
    return len(word) < 2 or all(unicodedata.category(mark) in ("Mn", "Mc", "Me", "Cf") for mark in word[1:])
