"""Charsets by the names, and with the characters, of the WHATWG Encoding Standard, as browsers have them.

Pages that say gb2312 or iso-8859-1 mean more than these standards had. Python's decoders have nearly all of
it under other names; `_repair` has the rest. Charsets that only Python knows are its own.
"""

import codecs
import functools
import re
import threading
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, field

from brimful.base.errors import BrimfulError

EXAMPLES = "utf-8, gb18030, big5, shift_jis, euc-kr, windows-1251, utf-16"

# Charsets of the standard: the name, its codec in Python where that has another name.
_CODECS = {
    "gbk": "gb18030",
    "big5": "big5hkscs",
    "big5hkscs": "big5hkscs",
    "shift_jis": "cp932",
    "euc_kr": "cp949",
    "iso8859-11": "cp874",
    "iso2022_jp": "iso2022_jp_ext",
}
# What `resiliparse` leaves out. Browsers refuse the last ones in pages, for reasons of security.
_MORE_LABELS = {
    "x-mac-cyrillic": "mac-cyrillic",
    "x-mac-ukrainian": "mac-cyrillic",
    "x-user-defined": "x-user-defined",
    "hz-gb-2312": "hz",
    "iso-2022-kr": "iso2022_kr",
    "csiso2022kr": "iso2022_kr",
}
# The charsets in which the bytes 0x0A and 0x0D always end a line. Not UTF-16, UTF-32, UTF-7, ISO-2022, HZ,
# EBCDIC.
_BYTE_LINES = {"ascii", "x-user-defined", "utf-8", "gb18030", "big5hkscs", "cp950", "cp949", "cp932"}
_BYTE_LINES |= {"euc_jp"}
# After a broken character, some decoders wait for more bytes, even past a line feed or the end.
_SETTLE = b"\n\n\n"
_BYTE_LINE_FAMILIES = ("iso8859-", "cp125", "cp866", "cp874", "koi8-", "mac-")

_JAPANESE = str.maketrans("\u301c\u2016\u2212\xa2\xa3\xac", "\uff5e\u2225\uff0d\uffe0\uffe1\uffe2")
# What Python's decoders of these charsets take for another character, or for one of private use.
_OTHER_CHARACTERS: dict[str, Mapping[int, int]] = {
    "gb18030": str.maketrans(
        "\ue5e5\ue78d\ue78e\ue78f\ue790\ue791\ue792\ue793\ue794\ue795\ue796\ue7c7\ue81e\ue826\ue82b\ue82c"
        "\ue832\ue843\ue854\ue864",
        "\u3000\ufe10\ufe12\ufe11\ufe13\ufe14\ufe15\ufe16\ufe17\ufe18\ufe19\u1e3f\u9fb4\u9fb5\u9fb6\u9fb7"
        "\u9fb8\u9fb9\u9fba\u9fbb",
    ),
    "big5hkscs": str.maketrans(
        "\u2022\uff64\u203e\u223c\u2641\u2609\xa5\xa2\xa3",
        "\u2027\ufe51\xaf\uff5e\u2295\u2299\uffe5\uffe0\uffe1",
    ),
    "cp932": str.maketrans("\uf8f0\uf8f1\uf8f2\uf8f3", "\ufffd" * 4),
    "euc_jp": _JAPANESE,
    "iso2022_jp_ext": _JAPANESE,
    "koi8-u": str.maketrans("\u255d\u256c", "\u045e\u040e"),
}
# The characters of Big5 that Python lacks: the bytes of the first of each run, then the run.
_BIG5 = """
877A㡵𡵓𣚞𦀡㻬𥣞㫵竼龗𤅡𨤍𣇪𠪊𣉞䌊蒄龖鐯䤰蘓墖靊鈘秐稲晠権袝瑌篅枂稬剏遆㓦珄𥶹瓆鿇垳䤯呌䄱𣚎堘穲𧭥讏
87CC䚮𦺈䆁𥶙箮𢒼鿈𢓁𢓉𢓌鿉蔄𣖻䂴鿊䓡𪷿拁灮鿋 8E69箸 8E6F簆 8E7E糎 8EAB緒 8EB4縝 8ECD者 8ED0耨 8F57菁
8F69蒨 8F6E萏 8FCB覦覩 8FFE起 906D都 907A銹 90DC靜 90F1響 91BF鼖 9244蔃 92AF兙兛兝兞 92C8鍮 92D1瑹
9447浧 94CA禛 95D9邗 9644靝 96ED瀞 96FC嬨 9B76爁 9B78矗 9B7B纇 9BC6駖 9BDE釔 9BEC惞 9BF6澶 9C42輶 9C53侻
9C62營 9C68鄄 9C6B鷰 9C77菏 9CBC尐秣 9CD0婧 9D57輋 9D5A筑 9DC4拐 9EA9恢 9EEF痹 9EFD汊 9F60鬮 9F66鼗
9FCB僭 9FD8弌 A063蠏 A077拎 A0D5瑨 A0DF煢 A0E4牐 A3E1€ C6CF廴 C6D3无 C6D5癶 C6D7隶 C6DE〃仝 FA5F倩
FA66偽 FABD包 FAC5卄 FAD5卿 FB48嘅 FBB8婷 FBF3幵 FBF9廐 FC4F彘 FC6C悤 FCB9撐 FCE2晴 FCF1杞 FDB7沜渝
FDBB港 FDF1煮 FE52猪 FE6F瑜 FEAA瓩 FEDD砉
"""


