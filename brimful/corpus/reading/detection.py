"""The charset of a file, by its byte order mark, by what a page declares, and by its bytes.

The bytes override a declared charset in two cases. Either they are UTF-8; or more than a quarter of those
beyond ASCII are invalid in the declared charset, and resiliparse's detector (uchardet) names one that decodes
all of them.
"""

import codecs
import re
import unicodedata

from brimful.base.errors import BrimfulError
from brimful.corpus.reading.charsets import Charset, Decoder, find_charset

_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
    (b"\x84\x31\x95\x33", "gb18030"),
)
# Fewer bytes beyond ASCII may fit another charset by chance.
_LEAST_BYTES = 8
_HIGH_BYTES = bytes(range(0x80, 0x100))
# The categories of control, private-use and unassigned characters, which text does not have.
_NO_TEXT_CATEGORIES = {"Cc", "Co", "Cn"}

_COMMENT = re.compile(rb"<!--.*?(?:-->|$)", re.DOTALL)
_BODY_START = re.compile(rb"</head|<body", re.IGNORECASE)
_META = re.compile(rb"<meta\b[^>]*?\bcharset\s*=[\s\"']*([\w.:+-]+)", re.IGNORECASE)
_XML = re.compile(rb"\s*<\?xml\b[^>]*?\bencoding\s*=\s*[\"']([\w.:+-]+)")


def find_marked_charset(head: bytes) -> Charset | None:
    """Return the charset of a file that begins with a byte order mark."""
    for mark, name in _MARKS:
        if head.startswith(mark):
            return find_charset(name)
    return None


def find_declared_charset(head: bytes) -> Charset | None:
    """Return the charset that a page declares in `<meta>` or its XML declaration."""
    before_body = _BODY_START.split(_COMMENT.sub(b"", head), maxsplit=1)[0]
    declared = _META.search(before_body) or _XML.match(head)
    if declared is None:
        return None
    try:
        charset = find_charset(declared[1].decode("ascii"))
    except (UnicodeDecodeError, BrimfulError):
        return None
    if charset.codec.startswith(("utf-16", "utf-32")):
        return find_charset("utf-8")  # the label could be read, so its bytes are not UTF-16
    return charset


def guess_charset(sample: bytes, declared: Charset) -> Charset | None:
    """Return a charset other than the declared one if a file's first bytes are clearly in it, else None."""
    if b"\0" in sample:
        return None
    utf8 = find_charset("utf-8")
    if sample.isascii() and b"\x1b" not in sample:  # ESC begins the characters of ISO-2022
        is_wide = declared.codec.startswith(("utf-16", "utf-32"))
        return utf8 if is_wide and sample else None
    high_bytes = count_high_bytes(sample)
    broken = _count_broken(sample, declared)
    is_evidence = high_bytes >= _LEAST_BYTES or (broken and high_bytes > 1)
    if is_evidence and declared.codec != "utf-8" and not _count_broken(sample, utf8):
        return utf8
    if not sample.isascii() and (high_bytes < _LEAST_BYTES or broken * 4 <= high_bytes):
        return None
    return _detect_charset(sample, declared)


def count_high_bytes(sample: bytes) -> int:
    """Count the bytes beyond ASCII."""
    return len(sample) - len(sample.translate(None, _HIGH_BYTES))


def _count_broken(sample: bytes, charset: Charset) -> int:
    decoder = Decoder(charset)
    decoder.decode(sample)
    return decoder.replaced


def _detect_charset(sample: bytes, declared: Charset) -> Charset | None:
    """Return the charset that the detector names, if all bytes are characters of text in it."""
    from resiliparse.parse.encoding import detect_encoding

    try:
        charset = find_charset(detect_encoding(sample, html5_compatible=False) or "windows-1252")
    except BrimfulError:
        return None
    decoder = Decoder(charset)
    beyond_ascii = re.sub("[\x00-\x7f]+", "", decoder.decode(sample))
    is_text = beyond_ascii and _NO_TEXT_CATEGORIES.isdisjoint(map(unicodedata.category, beyond_ascii))
    if decoder.replaced or charset.codec == declared.codec or not is_text:
        return None
    return charset
