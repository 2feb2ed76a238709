r"""Bytes -> text in runs of whole lines: encodings, byte order marks, bad bytes, lines that never end.

Only \n ends a line (U+2028, \x85 and \f occur within text), with a \r before it. Where runs are cut depends
on the file alone, so the text of a span does not depend on where the span begins.
"""

import codecs
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import IO

from brimful.corpus.reading.archives import CHUNK, read_chunks, read_range
from brimful.corpus.reading.inputs import Span, split_suffix
from brimful.errors import BrimfulError

HEAD = 8192

# The encodings, by Python's names, in which the byte 0x0A always is a line feed. Not UTF-16, UTF-32, UTF-7,
# ISO-2022, HZ and EBCDIC; nor EUC-KR, where a bad sequence may swallow it.
_BYTE_LINES = {"ascii", "utf-8", "gb2312", "gbk", "gb18030", "big5", "big5hkscs", "cp950", "cp949"}
_BYTE_LINES |= {"cp932", "shift_jis", "euc_jp"}
_BYTE_LINE_FAMILIES = ("iso8859-", "cp125", "koi8-", "mac-")

_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
# Control characters that hardly occur in text files.
_CONTROL = bytes(set(range(32)) - set(b"\t\n\r\f\v\b\x1b")) + b"\x7f"

# After a broken character, the decoders of GB18030 and EUC-JP wait for more bytes, even past a line feed.
_SETTLE = b"\n\n\n"

_SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True)
class Boundary:
    """Where a file may be divided: after group 1 of `pattern`, past a multiple of `grid` bytes."""

    pattern: re.Pattern[bytes]
    grid: int = 1

    def ceil(self, position: int) -> int:
        """`position`, rounded up to the grid."""
        return -(-position // self.grid) * self.grid


LINE = Boundary(re.compile(rb"(\n)"))
BLANK_LINE = Boundary(re.compile(rb"\n(?=(\r?\n))"))
_LOOK_BACK = 3  # the bytes of the longest boundary


def check_encoding(name: str) -> None:
    """Raises BrimfulError if Python cannot decode such a text encoding piece by piece."""
    try:
        "".encode(name)
        codecs.getincrementaldecoder(name)(errors="replace").decode(b"a\n")
    except (LookupError, ValueError) as error:
        raise BrimfulError(f"unknown encoding {name!r}; examples: utf-8, gb18030, big5, utf-16") from error


def has_byte_lines(encoding: str) -> bool:
    """May a file be cut after any byte 0x0A? If not, only reading from the start finds line ends."""
    name = _canonical(encoding)
    return name in _BYTE_LINES or name.startswith(_BYTE_LINE_FAMILIES)


def _canonical(encoding: str) -> str:
    return codecs.lookup(encoding).name.removesuffix("-sig")


def read_runs(
    span: Span,
    encoding: str,
    issues: Counter[str],
    *,
    boundary: Boundary | None,
    run: int,
    longest: int,
    too_long: str,
) -> Iterator[str]:
    r"""The text that begins in a span, in runs of whole lines; each line ends in \n, the last one too.

    A byte order mark overrides the encoding (Encoding Standard). A file that cannot be divided is read whole
    by the span that begins at 0; its other spans are empty.

    Args:
        boundary: where the file may be divided; None: nowhere.
        run: a run ends with the line that reaches a multiple of this many bytes.
        longest: a line is cut at a multiple of `longest` bytes of the file if no line ended in the `longest`
            bytes before. Only such a run does not end in \n.
        too_long: the issue that counts lines that were cut.
    """
    chunks = read_chunks(span.path, issues)
    head = b""
    while len(head) < HEAD and (more := next(chunks, b"")):
        head += more
    encoding = _encoding(head, encoding)
    dividable = boundary and has_byte_lines(encoding) and not split_suffix(span.path)[1]
    if span.begin and not dividable:
        return
    if _is_binary(head[:HEAD], encoding):
        if not span.begin:
            issues["binary file skipped"] += 1
        return
    begin = 0
    chunks = chain([head], chunks)
    if not has_byte_lines(encoding):
        chunks, encoding = _in_utf8(chunks, encoding, issues), "utf-8"
    elif boundary and dividable and (span.begin or span.end is not None):
        begin, end = _align(span, boundary)
        chunks = read_range(span.path, begin, end)
    lines = _whole_lines(chunks, begin, run, longest, too_long, issues)
    runs = _decode(
        (part.replace(b"\r\n", b"\n") for part in lines),
        encoding,
        issues,
        b"" if encoding == "utf-8" else _SETTLE,
    )
    if not begin and (first := next(runs, "").removeprefix("\ufeff")):
        yield first
    yield from runs


def _encoding(head: bytes, declared: str) -> str:
    for mark, name in _MARKS:
        if head.startswith(mark):
            return name
    name = _canonical(declared)
    return f"{name}-le" if name in ("utf-16", "utf-32") else name  # Python's decoders insist on a mark


def _is_binary(head: bytes, encoding: str) -> bool:
    if encoding.startswith(("utf-16", "utf-32")):
        return False
    control = len(head) - len(head.translate(None, _CONTROL))
    return head.startswith(b"%PDF-") or control > max(8, len(head) // 20)


def _align(span: Span, boundary: Boundary) -> tuple[int, int | None]:
    """Both ends of the span, moved to the next boundary."""
    with open(span.path, "rb") as file:
        if span.end is None:
            return _next_boundary(file, boundary.ceil(span.begin), boundary), None
        stop = boundary.ceil(span.end)
        begin = _next_boundary(file, boundary.ceil(span.begin), boundary, stop)
        return begin, begin if begin >= stop else _next_boundary(file, stop, boundary)


def _next_boundary(file: IO[bytes], position: int, boundary: Boundary, stop: int | None = None) -> int:
    """The first boundary at or after `position`, or a place at or after `stop` if there is none before."""
    if not position:
        return 0
    at = max(0, position - _LOOK_BACK)
    file.seek(at)
    rest = b""
    while (stop is None or at < stop) and (chunk := file.read(CHUNK)):
        block = rest + chunk
        for match in boundary.pattern.finditer(block):
            if at + match.end(1) >= position:
                return at + match.end(1)
        rest = block[1 - _LOOK_BACK :]
        at += len(block) - len(rest)
    return max(at + len(rest), position)


def _whole_lines(
    chunks: Iterable[bytes], at: int, run: int, longest: int, too_long: str, issues: Counter[str]
) -> Iterator[bytes]:
    parts: list[bytes] = []
    goal = (at // run + 1) * run
    limit = -(-goal // longest) * longest + longest
    within_long = False
    for chunk in chunks:
        while chunk:
            line_end = chunk.find(b"\n", max(goal - 1 - at, 0)) + 1
            end = min(line_end or len(chunk), limit - at)
            parts.append(chunk[:end])
            chunk = chunk[end:]
            at += end
            if end == line_end:
                yield b"".join(parts)
                parts, within_long = [], False
                goal = (at // run + 1) * run
                limit = -(-goal // longest) * longest + longest
            elif at == limit:
                issues[too_long] += not within_long
                yield b"".join(parts)
                parts, within_long = [], True
                limit += longest
    if parts:
        yield b"".join(parts) + (b"" if parts[-1].endswith(b"\n") else b"\n")


def _decode(
    chunks: Iterable[bytes], encoding: str, issues: Counter[str], settle: bytes = b""
) -> Iterator[str]:
    """Decode chunks. `settle` is added to a chunk that ends in a line feed, and removed from its text."""
    new_decoder = codecs.getincrementaldecoder(encoding)
    decoder, skipping = new_decoder(errors="replace"), new_decoder(errors="ignore")
    for chunk in chain(chunks, [b""]):
        settled = settle and chunk.endswith(b"\n")
        if settled:
            chunk += settle
        state = decoder.getstate()
        text = decoder.decode(chunk, final=not chunk)
        if replaced := text.count("\ufffd"):
            # A U+FFFD in the file is not an error; a decoder that skips errors keeps it.
            skipping.setstate(state)
            replaced -= skipping.decode(chunk, final=not chunk).count("\ufffd")
            _count(issues, "undecodable characters", replaced)
        if settled:
            text = text[: -len(settle)]
        if text:
            yield text


def _in_utf8(chunks: Iterable[bytes], encoding: str, issues: Counter[str]) -> Iterator[bytes]:
    for text in _decode(chunks, encoding, issues):
        yield without_surrogates(text, issues).encode()


def without_surrogates(text: str, issues: Counter[str]) -> str:
    """Replace and count lone surrogates, which no encoding can store."""
    if text.isascii():
        return text
    text, replaced = _SURROGATE.subn("\ufffd", text)
    _count(issues, "lone surrogates", replaced)
    return text


def count_nul(text: str, issues: Counter[str]) -> None:
    """Count the NUL characters."""
    if "\0" in text:
        issues["NUL characters"] += text.count("\0")


def _count(issues: Counter[str], name: str, number: int) -> None:
    if number:
        issues[name] += number
