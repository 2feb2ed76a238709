"""CoNLL columns: which column is what, what is no word at all, and the texts that words are joined to.

A file holds a word a line with its tag, and an empty line between texts. Files differ in all else: tabs or
spaces, columns before the word and behind the tag, comments, places behind characters. The first lines of a
file tell; a warning says what was left out of it.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, islice, pairwise
from pathlib import Path

from brimful.base.console import counted, recorded_warnings, warn
from brimful.base.errors import BrimfulError
from brimful.tables.labelled_spans import OUTSIDE
from brimful.tables.text_files import text_lines

SURVEYED = 20_000
"""Lines that tell how a file is laid out."""
_COLUMNS = re.compile(r"[^ \t]+")
_MARK, _BETWEEN = "[BIESLUMWbieslumw]", "[-_/:.|]"
_TAG = re.compile(rf"{_MARK}{_BETWEEN}.+|.+{_BETWEEN}{_MARK}|{_MARK}", re.DOTALL)
_LABEL = re.compile(rf"{_MARK}{_BETWEEN}(.+)|(.+){_BETWEEN}{_MARK}", re.DOTALL)
_CHUNKS = "adjp advp conjp intj lst np pp prt sbar ucp vp ac nc pc vc cp"
_PHRASES = frozenset(_CHUNKS.split())
"""Labels of chunks, in files that have names, too."""
_TITLES = """
word words token tokens form text char chars character characters tag tags label labels ner ner_tag ner_tags
ne entity iob bio pos pos_tag upos xpos lemma chunk chunk_tag id index 字 词 字符 标签 标注 词性
"""
_HEADER = frozenset(_TITLES.split())
"""What headers call columns."""
_FEATURE = re.compile(r"(?:^|\|)(?:NER|Ner|ner|NE|Entity|entity|name|Name)=([^|]+)")
"""A tag among the features of CoNLL-U."""
_RANGE = re.compile(r"\d+[-.]\d+")
"""The number of a contraction or an empty word in CoNLL-U."""
_DOCUMENT = "-DOCSTART-"
_FEW = 200
"""The most tags without marks."""


@dataclass
class Sentence:
    """The words and tags of a text, and the line of each."""

    words: list[str] = field(default_factory=list)
    tags: list[str] = field(default_factory=list)
    lines: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class ConllShape:
    """How a file is laid out.

    Attributes:
        tabs: columns have tabs between them, so words may hold spaces; otherwise tabs or spaces.
        word, tag: their columns; the tag's from the end where it is negative.
        features: the tag is a feature in its column, as in CoNLL-U.
        width: of most lines, for telling comments.
        index: the first column counts words.
        placed: each word is a character with its place behind it.
        characters: every word is a character, and some are of scripts without spaces.
        header: the line that names the columns; empty if there is none.
    """

    tabs: bool
    width: int
    word: int = 0
    tag: int = -1
    features: bool = False
    index: bool = False
    placed: bool = False
    characters: bool = False
    header: str = ""

    def cells(self, line: str) -> list[str]:
        """The columns of a line; none of an empty one."""
        line = line.rstrip("\n")
        if not self.tabs:
            return _COLUMNS.findall(line)  # white space of other kinds, such as U+3000, can be a word
        if not line.strip(" \t"):
            return []
        return [part.strip(" ") or part[:1] for part in line.rstrip("\t ").split("\t")]

    def is_comment(self, cells: Sequence[str], labelled: bool) -> bool:
        """Whether a line that begins with # is about the text, and not a word such as #tag."""
        if not cells[0].startswith("#"):
            return False
        return len(cells) != self.width or (labelled and not (self.features or is_tag(cells[self.tag])))


_NO_TAG = (OUTSIDE, OUTSIDE.lower())


def is_tag(cell: str) -> bool:
    """Whether a cell is O, or has the mark of a tag."""
    return cell in _NO_TAG or _TAG.fullmatch(cell) is not None


