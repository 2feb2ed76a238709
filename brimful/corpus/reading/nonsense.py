"""Text that was decoded with a wrong charset before it was written: "Ã©" for é, 鈥 for a quote, 锟斤拷."""

import re
from collections import Counter
from collections.abc import Callable

_SUCH_AS = " (such as "
_EXCERPT = 20

# The characters of the bytes 0x80 to 0xBF, which continue a character of UTF-8, in windows-1252 and Latin-1.
_SPECIALS = "€‚ƒ„…†‡ˆ‰Š‹ŒŽ‘’“”•–—˜™š›œžŸ"
_REST = f"[\x80-\xbf{_SPECIALS}]"
_TWO, _THREE, _FOUR = "[ÂÃÎÏÐÑ×ØÙ]", "[à-ï]", "[ð-ô]"
# A pattern that begins with a class of characters is searched for many times as fast as a repeated group.
_LATIN = re.compile(
    f"[ÂÃÎÏÐÑ×ØÙà-ô](?:(?<={_TWO}){_REST}|(?<={_THREE}){_REST}{{2}}|(?<={_FOUR}){_REST}{{3}})"
    f"(?:{_TWO}{_REST}|{_THREE}{_REST}{{2}}|{_FOUR}{_REST}{{3}})*"
)
# Characters one of which is in such a text of any length: of French, Russian, Greek, Arabic, Chinese.
_LATIN_SIGNS = ("Ã", "Â", "Ð", "Î", "Ø", "€", "\x80", "¼")
# What GBK makes of a quote, a full stop and a comma of UTF-8; and of Latin-1 what those of GBK become.
_GBK = re.compile("[^\x00-\x7f]*[鈥銆锛][^\x00-\x7f]*")
_GBK_SIGNS = ("鈥", "銆", "锛")
_OF_GBK = re.compile("[\xa1-\xfe][\xa1-\xfe]{7,}")
_OF_GBK_SIGNS = ("¬", "µ")
# What GBK makes of two U+FFFD.
_LOST = "锟斤拷"
LOST = "characters that another program lost"


def count(issues: Counter[str], name: str, number: int, example: str) -> None:
    """Count an issue of a file, with its first example."""
    if number:
        issues[next(filter(lambda issue: kind(issue) == name, issues), f"{name}{_SUCH_AS}{example})")] += (
            number
        )


def kind(issue: str) -> str:
    """An issue without its example."""
    return issue.partition(_SUCH_AS)[0]


def excerpt(text: str, at: int) -> str:
    """A few characters of a text around a place, in one line."""
    begin = max(text.rfind("\n", 0, at) + 1, at - _EXCERPT // 2)
    return " ".join(text[begin : begin + _EXCERPT].partition("\n")[0].lstrip("\ufeff").split())


def count_nonsense(text: str, issues: Counter[str]) -> None:
    """Count passages of a text that is not ASCII which look decoded with a wrong charset."""
    for name, signs, find, meant in _KINDS:
        if any(sign in text for sign in signs):
            found = [(match, right) for match in find.finditer(text) if (right := meant(match[0]))]
            if found:
                match, right = found[0]
                example = f"{match[0][:_EXCERPT]} for {right[:_EXCERPT]}"
                count(issues, name, len(found), example)
                ends = [0, *(match.end() for match, _ in found)]
                begins = [*(match.start() for match, _ in found), len(text)]
                text = " ".join(map(text.__getitem__, map(slice, ends, begins)))
    if _LOST in text:
        count(issues, LOST, text.count(_LOST), _LOST)


def _of_latin(passage: str) -> str | None:
    return _decoded(b"".join(map(_byte, passage)), "utf-8")


def _byte(character: str) -> bytes:
    return character.encode("cp1252" if character in _SPECIALS else "latin-1")


def _of_gbk(passage: str) -> str | None:
    return _mostly_utf8(passage.encode("gb18030", "replace"))


def _of_latin_to_gbk(passage: str) -> str | None:
    data = passage.encode("latin-1")
    return None if _mostly_utf8(data) else _decoded(data, "gb2312")


def _mostly_utf8(data: bytes) -> str | None:
    text = data.decode("utf-8", "replace")
    return text if text.count("\ufffd") * 4 < len(text) else None


def _decoded(data: bytes, codec: str) -> str | None:
    try:
        return data.decode(codec)
    except UnicodeDecodeError:
        return None


_KINDS: tuple[tuple[str, tuple[str, ...], re.Pattern[str], Callable[[str], str | None]], ...] = (
    ("GBK that another program read as windows-1252", _OF_GBK_SIGNS, _OF_GBK, _of_latin_to_gbk),
    ("UTF-8 that another program read as windows-1252", _LATIN_SIGNS, _LATIN, _of_latin),
    ("UTF-8 that another program read as GBK", _GBK_SIGNS, _GBK, _of_gbk),
)
