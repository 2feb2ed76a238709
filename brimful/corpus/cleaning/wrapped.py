"""Joins the lines of paragraphs that were broken at a fixed width.

A line was wrapped if the first word of the next line had no room in it. Paragraphs of three lines or more
show the width. Without one, a break is joined only if its sentence continues in lower case. Chinese lines are
joined without a space. Lists, headings, verse, code and tables stay: their lines do not fill the width, start
with a marker or a capital, are indented, or look like code. Headlines, titles, verse, dialogues and sentences
on lines of their own stay by their punctuation: it is missing, or stands where the lines end. In doubt, a
break stays, which costs little.
"""

import functools
import re
from collections import Counter

NARROWEST, WIDEST = 40, 120
# Room that a wrapped line may leave: some programs balance lines, Chinese ones move punctuation.
_SLACK, _SLACK_WIDE = 6, 4
_FILLED_SHARE = 0.6
# Where all of a paragraph's breaks but a few are full, fewer lines must begin without a capital.
_FULL_SHARE, _GOING_ON_SHARE = 0.9, 0.4
# The smallest fraction of wrapped line breaks in a text that was wrapped.
_WRAPPED_SHARE = 0.3
_LONG_WORD = 16
_WIDTH_QUANTILE = 0.9
# The largest fractions of lines of wrapped prose that end with punctuation, and that begin with a speaker.
_ENDED_SHARE, _SPEAKER_SHARE = 0.6, 0.5
# In Chinese, a mark may not begin a line, so more lines end with one.
_ENDED_SHARE_WIDE = 0.75
# The smallest fraction of the lines of Chinese prose that are equally wide, or moved by a mark.
_EVEN_SHARE = 0.8

_MARKER = re.compile(
    r"[-*+•·○●▪■◆–—|>#=~]+(?:\s|$)|\|"  # bullets, quotes, rules and tables
    r"|\(?(?:\d{1,4}|[A-Za-z]|[ivxlIVXL]{1,6})[.):、．](?:\D|$)|\d+[-/:.]\d"  # 1. (a) iv) 12:30 3.1
    r"|[(（]?[一二三四五六七八九十百]{1,4}[)）、.．]|第[一二三四五六七八九十百零\d]{1,6}[章节回条卷篇部]"
)
_CODE = re.compile(r"[{}<>=|\\$#_\[\]`~^\t]")
_CALL = re.compile(r"[a-z]\(|\w[./]\w+[./(]")
_STATEMENT = re.compile(r"(?:from \S+ )?import \w|\.\.\.|\*")
_GAP = re.compile(r"[^.!?:\s]\s{2,}\S")
_SIGNS = ("::", "//", "....", " . . .")
# First bytes of UTF-8: of characters that are twice as wide as ASCII's, and of those that are so among them.
_WIDE_BYTES = bytes([*range(0xE3, 0xEE), 0xEF, 0xF0])
_WIDE_AMONG = _WIDE_BYTES + b"\xe2"
_FIRST_WORD = re.compile("[^\\s\u2e80-\uabff\uf900-\ufaff\uff00-\uffee]+")
_ENDED = re.compile(r"[,.;:!?…，。；：！？、][\"'”’»)\]）」』》]*\s*$")
_PUNCTUATION = re.compile("[,.;:!?…，。；：！？、]")
_SENTENCE_END = re.compile(r"[.!?…:;。！？：；][\"'”’»)\]）」』》]*\s*$")
_SENTENCE_WITHIN = re.compile(r"[。！？](?=.)|[^\W\d_]{2}[.!?][\"'”’»)\]]*\s+[^\sa-z]")
_MOVED = re.compile(
    r"[，。！？；：、”’）」』》…—]\n|[A-Za-z0-9.,)%]\n"  # a mark beyond the width, another script
    r"|\n[“‘（「『《A-Za-z0-9(]|\n.[，。！？；：、”’）」』》…—]"  # what has no room, or may not begin a line
)
_SPEAKER = re.compile(r"\s*[^\s:：]{1,12}\s?[:：]")
_GOING_ON = re.compile(r"\n(?<=[a-z,;\-\s]\n)[^\S\n]*[a-z]")
_WORDS = re.compile(r"[a-z]+(?:-[a-z]+)*")
_STEM = re.compile(r"[A-Za-z]+(?=-$)")
_HEAD = re.compile(r"[a-z]+")


