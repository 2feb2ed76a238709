"""Charsets by the names that browsers know, as `webencodings` has them, else by Python's."""

import codecs
import functools
import threading
from dataclasses import dataclass

import webencodings

from brimful.base.errors import BrimfulError

EXAMPLES = "utf-8, gb18030, big5, shift_jis, euc-kr, windows-1251, utf-16"

# Pages that say gb2312 or gbk use characters that only GB18030 has.
_WIDER_CODECS = {"gbk": "gb18030", "iso8859-11": "cp874"}
# Browsers do not decode pages in these charsets; `webencodings` decodes one of them without Python's codecs.
_NOT_DECODED = ("replacement", "x-user-defined")
# In these charsets, a byte 0x0A may be a part of a character, or its meaning depends on the bytes before it.
_STATEFUL_CODECS = ("utf-7", "iso2022", "hz")
# After a broken character some decoders wait for more bytes, even past a line feed.
_SETTLE = b"\n\n\n"


@dataclass(frozen=True)
class Charset:
    """A way to write characters as bytes.

    Attributes:
        name: the charset's name in browsers, or else in Python.
        codec: Python's name of the decoder.
        byte_lines: whether the bytes 0x0A and 0x0D always end a line; if not, line ends are found only by
            decoding from the start.
    """

    name: str
    codec: str
    byte_lines: bool


@functools.lru_cache(256)
def find_charset(label: str) -> Charset:
    """Return the charset of a label.

    Raises:
        BrimfulError: neither browsers nor Python know the label, or it does not name a text encoding.
    """
    try:
        name, codec = _lookup(label) or _lookup_python(label)
        codec = _WIDER_CODECS.get(codec, codec)
        ends_line = "\n".encode(codec) == b"\n"
        codecs.getincrementaldecoder(codec)().decode(b"a\n")
    except (LookupError, ValueError) as error:
        raise BrimfulError(f"unknown encoding {label!r}; examples: {EXAMPLES}") from error
    return Charset(name, codec, ends_line and not codec.startswith(_STATEFUL_CODECS))


def _lookup(label: str) -> tuple[str, str] | None:
    """Return the name and the codec of a label that browsers know."""
    encoding = webencodings.lookup(label)
    if encoding is None or encoding.name in _NOT_DECODED:
        return None
    return encoding.name, encoding.codec_info.name


def _lookup_python(label: str) -> tuple[str, str]:
    """Return the name and the codec of a label that only Python knows; browsers may know the charset."""
    name = codecs.lookup(label).name.removesuffix("-sig")
    if name in ("utf-16", "utf-32"):
        name += "-le"  # Python's "utf-16" and "utf-32" expect a mark, which `detection` has read
    return _lookup(name) or _lookup(name.replace("_", "-")) or (name, name)


class Decoder:
    """Decodes a charset chunk by chunk; each error becomes U+FFFD and leaves line ends as they are.

    Attributes:
        replaced: number of characters that could not be decoded; U+FFFD in the file is not one of them.
    """

    def __init__(self, charset: Charset) -> None:
        self.replaced = 0
        self._decoder = codecs.getincrementaldecoder(charset.codec)(errors=_HANDLER)
        self._settles = charset.byte_lines and charset.codec != "utf-8"

    def decode(self, chunk: bytes, *, final: bool = False) -> str:
        """Return the text of the next bytes; an incomplete character waits for the next call."""
        _errors.number = 0
        if self._settles and (final or chunk.endswith(b"\n")):
            text = self._decoder.decode(chunk + _SETTLE, True)[: -len(_SETTLE)]
        else:
            text = self._decoder.decode(chunk, final)
        self.replaced += _errors.number
        return text


class _Errors(threading.local):
    """Counts the characters that the handler below replaces by U+FFFD."""

    number = 0


_errors = _Errors()
_HANDLER = "brimful.replace"


def _replace(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeDecodeError)
    # In Windows' GBK this byte is the euro sign; Python's codec does not know it.
    if error.encoding == "gb18030" and error.object[error.start] == 0x80:
        return "€", error.start + 1
    _errors.number += 1
    return "\ufffd", error.end


codecs.register_error(_HANDLER, _replace)
