"""In which charset a file is written: by its mark, by what a page says, and by its bytes.

A declared charset is believed unless the bytes contradict it: they are UTF-8, or a quarter of them is broken
in it and resiliparse's detector (uchardet) names another charset in which nothing is.
"""

import codecs
import re
import unicodedata

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
# Fewer bytes beyond ASCII tell nothing.
_LEAST_BYTES = 8
_HIGH = bytes(range(0x80, 0x100))
# Categories of characters that no text has: control characters, private and unassigned ones.
_NO_TEXT = {"Cc", "Co", "Cn"}

_COMMENT = re.compile(rb"<!--.*?(?:-->|$)", re.DOTALL)
_BODY = re.compile(rb"</head|<body", re.IGNORECASE)
_META = re.compile(rb"<meta\b[^>]*?\bcharset\s*=[\s\"']*([\w.:+-]+)", re.IGNORECASE)
_XML = re.compile(rb"\s*<\?xml\b[^>]*?\bencoding\s*=\s*[\"']([\w.:+-]+)")


def by_mark(head: bytes) -> Charset | None:
    """The charset of a file that begins with a byte order mark."""
    for mark, name in _MARKS:
        if head.startswith(mark):
            return charset(name)
    return None


def by_page(head: bytes) -> Charset | None:
    """The charset that a page declares in `<meta>` or its XML declaration."""
    before_body = _BODY.split(_COMMENT.sub(b"", head), maxsplit=1)[0]
    declared = _META.search(before_body) or _XML.match(head)
    if declared is None:
        return None
    try:
        found = charset(declared[1].decode("ascii"))
    except (UnicodeDecodeError, BrimfulError):
        return None
    # A page that can be read as far as the label is not UTF-16.
    return charset("utf-8") if found.codec.startswith(("utf-16", "utf-32")) else found


def by_bytes(sample: bytes, declared: Charset) -> Charset | None:
    """Another charset than the declared one, if the first bytes of a file are clearly in that."""
    if b"\0" in sample:
        return None
    if sample.isascii() and b"\x1b" not in sample:
        is_wide = declared.codec.startswith(("utf-16", "utf-32"))
        return charset("utf-8") if is_wide and sample else None
    others = beyond_ascii(sample)
    broken = _count_broken(sample, declared)
    is_evidence = others >= _LEAST_BYTES or (broken and others > 1)
    if is_evidence and declared.codec != "utf-8" and not _count_broken(sample, charset("utf-8")):
        return charset("utf-8")
    if not sample.isascii() and (others < _LEAST_BYTES or broken * 4 <= others):
        return None
    return _detected(sample, declared)


def beyond_ascii(sample: bytes) -> int:
    """How many bytes are not ASCII."""
    return len(sample) - len(sample.translate(None, _HIGH))


def first_beyond_ascii(sample: bytes, charset: Charset) -> str:
    """A few characters of a text around the first that is not ASCII."""
    text = Decoder(charset).decode(sample)
    first = re.search("[^\x00-\x7f\ufeff]", text)
    return excerpt(text, first.start() if first else 0)


def _count_broken(sample: bytes, charset: Charset) -> int:
    decoder = Decoder(charset)
    decoder.decode(sample)
    return decoder.replaced


def _detected(sample: bytes, declared: Charset) -> Charset | None:
    """The charset that the detector names, if all bytes are characters of text in it."""
    from resiliparse.parse.encoding import detect_encoding

    try:
        found = charset(detect_encoding(sample, html5_compatible=False) or "windows-1252")
    except BrimfulError:
        return None
    decoder = Decoder(found)
    characters = {character for character in decoder.decode(sample) if not character.isascii()}
    if not characters or decoder.replaced or found.codec == declared.codec:
        return None
    are_text = _NO_TEXT.isdisjoint(map(unicodedata.category, characters))
    return found if are_text else None