def join_wrapped_lines(text: str) -> tuple[str, int]:
    """Join wrapped lines: (text, number of lines joined)."""
    count = text.count("\n")
    # Where every break is an empty line, nothing was wrapped.
    if (count < 2 and text.endswith("\n")) or count == 2 * text.count("\n\n"):
        return text, 0
    lines = text.split("\n")
    widths = [0 if line.isspace() else _width(line) for line in lines]
    paragraphs = _paragraphs(lines, widths)
    columns = _columns(paragraphs, widths)
    if not (columns or _GOING_ON.search(text)):
        return text, 0
    breaks = _Breaks(lines, widths)
    wrapped = _wrapped_breaks(breaks, paragraphs, _common_width(breaks, paragraphs, columns))
    if not wrapped:
        return text, 0
    pieces = [lines[0]]
    times = 0
    words: set[str] | None = None
    for number, after in enumerate(lines[1:]):
        joined: str | None = None
        if number in wrapped:
            joined = pieces[-1].rstrip()
            if joined.endswith("-"):
                if words is None:
                    words = set(_WORDS.findall(text.lower()))
                joined = _without_hyphen(joined, after.lstrip(), words)
            elif not (_is_wide(joined[-1]) or _is_wide(after.lstrip()[0])):
                joined += " "
        if joined is None:
            pieces += ["\n", after]
        else:
            pieces[-1] = joined
            pieces.append(after.lstrip())
            times += 1
    return ("".join(pieces), times) if times else (text, 0)


class _Breaks:
    """What is asked of a break more than once; its number is its line's.

    Attributes:
        lines: of the text.
        widths: of each line; 0 if it is empty.
    """

    def __init__(self, lines: list[str], widths: list[int]) -> None:
        self.lines, self.widths = lines, widths
        self._needed: dict[int, int] = {}
        self._may_be_wrapped: dict[int, bool] = {}

    def is_full(self, number: int, limit: int) -> bool:
        """Did a line have no room for the first word of the next line?"""
        width = self.widths[number]
        if not limit - _LONG_WORD < width <= limit + _SLACK:
            return False
        needed = self._needed.get(number)
        if needed is None:
            word = _FIRST_WORD.match(self.lines[number + 1].lstrip())
            needed = self._needed[number] = 1 + _width(word[0]) + _SLACK if word else _SLACK_WIDE
        return width + needed > limit

    def may_be_wrapped(self, number: int) -> bool:
        """Are both lines prose, with beginnings that may belong to one paragraph?"""
        found = self._may_be_wrapped.get(number)
        if found is None:
            found = self._may_be_wrapped[number] = _may_be_wrapped(self.lines[number], self.lines[number + 1])
        return found


def _wrapped_breaks(breaks: _Breaks, paragraphs: list[tuple[int, int]], limit: int) -> set[int]:
    """The numbers of the lines that end where a program broke them."""
    found: set[int] = set()
    lines, widths = breaks.lines, breaks.widths
    for begin, end in paragraphs:
        here = [
            number
            for number in range(begin, end - 1)
            if NARROWEST <= widths[number] <= WIDEST
            and widths[number + 1] <= WIDEST
            and (breaks.is_full(number, limit) or _continues(lines[number], lines[number + 1]))
            and breaks.may_be_wrapped(number)
        ]
        if here and not _are_the_authors(here, begin, end, breaks):
            found.update(here)
    return found


def _are_the_authors(found: list[int], begin: int, end: int, breaks: _Breaks) -> bool:
    """Did the author of a paragraph break its lines: are they verses, titles, items, turns of a dialogue?"""
    lines = breaks.lines[begin:end]
    broken = [breaks.lines[number] for number in found]
    is_wide = sum(_is_wide(line.rstrip()[-1]) for line in broken) > len(broken) / 2
    share = _ENDED_SHARE_WIDE if is_wide else _ENDED_SHARE
    if len(broken) > 1 and _ended_share(broken) >= share:
        return True
    if len(lines) > 3 and _ended_share(lines[:-1]) >= _EVEN_SHARE:
        return True
    if len(lines) == 2:
        return not any(map(_PUNCTUATION.search, lines))
    if not any(map(_SENTENCE_WITHIN.search, lines)) and not _SENTENCE_END.search(lines[-1]):
        return True
    if sum(bool(_SPEAKER.match(line)) for line in lines) >= max(2, _SPEAKER_SHARE * len(lines)):
        return True
    limit = max(breaks.widths[begin:end])
    full = sum(breaks.is_full(number, limit) for number in range(begin, end - 1))
    if full < _FILLED_SHARE * (len(lines) - 1):
        return True
    return is_wide and not _are_even(found, breaks)


def _ended_share(lines: list[str]) -> float:
    """The fraction of lines that end with punctuation."""
    return sum(bool(_ENDED.search(line)) for line in lines) / len(lines)


def _are_even(found: list[int], breaks: _Breaks) -> bool:
    """Are lines of wide characters as wide as most, or moved by a mark or by characters of another width?"""
    lines, widths = breaks.lines, breaks.widths
    moved = [bool(_MOVED.search(f"{lines[number][-2:]}\n{lines[number + 1][:3]}")) for number in found]
    most = max(
        sum(
            abs(widths[number] - usual) <= 1 or is_moved
            for number, is_moved in zip(found, moved, strict=True)
        )
        for usual in {widths[number] for number in found}
    )
    return len(found) < 3 or most >= _EVEN_SHARE * len(found)


