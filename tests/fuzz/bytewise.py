"""Mutations of a file's bytes, and of what stands at its name."""

import random
import re
from collections.abc import Callable
from pathlib import Path

ODDITIES = [
    *(b"\0", b"\r", b"\n", b"\r\n", b"\t", b'"', b"'", b"\\", b",", b":", b"{", b"}", b"[", b"]", b"<", b"&"),
    *("\u2028".encode(), "\u0085".encode(), "\ufeff".encode(), "\ufffd".encode(), "\u202e".encode()),
    *(b"\xff\xfe", b"\xfe\xff", b"\xff\xfe\0\0", b"\xed\xa0\x80", b"\xc0\x80", b"\xf5\x80", b"\x80", b"\x1a"),
    *(b"NaN", b"-Infinity", b"1e999", b"-1", b"0", b"9" * 30, b"1" * 5000, b"0x1p-3", b"null", b"true"),
    *(b"{" * 900, b"[" * 100_000, b"<div>" * 5000, b'{"a":' * 3000, b"\\ud800", b"&a [*a]", b"!!python/x "),
    *(b"%s%n", b"../../x", b"\x1b[31m", b"a" * 100_000, "字".encode() * 30_000, b"\n" * 10_000),
]  # fmt: skip
MOST = 1 << 18
"""Bytes of one line, repeated: some verbs train on them, and the limit of time is for what hangs."""


def _place(content: bytes, draw: random.Random) -> int:
    """Anywhere, but often in the first bytes, where formats have their headers."""
    return draw.randrange(min(len(content), draw.choice((64, 64, 1 << 40))) + 1)


def _block(content: bytes, draw: random.Random) -> tuple[int, int]:
    size = draw.choice((1, 4, 16, 256, 4096))
    begin = _place(content, draw)
    return begin, min(len(content), begin + size)


def flip(content: bytes, draw: random.Random) -> bytes:
    made = bytearray(content)
    for _ in range(draw.choice((1, 1, 2, 8, 64)) if content else 0):
        made[min(_place(content, draw), len(made) - 1)] ^= 1 << draw.randrange(8)
    return bytes(made)


def truncate(content: bytes, draw: random.Random) -> bytes:
    return content[: draw.choice((_place(content, draw), max(0, len(content) - draw.randint(1, 9))))]


def fill(content: bytes, draw: random.Random) -> bytes:
    begin, end = _block(content, draw)
    return content[:begin] + draw.choice((b"\0", b"\xff", b" ", b"9")) * (end - begin) + content[end:]


def delete(content: bytes, draw: random.Random) -> bytes:
    begin, end = _block(content, draw)
    return content[:begin] + content[end:]


def duplicate(content: bytes, draw: random.Random) -> bytes:
    begin, end = _block(content, draw)
    return content[:end] + content[begin:end] * draw.choice((1, 1, 3, 1000)) + content[end:]


def swap(content: bytes, draw: random.Random) -> bytes:
    (a, b), (c, d) = sorted((_block(content, draw), _block(content, draw)))
    return content if b > c else content[:a] + content[c:d] + content[b:c] + content[a:b] + content[d:]


def insert(content: bytes, draw: random.Random) -> bytes:
    place = draw.choice((0, len(content), _place(content, draw), _place(content, draw)))
    return content[:place] + draw.choice(ODDITIES) + content[place:]


def replace_number(content: bytes, draw: random.Random) -> bytes:
    """One number in a text becomes another."""
    numbers = list(re.finditer(rb"-?\d+(\.\d+)?([eE][-+]?\d+)?", content[:1_000_000]))
    if not numbers:
        return insert(content, draw)
    begin, end = draw.choice(numbers).span()
    number = draw.choice((b"-1", b"0", b"1e999", b"NaN", b"9" * 25, b"0.5", b"'x'", b"4294967296", b"1e-320"))
    return content[:begin] + number + content[end:]


def shuffle_lines(content: bytes, draw: random.Random) -> bytes:
    lines = content.split(b"\n")
    at = draw.randrange(len(lines))
    change = draw.choice(("drop", "twice", "swap", "cut", "many"))
    if change == "swap":
        other = draw.randrange(len(lines))
        lines[at], lines[other] = lines[other], lines[at]
    elif change == "cut":
        lines[at] = lines[at][: draw.randrange(len(lines[at]) + 1)]
    else:
        many = min(2000, 2 + MOST // (len(lines[at]) + 1))
        lines[at : at + 1] = [lines[at]] * {"drop": 0, "twice": 2, "many": many}[change]
    return b"\n".join(lines)


def recode(content: bytes, draw: random.Random) -> bytes:
    """The same text in another charset, or with other line ends."""
    text = content.decode("utf-8", "replace")
    if draw.random() < 0.5:
        return text.replace("\n", draw.choice(("\r", "\r\n", "\u2028", "\u0085", "\v"))).encode()
    charset = draw.choice(("utf-16", "utf-16-le", "utf-8-sig", "gb18030", "latin-1", "utf-32", "utf-7"))
    return text.encode(charset, "replace")


BYTEWISE: list[Callable[[bytes, random.Random], bytes]] = [
    *(flip, flip, truncate, fill, delete, duplicate, swap, insert, insert, insert, insert),
    *(replace_number, shuffle_lines, recode),
]


def replace_file(path: Path, draw: random.Random) -> str:
    """Empty or remove a file, or put a folder, a link or another file at its name."""
    kinds = ["empty", "missing", "folder", "dead link", "link to itself", "another file", "unreadable link"]
    kind = draw.choice(kinds)
    others = sorted(p for p in path.parent.iterdir() if p.is_file() and p != path)
    path.unlink()
    if kind == "empty":
        path.touch()
    elif kind == "folder":
        path.mkdir()
    elif kind == "dead link":
        path.symlink_to("nothing-here")
    elif kind == "link to itself":
        path.symlink_to(path.name)
    elif kind == "unreadable link":
        path.symlink_to("/proc/self/mem")
    elif kind == "another file" and others:
        path.write_bytes(draw.choice(others).read_bytes())
    return kind
