"""In which charset a file is written: by its mark, by what a page says, and by its bytes.

A declared charset is believed unless the bytes contradict it: they are UTF-8, or they are not the declared
charset and clearly another one, by uchardet's statistics of languages.
"""

import codecs
import re
import unicodedata
from collections.abc import Iterator
from itertools import filterfalse

from brimful.base.errors import BrimfulError
from brimful.corpus.reading.charsets import Charset, Decoder, charset
from brimful.corpus.reading.nonsense import excerpt

_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
    (b"\x84\x31\x95\x33", "gb18030"),
)
# The least evidence, in bytes of characters beyond ASCII: for UTF-8 (a longer sequence counts for three), for
# charsets of two bytes a character, of one, and of one that no browser knows.
_LEAST_UTF8, _LEAST_PAIRS, _LEAST_SINGLE, _LEAST_RARE = 8, 6, 8, 40
_PAIRS = ("gb18030", "big5hkscs", "cp932", "cp949", "euc_jp")
_SINGLE = ("iso8859-", "cp125", "cp874", "cp866", "koi8-", "mac-cyrillic")
_HIGH = bytes(range(0x80, 0x100))
# Control characters that hardly occur in text.
_CONTROL = bytes(set(range(32)) - set(b"\t\n\r\f\v\b\x1b"))
# Categories of characters that no text in a charset has: control characters, private and unassigned ones.
_NO_TEXT = {"Cc", "Co", "Cn"}

_PRESCAN = 1024
_SPACES = b"\t\n\f\r "
_BODY = re.compile(rb"</head|<body", re.IGNORECASE)
_RAW_TEXT = re.compile(rb"<(script|style|title|textarea|noscript)\b.*?(?:</\1|$)", re.IGNORECASE | re.DOTALL)
_LONG = re.compile("[\u0800-\U0010ffff]")


def by_mark(head: bytes) -> Charset | None:
    """The charset of a file that begins with a byte order mark."""
    return next((charset(name) for mark, name in _MARKS if head.startswith(mark)), None)


def by_page(head: bytes) -> Charset | None:
    """The charset that a page declares in `<meta>` or its XML declaration, as the HTML standard finds it."""
    for data in (head[:_PRESCAN], _RAW_TEXT.sub(b" ", _BODY.split(head, maxsplit=1)[0])):
        if found := _by_meta(data):
            return found
    return _by_xml(head[:_PRESCAN])


def by_bytes(sample: bytes, declared: Charset) -> Charset | None:
    """Another charset than the declared one, if the first bytes of a file are clearly in that."""
    if b"\0" in sample and (wide := _wide(sample, declared)):
        return wide
    if sample.isascii():
        found = _seven_bits(sample) if b"\x1b" in sample else None
        return found if found != declared else None
    decoder = Decoder(declared)
    text = decoder.decode(sample)
    others = beyond_ascii(sample)
    if declared.codec == "utf-8":
        good = sum(not c.isascii() for c in text) - text.count("\ufffd") if decoder.replaced else 0
        return _guess(sample, others) if decoder.replaced > good else None
    utf8 = Decoder(charset("utf-8"))
    text = utf8.decode(sample)
    if not utf8.replaced:
        evidence = sum(not c.isascii() for c in text) + 2 * len(_LONG.findall(text))
        if evidence >= _LEAST_UTF8 or (decoder.replaced and evidence > 1):
            return utf8.charset
    found = _guess(sample, others) if decoder.replaced * 10 > others else None
    return found if found != declared else None


def beyond_ascii(sample: bytes) -> int:
    """How many bytes are not ASCII."""
    return len(sample) - len(sample.translate(None, _HIGH))


def first_beyond_ascii(sample: bytes, charset: Charset) -> str:
    """A few characters of a text around the first that is not ASCII."""
    text = Decoder(charset).decode(sample)
    return excerpt(text, next((n for n, c in enumerate(text) if not (c.isascii() or c == "\ufeff")), 0))