def _width(line: str) -> int:
    """Width on a screen: 1 for a letter, 2 for a Chinese, Japanese or Korean character and its marks."""
    if line.isascii():
        return len(line)
    data = line.encode("utf-8", "replace")
    size = len(data)
    if size >= 2 * len(line):  # fast, and no Cyrillic, whose letters take two bytes and words have spaces
        return (size + len(line)) // 2
    wide = size - len(data.translate(None, _WIDE_AMONG))
    if wide and len(data.translate(None, _WIDE_BYTES)) == size:
        wide = 0
    return len(line) + wide


def _is_wide(character: str) -> bool:
    """Is this a character of a script without spaces, twice as wide as ASCII?"""
    return "\u2e80" <= character < "\uac00" or "\uf900" <= character <= "\ufaff" or character >= "\uff00"


@functools.lru_cache(4096)
def _is_prose(line: str) -> bool:
    """Does a line look like prose: not empty, and not code, a table or a table of contents?"""
    body = line.strip()
    return not (
        not body
        or _CODE.search(line)
        or any(sign in line for sign in _SIGNS)
        or ("  " in body and _GAP.search(body))
        or ("(" in body and _CALL.search(body))
        or body.endswith("(")
        or _STATEMENT.match(body)
    )


def _may_be_wrapped(line: str, after: str) -> bool:
    """Are both lines prose, with beginnings that may belong to one paragraph?"""
    if not (_is_prose(line) and _is_prose(after)):
        return False
    body = after.lstrip()
    # Log lines, commands and lists begin alike.
    if _MARKER.match(body) or line.split(None, 1)[0] == body.split(None, 1)[0]:
        return False
    return len(after) - len(body) <= len(line) - len(line.lstrip())


def _columns(paragraphs: list[tuple[int, int]], widths: list[int]) -> list[tuple[int, int, int]]:
    """(begin, end, width) of each paragraph of three lines or more that may be wrapped.

    In other paragraphs, many lines have room even for a long word.
    """
    found = []
    for begin, end in paragraphs:
        if end - begin < 3:
            continue
        limit = max(widths[begin:end])
        if NARROWEST <= limit <= WIDEST:
            long = sum(width > limit - _LONG_WORD for width in widths[begin : end - 1])
            if long >= _FILLED_SHARE * (end - begin - 1):
                found.append((begin, end, limit))
    return found


def _common_width(
    breaks: _Breaks, paragraphs: list[tuple[int, int]], columns: list[tuple[int, int, int]]
) -> int:
    """The width at which the text was wrapped, or 0."""
    votes: Counter[int] = Counter()
    for begin, end, limit in columns:
        filled = [
            breaks.lines[number + 1].lstrip()[0]
            for number in range(begin, end - 1)
            if breaks.is_full(number, limit) and breaks.may_be_wrapped(number)
        ]
        going_on = sum(not first.isupper() for first in filled)
        # German writes nouns with capitals.
        least = _GOING_ON_SHARE if len(filled) >= _FULL_SHARE * (end - begin - 1) else _FILLED_SHARE
        if going_on >= least * (end - begin - 1):
            votes[limit] += going_on
    count = sum(end - begin - 1 for begin, end in paragraphs if end - begin >= 3)
    if not votes or votes.total() < _WRAPPED_SHARE * count:
        return 0
    below = 0
    for limit in sorted(votes):
        below += votes[limit]
        if below >= _WIDTH_QUANTILE * votes.total():
            return limit
    return 0


def _paragraphs(lines: list[str], widths: list[int]) -> list[tuple[int, int]]:
    """(begin, end) of each run of two or more lines that are not empty.

    A line that is indented further than the one before begins a run.
    """
    found = []
    begin = before = 0
    for number, line in enumerate(lines):
        width = widths[number]
        indent = len(line) - len(line.lstrip()) if width and line[0].isspace() else 0
        if not width or indent > before:
            if number - begin >= 2:
                found.append((begin, number))
            begin = number if width else number + 1
        before = indent if width else WIDEST
    if len(lines) - begin >= 2:
        found.append((begin, len(lines)))
    return found


def _continues(line: str, after: str) -> bool:
    """Whether a sentence continues in lower case."""
    end, start = line.rstrip()[-1:], after.lstrip()[:1]
    return ("a" <= end <= "z" or end in ",;-") and "a" <= start <= "z"


def _without_hyphen(line: str, after: str, words: set[str]) -> str | None:
    """The line without its hyphen if the text has the joined word, or with it if the text has the hyphenated
    word; else None."""
    stem, head = _STEM.search(line[-40:]), _HEAD.match(after)
    if stem is None or head is None:
        return None
    first, second = stem[0].lower(), head[0]
    if first + second in words:
        return line[:-1]
    return line if f"{first}-{second}" in words else None