@dataclass(frozen=True)
class Charset:
    """A way to write characters as bytes.

    Attributes:
        name: what the standard, or else Python, calls it.
        codec: Python's name of the decoder.
        byte_lines: whether the bytes 0x0A and 0x0D always end a line; if not, only reading from the start
            finds its ends.
    """

    name: str
    codec: str
    byte_lines: bool

    def decode(self, data: bytes) -> str:
        """The text of some bytes.

        Raises:
            UnicodeDecodeError: they are not this charset.
        """
        decoder = Decoder(self)
        text = decoder.decode(data, final=True)
        if decoder.replaced:
            raise UnicodeDecodeError(self.name, data, 0, len(data), "not this charset")
        return text


@functools.lru_cache(256)
def charset(label: str) -> Charset:
    """The charset of a label: as browsers know it, else as Python does.

    Raises:
        BrimfulError: there is none of this name, or it is no text encoding.
    """
    name = _standard(label) or _pythons(label)
    codec = _CODECS.get(name, name)
    by_bytes = codec in _BYTE_LINES or codec.startswith(_BYTE_LINE_FAMILIES)
    shown = name if name == "shift_jis" else name.replace("_", "-")
    shown = shown.replace("cp125", "windows-125").replace("iso8859-", "iso-8859-")
    return Charset(shown, codec, by_bytes)


def _standard(label: str) -> str | None:
    """The name of a charset of the standard in Python, and of a few that Python lacks."""
    label = label.strip("\t\n\f\r ").lower()
    if label in ("utf-8", "utf8"):
        return "utf-8"
    from resiliparse.parse.encoding import map_encoding_to_html5

    if label in _MORE_LABELS:
        return _MORE_LABELS[label]
    found: str | None = map_encoding_to_html5(label, fallback_utf8=False)
    return found


def _pythons(label: str) -> str:
    """The name of a charset that Python knows: of the standard, if it is one of that too."""
    try:
        "".encode(label)
        name = codecs.lookup(label).name.removesuffix("-sig")
        codecs.getincrementaldecoder(name)(errors="replace").decode(b"a\n")
    except (LookupError, ValueError) as error:
        raise BrimfulError(f"unknown encoding {label!r}; examples: {EXAMPLES}") from error
    if name in ("utf-16", "utf-32"):
        return f"{name}-le"  # Python's decoders insist on a mark
    return _standard(name.replace("_", "-")) or _standard(name) or name


class Decoder:
    """Decodes a charset chunk by chunk, as the standard does: what is not a character becomes U+FFFD.

    A character that is broken by the end of a line does not take it along.

    Attributes:
        replaced: how many characters could not be decoded. A U+FFFD in the text is not one.
    """

    def __init__(self, charset: Charset) -> None:
        self.charset = charset
        self.replaced = 0
        name = charset.codec
        self._skipping: codecs.IncrementalDecoder | None = None
        if repairs := _repairs(name):
            python = "ascii" if name == "x-user-defined" else name
            self._decoder = codecs.getincrementaldecoder(python)(errors=repairs)
        else:
            new_decoder = codecs.getincrementaldecoder(name)
            self._decoder, self._skipping = new_decoder(errors="replace"), new_decoder(errors="ignore")
        self._others = _OTHER_CHARACTERS.get(name)
        self._find = re.compile(f"[{''.join(map(chr, self._others))}]") if self._others else None

    def decode(self, chunk: bytes, *, final: bool = False) -> str:
        """The text of the next bytes, but for a character that they have in part."""
        if self._skipping is None:
            return self._repaired(chunk, final)
        state = self._decoder.getstate()
        text = self._decoder.decode(chunk, final)
        if replaced := text.count("\ufffd"):
            self._skipping.setstate(state)
            self.replaced += replaced - self._skipping.decode(chunk, final).count("\ufffd")
        return text

    def _repaired(self, chunk: bytes, final: bool) -> str:
        settled = final or chunk.endswith(b"\n")
        _errors.number = 0
        text = self._decoder.decode(chunk + _SETTLE if settled else chunk, final)
        self.replaced += _errors.number
        if settled:
            text = text[: -len(_SETTLE)]
        if self._others and self._find and self._find.search(text):
            before = text.count("\ufffd")
            text = text.translate(self._others)
            self.replaced += text.count("\ufffd") - before
        return text