def read_sentences(path: Path, *, labelled: bool) -> Iterator[tuple[Sentence, ConllShape]]:
    """The texts of a file, and its shape.

    Raises:
        BrimfulError: a line has no tag, or could be divided in two ways.
    """
    shape = _survey(path, labelled)
    known: dict[str, _Line] = {}  # most lines of a file are the same few
    left_out: list[tuple[int, str]] = []
    empty: list[int] = []
    spaced: list[tuple[int, str]] = []
    sentence = Sentence()
    for number, line in enumerate(text_lines(path), 1):
        found = known.get(line)
        if found is None:
            if len(known) >= _KNOWN:
                known.clear()
            found = known[line] = _parsed(line, shape, f"{path}, line {number}", labelled)
        kind, word, tag = found
        if kind == _BREAK:
            if sentence.words:
                yield _finished(sentence, shape, path), shape
                sentence = Sentence()
            continue
        if kind == _LEFT_OUT:
            left_out.append((number, line.strip()))
            continue
        if kind == _ODD:
            spaced += [(number, word)] if word else []
            empty += [] if word else [number]
        sentence.words.append(word)
        sentence.tags.append(tag)
        sentence.lines.append(number)
    if sentence.words:
        yield _finished(sentence, shape, path), shape
    if left_out:
        first, text = left_out[0]
        lines = counted(len(left_out), "line")
        warn(f"{path}: {lines} without a word are left out (line {first}: {text!r:.60})")
    if empty:
        warn(f"{path}: {counted(len(empty), 'line')} (line {empty[0]}) have a tag and no word")
    if spaced:
        first, text = spaced[0]
        warn(
            f"{path}: {counted(len(spaced), 'word')} (line {first}: {text!r:.60}) hold spaces, since the"
            " columns of every line have tabs between them"
        )


_WORD, _BREAK, _LEFT_OUT, _ODD = range(4)
"""A line is a word, the end of a text, none of both, or a word that is empty or holds a space."""
_KNOWN = 1 << 16
_Line = tuple[int, str, str]
"""What a line is, its word and its tag."""


def _parsed(line: str, shape: ConllShape, where: str, labelled: bool) -> _Line:
    cells = shape.cells(line)
    if not cells or cells[0].startswith(_DOCUMENT):
        return _BREAK, "", ""
    if len(cells) == 1 < shape.width == 2 and line[0] == " " and is_tag(cells[0]):
        cells = [" ", *cells]  # a space among characters
    if (
        line.rstrip("\n") == shape.header
        or shape.is_comment(cells, labelled)
        or (shape.index and _RANGE.fullmatch(cells[0]))
    ):
        return _LEFT_OUT, "", ""
    if not shape.tabs:
        before, tab, _ = line.partition("\t")
        if tab and " " in before.strip(" "):
            raise BrimfulError(
                f"{where} has a space in {before.strip(' ')!r:.60}, before its first tab: columns are divided"
                " by tabs or by spaces, not by both"
            )
    tag = _tag(cells, shape, where) if labelled else OUTSIDE
    if len(cells) <= shape.word:
        raise BrimfulError(f"{where} has no word in column {shape.word + 1}")
    word = cells[shape.word]
    return (_ODD if not word or " " in word.strip(" ") else _WORD), word, tag


def _tag(cells: Sequence[str], shape: ConllShape, where: str) -> str:
    if len(cells) < 2 or not -len(cells) <= shape.tag < len(cells):
        raise BrimfulError(f"{where} has {_columns(len(cells))}; expected a word and its tag")
    cell = cells[shape.tag]
    if shape.features:
        found = _FEATURE.search(cell)
        return found[1] if found else OUTSIDE
    return cell


def _columns(number: int) -> str:
    return "one column" if number == 1 else f"{number} columns"


def _finished(sentence: Sentence, shape: ConllShape, path: Path) -> Sentence:
    if shape.placed:
        words = _without_places(sentence.words)
        if words is None:
            raise BrimfulError(
                f"{path}, line {sentence.lines[0]}: not every word of this text is a character with its place"
                f" behind it, as in those before ({sentence.words[0]!r:.40} ...): write all in one way"
            )
        sentence.words = words
    return sentence


