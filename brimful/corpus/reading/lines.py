r"""Bytes -> text in runs of whole lines: charsets, byte order marks, line ends, bad bytes, endless lines.

\n, \r\n and \r end a line of every file, and become \n. Line ends of Unicode (UTS #18, RL1.6: also \v, \f,
U+0085, U+2028, U+2029) end a line of a text; in tables and JSON they occur within texts. A byte order mark at
the beginning of a line is no text: `cat` leaves some.

Where runs are cut depends on the file alone, so the text of a span does not depend on where the span begins.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import IO

from brimful.corpus.reading.archives import CHUNK, read_chunks, read_range
from brimful.corpus.reading.charsets import Charset, Decoder, charset
from brimful.corpus.reading.detection import beyond_ascii, by_bytes, by_mark, by_page, first_beyond_ascii
from brimful.corpus.reading.inputs import Span, format_of, split_suffix
from brimful.corpus.reading.nonsense import WRONGLY_DECODED, count, count_nonsense, excerpt

HEAD = 8192
# Bytes at the beginning of a file by which its charset is judged.
_SAMPLE = 1 << 16

# Control characters that hardly occur in text files.
_CONTROL = bytes(set(range(32)) - set(b"\t\n\r\f\v\b\x1b")) + b"\x7f"
_LONE_RETURN = re.compile(rb"\r(?!\n)")
_MARK = re.compile("^\ufeff+", re.MULTILINE)
UNICODE_END = re.compile("[\v\f\x85\u2028\u2029]")

_PAGE = re.compile(rb"\s*<(?:!doctype\s+html|html|\?xml)\b", re.IGNORECASE)

_UTF8 = charset("utf-8")
UNDECODABLE = "undecodable characters"
BINARY = "binary file skipped (or UTF-16 without a mark: --read.encoding utf-16)"
EMPTY = "file without a text"
READ_AS = "read as "
"""The beginning of the issue of a file in another charset than it was said to be."""

_SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True)
class Boundary:
    """Where a file may be divided: after group 1 of `pattern`, past a multiple of `grid` bytes."""

    pattern: re.Pattern[bytes]
    grid: int = 1

    def ceil(self, position: int) -> int:
        """`position`, rounded up to the grid."""
        return -(-position // self.grid) * self.grid


# A \r counts once the byte behind it is known.
LINE = Boundary(re.compile(rb"(\n|\r(?=[^\n]))"))
BLANK_LINE = Boundary(re.compile(rb"(?:\n|\r(?!\n))(?=(\r\n|\n|\r(?=[^\n])))"))
_LOOK_BACK = 5  # the bytes of the longest boundary, and one on either side


def read_runs(
    span: Span,
    encoding: str,
    issues: Counter[str],
    *,
    boundary: Boundary | None,
    run: int,
    longest: int,
    too_long: str,
    kind: str = "",
) -> Iterator[str]:
    r"""The text that begins in a span, in runs of whole lines; each line ends in \n, the last one too.

    A byte order mark overrides the encoding, and so do what a page declares and what the bytes say clearly. A
    file that cannot be divided is read whole by the span that begins at 0; its other spans are empty.

    Args:
        boundary: where the file may be divided; None: nowhere.
        run: a run ends with the line that reaches a multiple of this many bytes.
        longest: a line is cut at a multiple of `longest` bytes of the file if no line ended in the `longest`
            bytes before. Only such a run does not end in \n.
        too_long: the issue that counts lines that were cut; empty where a cut changes nothing.
        kind: the format of the file, if not that of its suffix.
    """
    chunks = read_chunks(span.path, issues)
    head = b""
    while len(head) < HEAD and (more := next(chunks, b"")):
        head += more
    kind = kind or format_of(span.path)
    is_page = kind == "html" or (kind == "text" and bool(_PAGE.match(head)))
    found = recognised(head, encoding, is_page, Counter() if span.begin else issues)
    dividable = boundary and found.byte_lines and not split_suffix(span.path)[1]
    if span.begin and not dividable:
        return
    if not head and not issues:
        issues[EMPTY] += 1
    if _is_binary(head[:HEAD], found):
        if not span.begin:
            issues[BINARY] += 1
        return
    begin = 0
    chunks = chain([head], chunks)
    if not found.byte_lines:
        chunks, found = _in_utf8(_decode(chunks, found, issues), issues), _UTF8
    elif boundary and dividable and (span.begin or span.end is not None):
        begin, end = _align(span, boundary)
        chunks = read_range(span.path, begin, end)
    lines = _whole_lines(_in_line_feeds(chunks), begin, run, longest, too_long, issues)
    for text in _decode((part.replace(b"\r\n", b"\n") for part in lines), found, issues):
        if not text.isascii():
            if "\ufeff" in text:
                text = _MARK.sub("", text)
            count_nonsense(text, issues)
        if kind == "text":
            text = _unify(text)
        if text:
            yield text


def recognised(head: bytes, encoding: str, is_page: bool, issues: Counter[str]) -> Charset:
    """The charset of a file. An issue counts the bytes beyond ASCII that contradict what was declared."""
    if (marked := by_mark(head)) is not None:
        return marked
    declared = charset(encoding)
    if is_page and (said := by_page(head)) is not None:
        declared = said
    sample = head[:_SAMPLE]
    found = by_bytes(sample, declared)
    if found is None:
        return declared
    issue = f"{READ_AS}{found.name}, as its bytes say, not as {declared.name}; bytes beyond ASCII"
    count(issues, issue, beyond_ascii(sample) or len(sample), first_beyond_ascii(sample, found))
    return found


def _unify(text: str) -> str:
    # Five searches for a character are ten times faster than one for a class.
    if "\v" in text or "\f" in text or "\x85" in text or "\u2028" in text or "\u2029" in text:
        text = UNICODE_END.sub("\n", text)
    return text


def _is_binary(head: bytes, charset: Charset) -> bool:
    if charset.codec.startswith(("utf-16", "utf-32")):
        return False
    control = len(head) - len(head.translate(None, _CONTROL))
    return control > max(8, len(head) // 20)


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
                if too_long and not within_long:
                    issues[too_long] += 1
                yield b"".join(parts)
                parts, within_long = [], True
                limit += longest
    if parts:
        yield b"".join(parts) + (b"" if parts[-1].endswith(b"\n") else b"\n")


def _in_line_feeds(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """The same number of bytes; each carriage return without a line feed is one."""
    held = b""
    for chunk in chunks:
        chunk = held + chunk if held else chunk
        held = b""
        if b"\r" in chunk:
            if chunk.endswith(b"\r"):
                chunk, held = chunk[:-1], b"\r"
            if chunk.count(b"\r") != chunk.count(b"\r\n"):
                chunk = _LONE_RETURN.sub(b"\n", chunk)
        yield chunk
    if held:
        yield b"\n"


def _decode(chunks: Iterable[bytes], charset: Charset, issues: Counter[str]) -> Iterator[str]:
    decoder = Decoder(charset)
    replaced = 0
    for chunk in chain(chunks, [b""]):
        if not (text := decoder.decode(chunk, final=not chunk)):
            continue
        if found := text.count("\ufffd"):
            example = excerpt(text, text.find("\ufffd"))
            count(issues, f"{UNDECODABLE} in {charset.name}", decoder.replaced - replaced, example)
            count(issues, WRONGLY_DECODED, found - (decoder.replaced - replaced), example)
            replaced = decoder.replaced
        yield text


def _in_utf8(texts: Iterable[str], issues: Counter[str]) -> Iterator[bytes]:
    for text in texts:
        yield without_surrogates(text, issues).encode()


def without_surrogates(text: str, issues: Counter[str]) -> str:
    """Replace and count lone surrogates, which no encoding can store."""
    try:
        text.encode()  # many times as fast as a search for them
    except UnicodeEncodeError:
        text, replaced = _SURROGATE.subn("\ufffd", text)
        issues["lone surrogates"] += replaced
    return text
