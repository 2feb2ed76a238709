"""Drops text that was not written for readers: hashes, base64, style sheets.

These rules look at ASCII only, so Chinese text is never taken for a long token.
"""

import re

from brimful.corpus.cleaning.characters import SHORTEST_BASE64, SHORTEST_HEX

_RUN = re.compile(rf"[A-Za-z0-9+/=_-]{{{SHORTEST_HEX},}}")
_HEXADECIMAL = re.compile(r"(?=.*[0-9])(?=.*[A-Fa-f])[0-9A-Fa-f-]+")
_KINDS = re.compile(r"[A-Z]+|[a-z]+|[0-9]+")
_DIGITS = re.compile(r"[0-9]+")
_SEPARATORS = re.compile(r"[+/=_-]")
_JUDGED_CHARACTERS = 1000
_RANDOM = re.compile(rf"[a-z0-9]{{{SHORTEST_HEX},64}}")
_LETTERS_OR_DIGITS = re.compile(r"[a-z]+|[0-9]+")

_PROPERTY = (
    r"(?:(?:-(?:webkit|moz|ms|o)|align|animation|background|border|box|flex|font|grid|justify|letter|line|list"
    r"|margin|max|min|mso|object|outline|overflow|padding|page|table|text|transition|vertical|white|word|z)"
    r"-[a-z-]{1,30}|background|border|clear|color|content|cursor|display|filter|float|font|height|left|margin"
    r"|opacity|outline|overflow|padding|position|right|top|bottom|transform|visibility|width|zoom)"
)
_DECLARATION = rf"{_PROPERTY}\s{{0,5}}:[^;{{}}<>\n]{{1,200}}+"
_RULE = re.compile(rf"\{{\s{{0,20}}{_DECLARATION}(?:;\s{{0,20}}{_DECLARATION}){{0,100}};?\s{{0,20}}\}}")
_FINISHED = rf"{_PROPERTY} ?:[^;:{{}}<>\n]{{1,200}}+;"
_INLINE = re.compile(rf"(?<![A-Za-z-]){_FINISHED}(?:\s?{_FINISHED})+")
_AT_RULE = re.compile(
    r"@(?:charset|import)\s[^;{}\n]{1,200};|@(?:media|supports|layer)\b[^;{}\n]{0,200}\{\s*\}|@font-face\s*(?=\{)"
)
_ELEMENT = (
    r"(?:a|article|aside|b|body|button|div|em|footer|form|h[1-6]|header|html|i|iframe|img|input|label|li|main"
    r"|nav|ol|p|pre|section|select|span|strong|table|tbody|td|textarea|th|thead|tr|ul|video)"
)
_SELECTOR = re.compile(rf"(?:{_ELEMENT}|[.#@*:>+~\[]\S*|{_ELEMENT}[.#:>+~\[]\S*),?|{_ELEMENT}?(?:,\S+)+")
_PART = re.compile(r"[!-:<-z|~]+|\S")
_LONGEST_SELECTOR_CHARACTERS = 200


def drop_tokens(text: str) -> tuple[str, int]:
    """Replace tokens that look like hashes, UUIDs or base64 by spaces; return the text and a token count."""
    times = 0

    def replace(match: re.Match[str]) -> str:
        nonlocal times
        run = match[0]
        if _looks_hexadecimal(run) or _looks_random(run) or _looks_like_base64(run[:_JUDGED_CHARACTERS]):
            times += 1
            return " "
        return run

    return _RUN.sub(replace, text), times


def _looks_hexadecimal(run: str) -> bool:
    """Return whether a token is a hash or a UUID.

    In numbers such as 5.5511151231257827e-017 and in IBANs, letters and digits alternate less often:
    they have fewer than five groups.
    """
    return bool(_HEXADECIMAL.fullmatch(run)) and len(_KINDS.findall(run[:_JUDGED_CHARACTERS])) >= 5


def _looks_random(run: str) -> bool:
    """Return whether lower-case letters and digits alternate in a token, as in `3frfd44ee233ddfs/`.

    Formulas and product codes have capitals, or single letters between their numbers; identifiers have
    separators, or long words.
    """
    token = run.strip("+/=_-")
    if not _RANDOM.fullmatch(token):
        return False
    groups = _LETTERS_OR_DIGITS.findall(token)
    words = [group for group in groups if group[0] > "9"]
    letters = len("".join(words))
    # Names with a number or two have fewer than six groups, less than a fifth of digits, or a longer word.
    # Formulas have words of one letter: random words have 1.5 letters or more on average.
    has_digits = len(groups) >= 6 and (len(token) - letters) * 5 >= len(token)
    return has_digits and 2 * letters >= 3 * len(words) and max(map(len, words)) <= 6


def _looks_like_base64(run: str) -> bool:
    """Return whether capitals, lower case and digits alternate in a token.

    Paths have more separators than base64, identifiers fewer digits.
    """
    size = len(run)
    if size < SHORTEST_BASE64 or len(_SEPARATORS.findall(run)) * 10 > size:
        return False
    # In random base64, the kind of character changes after 1.6 characters, and digits begin after 7.4, on
    # average. The limits are about twice these lengths, to leave room for chance.
    return len(_KINDS.findall(run)) * 3 >= size and len(_DIGITS.findall(run)) * 16 >= size


def drop_css(text: str) -> tuple[str, int]:
    """Replace rules of style sheets and runs of declarations by spaces; return the text and a count of both.

    A rule is a block in braces with declarations of known properties only, and the selectors before it. A
    single declaration outside braces stays, since it may be a sentence.
    """
    pieces = []
    times = end = 0
    for match in _RULE.finditer(text):
        begin = _find_selectors(text, max(end, match.start() - _LONGEST_SELECTOR_CHARACTERS), match.start())
        if begin == match.start() and ";" not in match[0]:
            continue  # this may be a dictionary in program code
        pieces.append(text[end:begin])
        end = match.end()
    if pieces:
        text, times = _AT_RULE.subn(" ", " ".join([*pieces, text[end:]]))
    text, declarations = _INLINE.subn(" ", text)
    return text, len(pieces) + times + declarations


def _find_selectors(text: str, earliest: int, end: int) -> int:
    """Return the start of the selectors that end at `end`."""
    for part in reversed(list(_PART.finditer(text, earliest, end))):
        if not _SELECTOR.fullmatch(part[0]):
            break
        end = part.start()
    return end
