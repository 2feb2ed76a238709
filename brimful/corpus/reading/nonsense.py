"""Text that was decoded with a wrong charset before it was written: "Ã©" for é, 锟斤拷 for anything."""

import re
from collections import Counter

_SUCH_AS = " (such as "
_EXCERPT_CHARACTERS = 20
# The beginning of each run of 64 KB is searched. `ftfy` takes a millisecond for 2,000 characters, so it gets
# only a few, from a place where Latin letters may stand for two bytes of UTF-8 or two characters of GBK.
_SEARCHED_CHARACTERS = 4096
_SAMPLE_CHARACTERS = 256
_CONTINUATIONS = "\x80-\xbf€‚ƒ„…†‡ˆ‰Š‹ŒŽ‘’“”•–—˜™š›œžŸ"
# A pattern that begins with a class of characters is found many times faster than a choice of patterns.
_SUSPECT = re.compile(f"[\xc0-\u04ff](?:[{_CONTINUATIONS}]|[\xc0-\xff]{{3}})")
# One unlikely pair of characters occurs in correct text, too.
_LEAST_BADNESS = 2
WRONGLY_DECODED = "text that another program decoded with a wrong charset"
# Quotes, full stops and pairs of U+FFFD in UTF-8 look like this if read as GBK; hardly any text has these.
_SIGNS_OF_GBK = ("鈥", "銆", "锟斤拷")


def count_issue(issues: Counter[str], name: str, number: int, example: str) -> None:
    """Count an issue of a file. Its name in `issues` includes the first example."""
    if not number:
        return
    for issue in issues:
        if kind_of_issue(issue) == name:
            issues[issue] += number
            return
    issues[f"{name}{_SUCH_AS}{example})"] += number


def kind_of_issue(issue: str) -> str:
    """Return an issue without its example."""
    return issue.partition(_SUCH_AS)[0]


def make_excerpt(text: str, at: int) -> str:
    """Return a few characters of a text around a place, in one line."""
    begin = max(text.rfind("\n", 0, at) + 1, at - _EXCERPT_CHARACTERS // 2)
    line = text[begin : begin + _EXCERPT_CHARACTERS].partition("\n")[0]
    return " ".join(line.lstrip("\ufeff").split())


def count_nonsense(text: str, issues: Counter[str]) -> None:
    """Count passages in a sample of a text that look decoded with a wrong charset."""
    suspect = _SUSPECT.search(text, 0, _SEARCHED_CHARACTERS)
    if suspect:
        from ftfy.badness import badness

        begin = suspect.start()
        # U+0085 is an end of a line, not half of a character.
        number = badness(text[begin : begin + _SAMPLE_CHARACTERS].replace("\x85", "\n"))
        if number >= _LEAST_BADNESS:
            count_issue(issues, WRONGLY_DECODED, number, make_excerpt(text, begin))
    for sign in _SIGNS_OF_GBK:
        if sign in text:
            count_issue(issues, WRONGLY_DECODED, text.count(sign), make_excerpt(text, text.find(sign)))
