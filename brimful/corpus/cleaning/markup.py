"""HTML -> text: what a reader sees of a page, without scripts, styles, hidden parts and navigation."""

import functools
import html
import re
from dataclasses import dataclass

import numpy as np

_MARKUP = re.compile(
    r"</(?:a|b|body|div|em|font|h[1-6]|html|i|li|p|span|strong|table|td|tr|ul)\s*>|<br\s*/?>", re.IGNORECASE
)
_FEWEST_TAGS = 3
_CHARACTERS_PER_TAG = 500

_ENTITY = re.compile(r"&(?:#\d{1,7}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z][A-Za-z0-9]{1,31});")
# Those that browsers know without their semicolon, and that occur so.
_UNFINISHED = re.compile(r"&(?:amp|copy|gt|lt|nbsp|quot|reg)(?![A-Za-z0-9=;])|&#\d{1,7}(?![\d;])")
# A blank is meant, however often the text was escaped.
_BLANK_ENTITY = re.compile(r"&(?:amp;)*(?:nbsp|ensp|emsp|thinsp|#160|#xa0);", re.IGNORECASE)
_FREQUENT = (("&lt;", "<"), ("&gt;", ">"), ("&quot;", '"'), ("&#39;", "'"), ("&nbsp;", "\xa0"))


@dataclass(frozen=True)
class Page:
    """The text of a page, blocks set apart by an empty line, and how many parts of it were left out."""

    text: str
    boilerplate: int
    hidden: int
    too_deep: int


def looks_like_html(text: str) -> bool:
    """Is the text markup, rather than text that mentions a tag?"""
    if "<" not in text:
        return False
    tags = sum(1 for _ in _MARKUP.finditer(text))
    return tags >= _FEWEST_TAGS and tags * _CHARACTERS_PER_TAG >= len(text)


def read_page(markup: str, *, boilerplate: bool = False) -> Page:
    """The text of a page in HTML, however broken, in time linear in its size.

    Args:
        boilerplate: keep hidden parts and navigation.
    """
    from brimful.corpus.cleaning.markup_scan import scan

    data = np.frombuffer(markup.encode("utf-8", "surrogatepass"), np.uint8)
    out = np.empty(len(data) + 2, np.uint8)
    counts = np.zeros(3, np.int64)
    size = scan(data, out, counts, boilerplate)
    text = out[:size].tobytes().decode("utf-8", "surrogatepass")
    if "&" in text:
        text = _UNFINISHED.sub(lambda match: _named(match[0] + ";"), text)
        text = decode_entities(text)[0]
    return Page(text, *counts.tolist())


def decode_entities(text: str) -> tuple[str, int]:
    """Entities become the characters they name: (text, how many).

    Once only: `&amp;lt;` becomes `&lt;`, which a text about HTML means. Blanks are decoded all the way.
    """
    if "&" not in text:
        return text, 0
    times = 0
    for entity, character in _FREQUENT:
        if found := text.count(entity):
            times += found
            text = text.replace(entity, character)
    text, found = _BLANK_ENTITY.subn("\xa0", text)
    times += found
    text, found = _ENTITY.subn(lambda match: _named(match[0]), text)
    return text, times + found


@functools.lru_cache(4096)
def _named(entity: str) -> str:
    return html.unescape(entity)
