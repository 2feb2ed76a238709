"""Lines that a program wrapped: joined if a person asks for it, and noticed if most end at one width."""

import re
from itertools import pairwise

from brimful.corpus.cleaning.markup import EITHER, WIDE

_WIDE_CHARACTER = re.compile(f"[{WIDE}]")
_WITHOUT_SPACE = re.compile(f"[{WIDE}][{WIDE}{EITHER}]|[{EITHER}][{WIDE}]")
_FIRST_WORD = re.compile(rf"[{WIDE}]|[^\s{WIDE}]+")
_HYPHEN = re.compile(r"(?<=[^\W\d_])[-\u2010]$")

FEWEST_LINES = 20
NARROWEST_COLUMNS = 40
_LONGEST_LINES_SHARE = 0.05


def join_lines(text: str) -> str:
    """Join the lines of each paragraph, which an empty line ends, or a line that is indented further or by
    U+3000.

    Nothing stands between two Han characters, a space elsewhere. A hyphen after a letter goes with the break.
    """
    lines = text.split("\n")
    pieces = [lines[0].rstrip()]
    for before, line in pairwise(lines):
        is_empty = not before.strip() or not line.strip()
        if is_empty or _indent(line) > _indent(before) or line.startswith("\u3000"):
            pieces += ["\n", line.rstrip()]
            continue
        body = line.strip()
        if _HYPHEN.search(pieces[-1]) and body[0].isalpha():
            pieces[-1] = pieces[-1][:-1]
        elif not _WITHOUT_SPACE.match(pieces[-1][-1] + body[0]):
            pieces.append(" ")
        pieces.append(body)
    return "".join(pieces)


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def count_full_lines(lines: list[str]) -> int:
    """How many lines had no room for the next line's first word, if they are over half of them; else 0."""
    widths = [_columns(line) for line in lines]
    ranked = sorted(filter(None, widths))
    if len(ranked) < FEWEST_LINES:
        return 0
    # A few lines, such as addresses, are longer than the width.
    width = ranked[-1 - int(_LONGEST_LINES_SHARE * len(ranked))]
    if width < NARROWEST_COLUMNS:
        return 0
    count = 0
    for columns, after in zip(widths, lines[1:], strict=False):
        word = _FIRST_WORD.search(after)
        if columns and word and columns + _columns(word[0]) >= width:
            count += 1
    return count if 2 * count > len(ranked) else 0


def _columns(line: str) -> int:
    """The width on a screen."""
    line = line.rstrip()
    return len(line) if line.isascii() else len(line) + len(_WIDE_CHARACTER.findall(line))
