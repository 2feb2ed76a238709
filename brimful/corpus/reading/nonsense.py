"""Text that was decoded with a wrong charset before it was written: "Ã©" for é, 锟斤拷 for anything."""

import re
from collections import Counter

_SUCH_AS = " (such as "
_EXCERPT = 20
# A sample of each run of 64 KB is looked at. `ftfy` takes a millisecond for 2,000 characters, so it sees a
# few, from where two bytes of a character of UTF-8, or two characters of GBK, may stand as Latin letters.
_SEARCHED_CHARACTERS = 4096
_SAMPLE_CHARACTERS = 256
_CONTINUATIONS = "\x80-\xbf€‚ƒ„…†‡ˆ‰Š‹ŒŽ‘’“”•–—˜™š›œžŸ"
# A pattern that begins with a class of characters is searched for many times as fast as alternatives.
_SUSPECT = re.compile(f"[\xc0-\u04ff](?:[{_CONTINUATIONS}]|[\xc0-\xff]{{3}})")
# One unlikely pair of characters occurs in honest text, too.
_LEAST_BADNESS = 2
WRONGLY_DECODED = "text that another program decoded with a wrong charset"
# What GBK makes of the quotes and the full stop of UTF-8, and of two U+FFFD; hardly any text has these.
_SIGNS_OF_GBK = ("鈥", "銆", "锟斤拷")


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
    """Count passages in a sample of a text which look decoded with a wrong charset."""
    if suspect := _SUSPECT.search(text, 0, _SEARCHED_CHARACTERS):
        from ftfy.badness import badness

        # U+0085 is an end of a line, not half of a character.
        sample = text[suspect.start() : suspect.start() + _SAMPLE_CHARACTERS].replace("\x85", "\n")
        number = badness(sample)
        if number >= _LEAST_BADNESS:
            count(issues, WRONGLY_DECODED, number, excerpt(text, suspect.start()))
    for sign in _SIGNS_OF_GBK:
        if sign in text:
            count(issues, WRONGLY_DECODED, text.count(sign), excerpt(text, text.find(sign)))
