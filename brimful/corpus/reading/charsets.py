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
# Browsers refuse to decode these in pages; `webencodings` decodes one without a codec of Python.
_NOT_DECODED = ("replacement", "x-user-defined")
# In these a byte 0x0A may be a part of a character, or what it means depends on the bytes before it.
_STATEFUL_CODECS = ("utf-7", "iso2022", "hz")
# After a broken character some decoders wait for more bytes, even past a line feed.
_SETTLE = b"\n\n\n"


@dataclass(frozen=True)
class Charset:
    """A way to write characters as bytes.

    Attributes:
        name: what browsers, or else Python, call it.
        codec: Python's name of the decoder.
        byte_lines: whether the bytes 0x0A and 0x0D always end a line; if not, only reading from the start
            finds its ends.
    """

    name: str
    codec: str
    byte_lines: bool


@functools.lru_cache(256)
def charset(label: str) -> Charset:
    """The charset of a label.

    Raises:
        BrimfulError: nobody knows the label, or it names no text encoding.
    """
    try:
        encoding = _lookup(label) or _lookup_python(label)
        name, codec = encoding if encoding else (_python_name(label), _python_name(label))
        codec = _WIDER_CODECS.get(codec, codec)
        ends_line = "\n".encode(codec) == b"\n"
        codecs.getincrementaldecoder(codec)().decode(b"a\n")
    except (LookupError, ValueError) as error:
        raise BrimfulError(f"unknown encoding {label!r}; examples: {EXAMPLES}") from error
    return Charset(name, codec, ends_line and not codec.startswith(_STATEFUL_CODECS))


def _lookup(label: str) -> tuple[str, str] | None:
    """The name and the codec of a label of browsers."""
    encoding = webencodings.lookup(label)
    if encoding is None or encoding.name in _NOT_DECODED:
        return None
    return encoding.name, encoding.codec_info.name


def _lookup_python(label: str) -> tuple[str, str] | None:
    """The same for a label that only Python knows, of a charset that browsers know."""
    name = _python_name(label)
    return _lookup(name) or _lookup(name.replace("_", "-"))


def _python_name(label: str) -> str:
    name = codecs.lookup(label).name.removesuffix("-sig")
    # Python's decoders of these insist on a mark, which `detection` has taken care of.
    return f"{name}-le" if name in ("utf-16", "utf-32") else name


class Decoder:
    """Decodes a charset chunk by chunk; each error becomes U+FFFD and takes no line end along.

    Attributes:
        replaced: how many characters could not be decoded. A U+FFFD in the text is not one.
    """

    def __init__(self, charset: Charset) -> None:
        self.charset = charset
        self.replaced = 0
        self._decoder = codecs.getincrementaldecoder(charset.codec)(errors=_HANDLER)
        self._waits = charset.byte_lines and charset.codec != "utf-8"

    def decode(self, chunk: bytes, *, final: bool = False) -> str:
        """The text of the next bytes, but for a character that they have in part."""
        _errors.number = 0
        if self._waits and (final or chunk.endswith(b"\n")):
            text = self._decoder.decode(chunk + _SETTLE, True)[: -len(_SETTLE)]
        else:
            text = self._decoder.decode(chunk, final)
        self.replaced += _errors.number
        return text


class _Errors(threading.local):
    """Counts the characters that the handler below gives up."""

    number = 0


_errors = _Errors()
_HANDLER = "brimful.replace"


def _replace(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeDecodeError)
    # The euro sign of Windows' GBK, which is not in Python's.
    if error.encoding == "gb18030" and error.object[error.start] == 0x80:
        return "€", error.start + 1
    _errors.number += 1
    return "\ufffd", error.end


codecs.register_error(_HANDLER, _replace)