@dataclass
class _Errors(threading.local):
    """Counts what the repairs below give up."""

    number: int = field(default=0)


_errors = _Errors()
_Repair = Callable[[bytes], tuple[str | None, int]]
"""What bytes mean that Python cannot decode, or None; and how many bytes that are."""


@functools.cache
def _repairs(codec: str) -> str | None:
    """The name of the error handler of a codec."""
    if codec.startswith(_BYTE_LINE_FAMILIES) or codec == "x-user-defined":
        repair: _Repair = functools.partial(_single_byte, codec)
    elif codec in _MULTI_BYTE:
        repair = _MULTI_BYTE[codec]
    else:
        return None

    def handle(error: UnicodeError) -> tuple[str, int]:
        assert isinstance(error, UnicodeDecodeError)
        text, length = repair(error.object[error.start : error.start + 3])
        if text is None:
            _errors.number += 1
        return text or "\ufffd", error.start + length

    name = f"brimful.{codec}"
    codecs.register_error(name, handle)
    return name


def _single_byte(codec: str, data: bytes) -> tuple[str | None, int]:
    byte = data[0]
    if codec == "x-user-defined":
        return chr(0xF700 + byte), 1
    if byte < 0xA0:
        return chr(byte), 1
    return "\u05ba" if codec == "cp1255" and byte == 0xCA else None, 1


def _gb18030(data: bytes) -> tuple[str | None, int]:
    return ("€", 1) if data[0] == 0x80 else _pair(range(0x81, 0xFF), data)


def _big5(data: bytes) -> tuple[str | None, int]:
    found = _big5_characters().get(data[:2])
    return (found, 2) if found else _pair(range(0x81, 0xFF), data)


def _euc_jp(data: bytes) -> tuple[str | None, int]:
    if len(data) > 1 and (found := _of_windows(data[0] - 0xA1, data[1] - 0xA1)):
        return found, 2
    if data[0] == 0x8F and len(data) > 2 and 0xA1 <= data[1] < 0xFF:
        return None, 3 if data[2] >= 0x80 else 2
    return _pair((0x8E, 0x8F, *range(0xA1, 0xFF)), data)


def _iso_2022_jp(data: bytes) -> tuple[str | None, int]:
    if len(data) > 1 and (found := _of_windows(data[0] - 0x21, data[1] - 0x21)):
        return found, 2
    return None, 1


def _of_windows(row: int, cell: int) -> str | None:
    """A character that NEC and IBM added to JIS X 0208: ①, ㈱, 髙. Python has them in cp932 alone."""
    if row not in (12, 88, 89, 90, 91) or not 0 <= cell < 94:
        return None
    lead, trail = divmod(row * 94 + cell, 188)
    pair = bytes([lead + (0x81 if lead < 0x1F else 0xC1), trail + (0x40 if trail < 0x3F else 0x41)])
    try:
        return pair.decode("cp932")
    except UnicodeDecodeError:
        return None


def _pair(leads: Container[int], data: bytes) -> tuple[None, int]:
    """Two bytes that are no character. A second one of ASCII is a character of its own."""
    return None, 2 if len(data) > 1 and data[0] in leads and data[1] >= 0x80 else 1


@functools.cache
def _big5_characters() -> dict[bytes, str]:
    found = {}
    for run in _BIG5.split():
        lead, trail = bytes.fromhex(run[:4])
        for character in run[4:]:
            found[bytes([lead, trail])] = character
            trail = 0xA1 if trail == 0x7E else trail + 1
    found |= {bytes([0xA3, 0xC0 + n]): chr(0x2400 + n + (n == 32)) for n in range(33)}
    return found


_MULTI_BYTE: dict[str, _Repair] = {
    "gb18030": _gb18030,
    "big5hkscs": _big5,
    "euc_jp": _euc_jp,
    "cp949": functools.partial(_pair, range(0x81, 0xFF)),
    "cp932": functools.partial(_pair, (*range(0x81, 0xA0), *range(0xE0, 0xFD))),
    "iso2022_jp_ext": _iso_2022_jp,
}
