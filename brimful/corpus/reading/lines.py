r"""Bytes -> text in runs of whole lines: charsets, byte order marks, line ends, bad bytes, endless lines.

\n, \r\n and \r end a line of every file, and become \n. Line ends of Unicode (UTS #18, RL1.6: also \v, \f,
U+0085, U+2028, U+2029) end a line of a text; in tables and JSON they occur within texts. Byte order marks at
the beginnings of lines, which `cat` leaves in files, are dropped.

Runs are cut at places that depend only on the file, not on where a span begins.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import IO

from brimful.corpus.reading.archives import CHUNK, read_chunks, read_range
from brimful.corpus.reading.charsets import Charset, Decoder, find_charset
from brimful.corpus.reading.detection import (
    count_high_bytes,
    find_declared_charset,
    find_marked_charset,
    guess_charset,
)
from brimful.corpus.reading.inputs import Span, format_of, split_suffix
from brimful.corpus.reading.nonsense import WRONGLY_DECODED, count_issue, count_nonsense, make_excerpt

HEAD_BYTES = 8192
# Bytes at the beginning of a file by which its charset is judged.
_SAMPLE_BYTES = 1 << 16

# Control characters that hardly occur in text files.
_CONTROL = bytes(set(range(32)) - set(b"\t\n\r\f\v\b\x1b")) + b"\x7f"
_LONE_RETURN = re.compile(rb"\r(?!\n)")
_MARK = re.compile("^\ufeff+", re.MULTILINE)
UNICODE_END = re.compile("[\v\f\x85\u2028\u2029]")

_PAGE = re.compile(rb"\s*<(?:!doctype\s+html|html|\?xml)\b", re.IGNORECASE)

_UTF8 = find_charset("utf-8")
UNDECODABLE = "undecodable characters"
BINARY = "binary file skipped (or UTF-16 without a mark: --read.encoding utf-16)"
EMPTY = "file without a text"
# The issue of a file in another charset than the declared one begins with this.
READ_AS = "read as "

_SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True)
class Boundary:
    """The places where a file may be divided: after group 1 of `pattern`, past a multiple of `grid` bytes."""

    pattern: re.Pattern[bytes]
    grid: int = 1

    def ceil(self, position: int) -> int:
        """Round a position up to the grid."""
        return -(-position // self.grid) * self.grid


# A \r ends a line only if the byte after it is known and is not \n.
LINE = Boundary(re.compile(rb"(\n|\r(?=[^\n]))"))
BLANK_LINE = Boundary(re.compile(rb"(?:\n|\r(?!\n))(?=(\r\n|\n|\r(?=[^\n])))"))
_LOOK_BACK = 5  # the bytes of the longest boundary, and one on either side


def read_runs(
    span: Span,
    encoding: str,
    issues: Counter[str],
    boundary: Boundary | None,
    *,
    run: int,
    longest: int,
    too_long: str,
    kind: str = "",
) -> Iterator[str]:
    r"""Yield the text that begins in a span, in runs of whole lines; each line ends in \n, the last one too.

    A byte order mark overrides the encoding, and so do the charset that a page declares and clear evidence in
    the bytes. A file that cannot be divided is read whole by the span that begins at 0; its other spans are
    empty.

    Args:
        boundary: the places where the file may be divided; None: it stays whole.
        run: a run ends with the line that reaches a multiple of this many bytes.
        longest: a line is cut at a multiple of `longest` bytes of the file if no line ended in the `longest`
            bytes before. Only such a run does not end in \n.
        too_long: the issue that counts lines that were cut; empty if a cut changes nothing.
        kind: the format of the file; by default its suffix names it.
    """
    chunks = read_chunks(span.path, issues)
    head = read_head(chunks, HEAD_BYTES)
    kind = kind or format_of(span.path)
    is_page = kind == "html" or (kind == "text" and bool(_PAGE.match(head)))
    # The first span reports the charset, once for the file.
    charset = recognise_charset(head, encoding, is_page, Counter() if span.begin else issues)
    is_compressed = bool(split_suffix(span.path)[1])
    can_divide = boundary is not None and charset.byte_lines and not is_compressed
    if span.begin and not can_divide:
        return
    if not head and not issues:
        issues[EMPTY] += 1
    if _is_binary(head[:HEAD_BYTES], charset):
        if not span.begin:
            issues[BINARY] += 1
        return
    begin = 0
    chunks = chain([head], chunks)
    if not charset.byte_lines:
        # Here a byte 0x0A may belong to another character, so lines are cut after decoding.
        texts = _decode(chunks, charset, issues)
        chunks, charset = (replace_surrogates(text, issues).encode() for text in texts), _UTF8
    elif boundary and can_divide and (span.begin or span.end is not None):
        begin, end = _align(span, boundary)
        chunks = read_range(span.path, begin, end)
    lines = _cut_runs(_unify_returns(chunks), begin, run, longest, too_long, issues)
    for text in _decode((part.replace(b"\r\n", b"\n") for part in lines), charset, issues):
        if not text.isascii():
            if "\ufeff" in text:
                text = _MARK.sub("", text)
            count_nonsense(text, issues)
        # Five searches for a character are ten times faster than one for a class.
        if kind == "text" and any(end in text for end in "\v\f\x85\u2028\u2029"):
            text = UNICODE_END.sub("\n", text)
        if text:
            yield text


def read_head(chunks: Iterator[bytes], least: int) -> bytes:
    """Read chunks until they end or hold at least `least` bytes, and return them in one piece."""
    head = b""
    while len(head) < least and (chunk := next(chunks, b"")):
        head += chunk
    return head


def recognise_charset(head: bytes, encoding: str, is_page: bool, issues: Counter[str]) -> Charset:
    """Return the charset of a file. If its bytes contradict the declared one, an issue counts them."""
    marked = find_marked_charset(head)
    if marked:
        return marked
    declared = find_charset(encoding)
    if is_page:
        declared = find_declared_charset(head) or declared
    sample = head[:_SAMPLE_BYTES]
    charset = guess_charset(sample, declared)
    if charset is None:
        return declared
    issue = f"{READ_AS}{charset.name}, as its bytes say, not as {declared.name}; bytes beyond ASCII"
    text = Decoder(charset).decode(sample)
    first = re.search("[^\x00-\x7f\ufeff]", text)
    example = make_excerpt(text, first.start() if first else 0)
    count_issue(issues, issue, count_high_bytes(sample) or len(sample), example)
    return charset


def _is_binary(head: bytes, charset: Charset) -> bool:
    if charset.codec.startswith(("utf-16", "utf-32")):
        return False
    control = len(head) - len(head.translate(None, _CONTROL))
    return control > max(8, len(head) // 20)


def _align(span: Span, boundary: Boundary) -> tuple[int, int | None]:
    """Move both ends of a span to the next boundary."""
    with open(span.path, "rb") as file:
        stop = None if span.end is None else boundary.ceil(span.end)
        begin = _next_boundary(file, boundary.ceil(span.begin), boundary, stop)
        if stop is None:
            return begin, None
        if begin >= stop:
            return begin, begin  # a record that began earlier fills the span
        return begin, _next_boundary(file, stop, boundary)


def _next_boundary(file: IO[bytes], position: int, boundary: Boundary, stop: int | None = None) -> int:
    """Return the first boundary from `position` on, or a place from `stop` on if none comes before that."""
    if not position:
        return 0
    at = max(0, position - _LOOK_BACK)
    file.seek(at)
    tail = b""
    while (stop is None or at < stop) and (chunk := file.read(CHUNK)):
        block = tail + chunk
        for match in boundary.pattern.finditer(block):
            if at + match.end(1) >= position:
                return at + match.end(1)
        tail = block[1 - _LOOK_BACK :]  # a boundary may lie across two chunks
        at += len(block) - len(tail)
    return max(at + len(tail), position)


def _cut_runs(
    chunks: Iterable[bytes], at: int, run: int, longest: int, too_long: str, issues: Counter[str]
) -> Iterator[bytes]:
    """Cut the bytes of a file from place `at` on into runs, as `read_runs` describes them."""
    parts: list[bytes] = []
    is_long = False
    goal = limit = 0
    for chunk in chunks:
        while chunk:
            if not parts and not is_long:
                # A new run: it ends with the line that reaches the goal, at the latest at the limit.
                goal = (at // run + 1) * run
                limit = -(-goal // longest) * longest + longest
            line_end = chunk.find(b"\n", max(goal - 1 - at, 0)) + 1
            end = min(line_end or len(chunk), limit - at)
            parts.append(chunk[:end])
            chunk = chunk[end:]
            at += end
            if end == line_end:
                yield b"".join(parts)
                parts, is_long = [], False
            elif at == limit:
                if too_long and not is_long:
                    issues[too_long] += 1
                yield b"".join(parts)
                parts, is_long = [], True
                limit += longest
    if parts:
        text = b"".join(parts)
        yield text if text.endswith(b"\n") else text + b"\n"


def _unify_returns(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Replace each carriage return without a line feed by a line feed; the number of bytes stays."""
    pending = b""
    for chunk in chunks:
        chunk = pending + chunk if pending else chunk
        pending = b""
        if b"\r" in chunk:
            if chunk.endswith(b"\r"):  # a line feed may follow in the next chunk
                chunk, pending = chunk[:-1], b"\r"
            if chunk.count(b"\r") != chunk.count(b"\r\n"):
                chunk = _LONE_RETURN.sub(b"\n", chunk)
        yield chunk
    if pending:
        yield b"\n"


def _decode(chunks: Iterable[bytes], charset: Charset, issues: Counter[str]) -> Iterator[str]:
    decoder = Decoder(charset)
    replaced_before = 0
    for chunk in chain(chunks, [b""]):
        text = decoder.decode(chunk, final=not chunk)
        if "\ufffd" in text:
            example = make_excerpt(text, text.find("\ufffd"))
            replaced = decoder.replaced - replaced_before
            replaced_before = decoder.replaced
            count_issue(issues, f"{UNDECODABLE} in {charset.name}", replaced, example)
            # The other U+FFFD are in the file itself.
            count_issue(issues, WRONGLY_DECODED, text.count("\ufffd") - replaced, example)
        if text:
            yield text


def replace_surrogates(text: str, issues: Counter[str]) -> str:
    """Replace and count lone surrogates, which no encoding can store."""
    try:
        text.encode()  # many times as fast as a search for them
    except UnicodeEncodeError:
        text, replaced = _SURROGATE.subn("\ufffd", text)
        issues["lone surrogates"] += replaced
    return text
