"""Lines that a program wrapped: an option joins them. A warning names it if most lines end at one width."""

import re
from itertools import pairwise

from brimful.corpus.cleaning.markup import EITHER, WIDE_RANGES

_WIDE_CHARACTER = re.compile(f"[{WIDE_RANGES}]")
_WITHOUT_SPACE = re.compile(f"[{WIDE_RANGES}][{WIDE_RANGES}{EITHER}]|[{EITHER}][{WIDE_RANGES}]")
_FIRST_WORD = re.compile(rf"[{WIDE_RANGES}]|[^\s{WIDE_RANGES}]+")
_HYPHEN = re.compile(r"(?<=[^\W\d_])[-\u2010]$")

FEWEST_LINES = 20
NARROWEST_COLUMNS = 40
_LONGEST_LINES_SHARE = 0.05


def join_lines(text: str) -> str:
    """Join the lines of each paragraph. An empty line, a deeper indent or U+3000 begins a new paragraph.

    Two Han characters are joined directly, other lines by a space. A hyphen after a letter is dropped.
    """
    lines = text.split("\n")
    pieces = [lines[0].rstrip()]
    for before, line in pairwise(lines):
        body = line.strip()
        is_empty = not before.strip() or not body
        if is_empty or _indent(line) > _indent(before) or line.startswith("\u3000"):
            pieces += ["\n", line.rstrip()]
            continue
        if _HYPHEN.search(pieces[-1]) and body[0].isalpha():
            pieces[-1] = pieces[-1][:-1]
        elif not _WITHOUT_SPACE.match(pieces[-1][-1] + body[0]):
            pieces.append(" ")
        pieces.append(body)
    return "".join(pieces)


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def count_full_lines(lines: list[str]) -> int:
    """Count the lines that had no room for the next line's first word; 0 if they are at most half of all."""
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
    return 0 if 2 * count <= len(ranked) else count


def _columns(line: str) -> int:
    """Return the width of a line on a screen, where a wide character takes two columns."""
    line = line.rstrip()
    if line.isascii():
        return len(line)
    return len(line) + len(_WIDE_CHARACTER.findall(line))