def _without_places(words: Sequence[str]) -> list[str] | None:
    """Characters without the places behind them, which count from 0 or begin again; None: there are none."""
    found = []
    place = -1
    for word in words:
        following = next(
            (n for n in (place + 1, 0) if word.endswith(str(n)) and len(word) > len(str(n))), None
        )
        if following is None:
            return None
        place = following
        found.append(word[: -len(str(place))])
        if not is_character(found[-1]):
            return None
    return found


def _survey(path: Path, labelled: bool) -> ConllShape:
    """The shape of a file, from its first lines; warns of what it leaves out."""
    with recorded_warnings():  # they come again when all lines are read
        lines = [line.rstrip("\n") for line in islice(text_lines(path), SURVEYED)]
    plain = [line for line in lines if line.strip(" \t") and not line.startswith(("#", _DOCUMENT))]
    header = plain[0] if len(plain) > 1 and _is_header(plain[0]) else ""
    if header:
        plain, lines = plain[1:], [line for line in lines if line != header]
    tabs = Counter(line.rstrip("\t ").count("\t") for line in plain)
    shape = ConllShape(tabs=len(tabs) == 1 and 0 not in tabs, width=0)
    if shape.tabs and not all(map(any, zip(*map(shape.cells, plain), strict=True))):
        shape = ConllShape(tabs=False, width=0)  # two tabs between columns
    spaces = [] if shape.tabs else [line for line in plain if line[0] == " " and is_tag(line.strip(" "))]
    widths = Counter(len(shape.cells(line)) for line in plain)
    if spaces and len(widths) > 1:
        widths[1] -= len(spaces)
        widths += Counter()
    if not widths:
        return shape
    shape = ConllShape(tabs=shape.tabs, width=widths.most_common(1)[0][0])
    texts = _texts(lines, shape)
    index = len(widths) == 1 and shape.width >= 2 + labelled and _counts(texts)
    if index:
        texts = [
            kept for text in texts if (kept := [cells for cells in text if not _RANGE.fullmatch(cells[0])])
        ]
    first = int(index)
    tag, features = -1, False
    if len(widths) == 1 and not spaces and _tags_lead(texts, first):
        tag, first = first, first + 1
        warn(
            f"{path}: column {first} holds the tags; the next, such as {texts[0][0][first]!r:.40}, is read as"
            " words"
        )
    elif labelled and len(widths) == 1 and not spaces:
        tag, features = _tag_column(texts, first, path)
    if index:
        warn(
            f"{path}: its first column counts the words of each text, and is left out; the next, such as"
            f" {texts[0][0][1]!r:.40}, is read"
        )
    words = [[cells[first] for cells in text if len(cells) > first] for text in texts]
    placed = any(len(text) > 1 for text in words) and all(_without_places(text) for text in words)
    if placed:
        warn(
            f"{path}: each word is a character with its place behind it ({words[0][0]!r:.20}); the places are"
            " left out"
        )
        words = [_without_places(text) or [] for text in words]
    single = all(is_character(word) for text in words for word in text if word)
    characters = single and any(unspaced(word[0]) for text in words for word in text if word)
    return ConllShape(shape.tabs, shape.width, first, tag, features, index, placed, characters, header)


def _is_header(line: str) -> bool:
    """Whether a line names the columns."""
    cells = [cell.strip().lower() for cell in line.split("\t" if "\t" in line else None)]
    return len(cells) > 1 and _HEADER.issuperset(cells)


def _tags_lead(texts: Sequence[Sequence[Sequence[str]]], column: int) -> bool:
    """Whether a column holds nothing but tags, and no other behind it does."""
    width = len(texts[0][0])
    tags = {cells[column] for text in texts for cells in text}
    if width < column + 2 or not all(map(is_tag, tags)) or not _labels(tags):
        return False
    return all(
        any(not is_tag(cells[other]) for text in texts for cells in text)
        for other in range(column + 1, width)
    )