def _wide(sample: bytes, declared: Charset) -> Charset | None:
    """UTF-16 or UTF-32 without a mark: many characters of ASCII, or others with spaces or line ends."""
    if declared.codec.startswith(("utf-16", "utf-32")):
        return None
    for name in ("utf-32-le", "utf-32-be"):
        text = _decoded(sample[: len(sample) // 4 * 4], name)
        if text and "\0" not in text:
            return charset(name)
    sample = sample[: len(sample) // 2 * 2]
    pairs = sample[1::2], sample[::2]
    for name, (high, low) in (("utf-16-le", pairs), ("utf-16-be", pairs[::-1])):
        if (text := _decoded(sample, name)) is None:
            continue
        # The high byte of an ASCII character is NUL, and few other bytes are.
        if not low.count(0) and high.count(0) > len(high) // 2:
            return charset(name)
        if not re.search("[\n\r ]", text) or _kinds(text) & _NO_TEXT:  # these are in the wrong order
            continue
        is_binary = len(sample.translate(None, _CONTROL)) < len(sample) * 0.9
        if is_binary or _decoded(sample, declared.codec) is None:
            return charset(name)
    return None


def _kinds(text: str) -> set[str]:
    """The categories of the characters, but of line ends and tabs."""
    return {unicodedata.category(c) for c in set(text) - {"\n", "\r", "\t"}}


def _decoded(sample: bytes, codec: str) -> str | None:
    """The text of the first bytes of a file, without a character that they have in part."""
    try:
        return codecs.getincrementaldecoder(codec)().decode(sample)
    except (LookupError, UnicodeDecodeError):
        return None


def _seven_bits(sample: bytes) -> Charset | None:
    """ISO-2022-JP and ISO-2022-KR, whose escapes no text has."""
    for name in ("iso-2022-jp", "iso-2022-kr"):
        text = _decoded(sample, charset(name).codec)
        if text and not text.isascii() and "\x1b" not in text:
            return charset(name)
    return None


def _guess(sample: bytes, others: int) -> Charset | None:
    """A charset by the statistics of languages, if all bytes are characters in it."""
    from resiliparse.parse.encoding import detect_encoding

    if others < _LEAST_PAIRS:
        return None
    name = detect_encoding(sample, html5_compatible=False)
    try:
        found = charset(name or "windows-1252")
    except BrimfulError:
        return None
    least = _LEAST_RARE
    if found.codec in _PAIRS:
        least = _LEAST_PAIRS
    elif found.codec.startswith(_SINGLE):
        least = _LEAST_SINGLE
    decoder = Decoder(found)
    text = decoder.decode(sample)
    if found.codec == "utf-8" or others < least or decoder.replaced:
        return None
    return None if _kinds("".join(filterfalse(str.isascii, set(text)))) & _NO_TEXT else found


def _by_xml(head: bytes) -> Charset | None:
    match = re.match(rb"<\?xml[^>]*?encoding[\0- ]*=[\0- ]*(?:\"([^\"\0- ]*)\"|'([^'\0- ]*)')", head)
    return _in_page(match[1] or match[2] or b"") if match else None


def _in_page(label: bytes) -> Charset | None:
    """The charset of a label in a page. A page that can be read as far as the label is not UTF-16."""
    try:
        found = charset(label.decode("ascii"))
    except (UnicodeDecodeError, BrimfulError):
        return None
    if found.codec.startswith(("utf-16", "utf-32")):
        return charset("utf-8")
    return charset("windows-1252") if found.codec == "x-user-defined" else found


def _by_meta(data: bytes) -> Charset | None:
    """The prescan of the HTML standard (13.2.3.2)."""
    at = 0
    while (at := data.find(b"<", at)) >= 0:
        if data.startswith(b"<!--", at):
            end = data.find(b"-->", at + 2)
            if end < 0:
                return None
            at = end + 3
        elif re.match(rb"<meta[\t\n\f\r /]", data[at : at + 6], re.IGNORECASE):
            attributes = _Attributes(data, at + 5)
            if found := _of_meta(attributes):
                return found
            at = attributes.at
        elif re.match(rb"</?[A-Za-z]", data[at : at + 3]):
            name = re.compile(rb"[^\t\n\f\r >]*").match(data, at)
            attributes = _Attributes(data, name.end() if name else at + 1)
            for _ in attributes:
                pass
            at = attributes.at
        elif data[at + 1 : at + 2] in (b"!", b"/", b"?") and at + 1 < len(data):
            at = data.find(b">", at)
            if at < 0:
                return None
        else:
            at += 1
    return None


def _of_meta(attributes: "_Attributes") -> Charset | None:
    seen: set[bytes] = set()
    is_pragma, need_pragma, found = False, None, None
    for name, value in attributes:
        if name in seen:
            continue
        seen.add(name)
        if name == b"http-equiv":
            is_pragma = is_pragma or value == b"content-type"
        elif name == b"content":
            label = _in_content(value)
            if label is not None and found is None:
                found, need_pragma = label, True
        elif name == b"charset":
            found, need_pragma = value, False
    if need_pragma is None or (need_pragma and not is_pragma) or found is None:
        return None
    return _in_page(found)


def _in_content(value: bytes) -> bytes | None:
    """The charset in `text/html; charset=...`."""
    for match in re.finditer(rb"charset[\t\n\f\r ]*=[\t\n\f\r ]*", value):
        rest = value[match.end() :]
        if rest[:1] in (b'"', b"'"):
            end = rest.find(rest[:1], 1)
            return rest[1:end] if end > 0 else None
        return re.split(rb"[\t\n\f\r ;]", rest, maxsplit=1)[0]
    return None


class _Attributes:
    """The attributes of a tag, names and values in lower case. `at` is where the last one ended."""

    def __init__(self, data: bytes, at: int) -> None:
        self.data, self.at = data, at

    def __iter__(self) -> Iterator[tuple[bytes, bytes]]:
        while (found := self._next()) is not None:
            yield found

    def _skip(self, characters: bytes) -> bytes:
        """Go past these characters; the next one."""
        while self.data[self.at : self.at + 1] and self.data[self.at] in characters:
            self.at += 1
        return self.data[self.at : self.at + 1]

    def _until(self, characters: bytes) -> bytes:
        begin = self.at
        while self.at < len(self.data) and self.data[self.at] not in characters:
            self.at += 1
        return self.data[begin : self.at].lower()

    def _next(self) -> tuple[bytes, bytes] | None:
        if self._skip(_SPACES + b"/") in (b"", b">"):
            return None
        begin = self.at
        self.at += 1  # a = at the beginning belongs to the name
        self._until(b"=/>" + _SPACES)
        name = self.data[begin : self.at].lower()
        if self._skip(_SPACES) != b"=":
            return name, b""
        self.at += 1
        quote = self._skip(_SPACES)
        if quote in (b'"', b"'"):
            self.at += 1
            value = self._until(quote)
            if self.at == len(self.data):
                return None
            self.at += 1
            return name, value
        return name, self._until(b">" + _SPACES)
