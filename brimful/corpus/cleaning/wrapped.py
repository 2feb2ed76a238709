"""Joins the lines of paragraphs that were broken at a fixed width.

A line was wrapped if the first word of the next line had no room in it. Paragraphs of three lines or more
show the width. Without one, a break is joined only if its sentence continues in lower case. Chinese lines are
joined without a space. Lists, headings, verse, code and tables stay: their lines do not fill the width, start
with a marker or a capital, are indented, or look like code. In doubt a break stays, which costs little.
"""

import functools
import re
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise

NARROWEST, WIDEST = 40, 120
# Room that a wrapped line may leave: some programs balance lines, Chinese ones move punctuation.
_SLACK, _SLACK_WIDE = 6, 4
_FILLED_SHARE = 0.6
# The smallest fraction of wrapped line breaks in a text that was wrapped.
_WRAPPED_SHARE = 0.3
_LONG_WORD = 16
_WIDTH_QUANTILE = 0.9

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
_FIRST_WORD = re.compile("[^\\s\u2e80-\ufaff\uff00-\uffee]+")
_GOING_ON = re.compile(r"\n(?<=[a-z,;\-\s]\n)[^\S\n]*[a-z]")
_WORDS = re.compile(r"[a-z]+(?:-[a-z]+)*")
_STEM = re.compile(r"[A-Za-z]+(?=-$)")
_HEAD = re.compile(r"[a-z]+")


def join_wrapped_lines(text: str) -> tuple[str, int]:
    """Join wrapped lines: (text, number of lines joined)."""
    breaks = text.count("\n")
    # Where every break is an empty line, nothing was wrapped.
    if (breaks < 2 and text.endswith("\n")) or breaks == 2 * text.count("\n\n"):
        return text, 0
    lines = text.split("\n")
    widths = [0 if line.isspace() else len(line) if line.isascii() else _width(line) for line in lines]
    if not (_GOING_ON.search(text) or any(_wrapped_paragraphs(widths))):
        return text, 0
    limit = _common_width(lines, widths)
    pieces = [lines[0]]
    times = 0
    words: set[str] | None = None
    for number, (before, after) in enumerate(pairwise(lines)):
        joined: str | None = None
        width = widths[number]
        if (
            NARROWEST <= width <= WIDEST
            and widths[number + 1] <= WIDEST
            and (_is_full(after, width, limit) or _continues(before, after))
            and _may_be_wrapped(before, after)
        ):
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


def _width(line: str) -> int:
    """Width on a screen: UTF-8 and character count make 2 for ASCII, 4 for Chinese."""
    return (len(line.encode("utf-8", "replace")) + len(line)) // 2


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


def _is_full(after: str, width: int, limit: int) -> bool:
    """Did a line have no room for the first word of the next line?"""
    if not limit - _LONG_WORD < width <= limit + _SLACK:
        return False
    word = _FIRST_WORD.match(after.lstrip())
    return width + 1 + len(word[0]) > limit - _SLACK if word else width > limit - _SLACK_WIDE


def _wrapped_paragraphs(widths: list[int]) -> Iterator[tuple[int, int, int]]:
    """(begin, end, width) of each paragraph of three lines or more that may be wrapped.

    In other paragraphs, many lines have room even for a long word.
    """
    for begin, end in _paragraphs(widths):
        limit = max(widths[begin:end])
        if NARROWEST <= limit <= WIDEST:
            long = sum(width > limit - _LONG_WORD for width in widths[begin : end - 1])
            if long >= _FILLED_SHARE * (end - begin - 1):
                yield begin, end, limit


def _common_width(lines: list[str], widths: list[int]) -> int:
    """The width at which the text was wrapped, or 0."""
    votes: Counter[int] = Counter()
    for begin, end, limit in _wrapped_paragraphs(widths):
        filled = sum(
            _is_full(lines[number + 1], widths[number], limit)
            and not lines[number + 1].lstrip()[0].isupper()
            and _may_be_wrapped(lines[number], lines[number + 1])
            for number in range(begin, end - 1)
        )
        if filled >= _FILLED_SHARE * (end - begin - 1):
            votes[limit] += filled
    breaks = sum(end - begin - 1 for begin, end in _paragraphs(widths))
    if not votes or votes.total() < _WRAPPED_SHARE * breaks:
        return 0
    below = 0
    for limit in sorted(votes):
        below += votes[limit]
        if below >= _WIDTH_QUANTILE * votes.total():
            return limit
    return 0


def _paragraphs(widths: list[int]) -> Iterator[tuple[int, int]]:
    """(begin, end) of each run of three or more lines that are not empty."""
    begin = 0
    for number, width in enumerate([*widths, 0]):
        if not width:
            if number - begin >= 3:
                yield begin, number
            begin = number + 1


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