def _texts(lines: Iterable[str], shape: ConllShape) -> list[list[list[str]]]:
    """The cells of each line of each text. Of lines with #, those are words that have as many cells."""
    texts: list[list[list[str]]] = [[]]
    for line in lines:
        cells = shape.cells(line)
        if not cells or cells[0].startswith(_DOCUMENT):
            texts.append([])
        elif not cells[0].startswith("#") or (len(cells) == shape.width and is_tag(cells[-1])):
            texts[-1].append(cells)
    return [text for text in texts if text]


def _counts(texts: Sequence[Sequence[Sequence[str]]]) -> bool:
    """Whether the first column counts the words of each text, or of all."""
    if not any(len(text) > 1 for text in texts):
        return False
    for text in texts:
        numbers = [cells[0] for cells in text if not _RANGE.fullmatch(cells[0])]
        if not all(number.isdecimal() and number.isascii() for number in numbers):
            return False
        if any(int(after) != int(before) + 1 for before, after in pairwise(numbers)):
            return False
    return True


def _tag_column(texts: Sequence[Sequence[Sequence[str]]], word: int, path: Path) -> tuple[int, bool]:
    """The column of tags, and whether they are among features.

    It holds nothing but tags. Columns of marks alone and of chunks come behind those of names. Of outer and
    inner names, such as GermEval's, the outer ones are read, which stand first; else the last column.
    """
    width = len(texts[0][0])
    values = {
        column: Counter(cells[column] for text in texts for cells in text)
        for column in range(word + 1, width)
    }
    found = [column for column, cells in values.items() if all(map(is_tag, cells))]
    named = [column for column in found if values[column].keys() - {OUTSIDE}]
    named = [column for column in named if _labels(values[column])] or named
    named = [column for column in named if not _labels(values[column]) <= _PHRASES] or named
    if named:
        outer, last = named[0], named[-1]
        alike = _labels(values[outer]) & _labels(values[last])
        chosen = outer if alike or _is_within(texts, last, outer) else last
        if len(named) > 1:
            columns, others = (
                ", ".join(str(column + 1) for column in some)
                for some in (named, [column for column in named if column != chosen])
            )
            warn(f"{path}: columns {columns} hold tags: column {chosen + 1} is read, {others} left out")
        return chosen - width if chosen == width - 1 else chosen, False
    if found:
        return found[-1], False
    for column, cells in values.items():
        if any(_FEATURE.search(cell) for cell in cells):
            return column, True
    return -1, False


def _is_within(texts: Sequence[Sequence[Sequence[str]]], inner: int, outer: int) -> bool:
    """Whether every word with a tag in one column has one in another."""
    return all(cells[inner] in _NO_TAG or cells[outer] not in _NO_TAG for text in texts for cells in text)


def _labels(tags: Iterable[str]) -> set[str]:
    """The labels of tags; marks alone have none."""
    return {(found[1] or found[2]).casefold() for tag in tags if (found := _LABEL.fullmatch(tag))}


def check_tags(sentences: Iterable[Sentence], path: Path) -> None:
    """Refuse the first word whose tag is not one, where other tags are. Tags without marks need an O.

    Raises:
        BrimfulError: see above; the message names its line.
    """
    sentences = list(sentences)
    names = {tag for sentence in sentences for tag in sentence.tags}
    wrong = {tag for tag in names if not is_tag(tag)}
    marked = any(_TAG.fullmatch(tag) for tag in names)
    if not wrong or (not marked and OUTSIDE in names and len(names) <= _FEW):
        return
    for sentence in sentences:
        for line, tag in zip(sentence.lines, sentence.tags, strict=True):
            if tag in wrong:
                raise BrimfulError(f"{path}, line {line}: {tag!r:.60} is not a tag such as O, B-PER or I-PER")


def joined(words: Sequence[str], characters: bool = False) -> tuple[str, list[tuple[int, int]]]:
    """The text of words, and the characters of each. An empty word has none.

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
