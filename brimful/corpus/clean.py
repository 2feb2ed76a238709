"""Raw text -> clean documents. The rules run in this order, and each counts what it did:

1. undecodable: a document of which too much could not be decoded is dropped.
2. html: markup becomes text; scripts, styles, navigation and hidden parts go.
3. entities: `&amp;` and the like in what is not HTML become the characters they name.
4. characters: control, private-use and replacement characters and lone surrogates become blanks;
   invisible ones (soft hyphen, zero-width space, direction marks) go.
5. garbage: ASCII tokens that look like hashes, UUIDs or base64 go. Chinese is never touched.
6. blanks: runs of blanks become one; a wrapped English line is joined to the next; line breaks stay.
7. short: a document of fewer than `min_characters` is dropped.
8. long: a document of more than `max_characters` is cut, where possible between paragraphs, sentences
   or words. Tokenizers need more than linear time on one long text.
"""

import html
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, kw_only=True)
class CleanConfig:
    """What is kept of a raw text."""

    html: Literal["auto", "always", "never"] = "auto"
    """Whether text is parsed as HTML: in .html files and where it clearly is markup, always, or never."""
    garbage: bool = True
    """Drop tokens that look like hashes, UUIDs or base64."""
    max_undecodable: float = 0.1
    """Drop a document if a larger share of its characters could not be decoded."""
    min_characters: int = 2
    """Drop a document that is shorter."""
    max_characters: int = 32768
    """Cut a document that is longer."""


_BLOCK = re.compile(
    r"<(?=/?(?:address|article|aside|blockquote|br|caption|dd|div|dl|dt|figure|figcaption|footer|form|h[1-6]|header"
    r"|hr|li|main|ol|option|p|pre|section|table|td|th|tr|ul)\b)",
    re.IGNORECASE,
)
_MARKUP = re.compile(
    r"</(?:a|b|body|div|em|font|h[1-6]|html|i|li|p|span|strong|table|td|tr|ul)\s*>|<br\s*/?>", re.IGNORECASE
)
_FEWEST_TAGS = 3
_CHARACTERS_PER_TAG = 500
_BOILERPLATE = ["script", "style", "noscript", "template", "nav", "footer", "svg", "iframe", "select"]

_ENTITY = re.compile(r"&(?:#\d{1,7}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z][A-Za-z0-9]{1,31});")
_LINE_BREAK = re.compile("\r\n?|[\x0b\f\x85\u2028\u2029]")
_UNWANTED = re.compile("[\x00-\x08\x0e-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff\U000f0000-\U0010ffff]")
_INVISIBLE = re.compile("[\u00ad\u200b\u200e\u200f\u202a-\u202e\u2060-\u2069\ufeff]")

_RUN = re.compile(r"(?<![A-Za-z0-9+/=_-])[A-Za-z0-9+/=_-]{16,}")
_HEXADECIMAL = re.compile(r"(?=.*[0-9])(?=.*[A-Fa-f])[0-9A-Fa-f-]{16,}")
_KINDS = re.compile(r"[A-Z]+|[a-z]+|[0-9]+")
_DIGITS = re.compile(r"[0-9]+")
_SEPARATORS = re.compile(r"[+/=_-]")
_SHORTEST_BASE64 = 32

_BLANKS = re.compile(r"[^\S\n]+")
_AROUND_BREAK = re.compile(r" ?\n[ \n]*")
_WRAPPED = re.compile(r"(?<=[^\n]{40}[a-z,;])\n(?=[a-z])")

_Replacement = str | Callable[[re.Match[str]], str]

_CUTS = ("\n", "。", "！", "？", ". ", "! ", "? ", "；", "; ", " ")


def clean(raw: str, config: CleanConfig, counts: Counter[str], *, is_html: bool = False) -> list[str]:
    """Clean one raw document into none, one or (where it is too long) several; count what was done.

    Args:
        counts: `dropped: ...` counts documents; the other counters count changes of the rule they name.
        is_html: the text comes from an HTML file.
    """
    if raw.count("\ufffd") > config.max_undecodable * len(raw):
        counts["dropped: undecodable"] += 1
        return []
    looks = is_html or looks_like_html(raw)
    if config.html == "always" or (config.html == "auto" and looks):
        counts["html documents"] += 1
        text = html_to_text(raw)
    else:
        text = _counted(_ENTITY, lambda match: html.unescape(match[0]), raw, counts, "entities")
    text = _LINE_BREAK.sub("\n", text)
    text = _counted(_UNWANTED, " ", text, counts, "unwanted characters")
    text = _counted(_INVISIBLE, "", text, counts, "invisible characters")
    if config.garbage:
        text = _RUN.sub(lambda match: _without_garbage(match, counts), text)
    text = _AROUND_BREAK.sub("\n", _BLANKS.sub(" ", text)).strip()
    text = _counted(_WRAPPED, " ", text, counts, "wrapped lines joined")
    if len(text) < config.min_characters:
        counts["dropped: too short" if text else "dropped: empty"] += 1
        return []
    pieces = _cut(text, config.max_characters)
    if len(pieces) > 1:
        counts["long documents cut"] += 1
    return [piece for piece in pieces if len(piece) >= config.min_characters]


def _counted(
    pattern: re.Pattern[str], replacement: _Replacement, text: str, counts: Counter[str], rule: str
) -> str:
    text, times = pattern.subn(replacement, text)
    if times:
        counts[rule] += times
    return text


def looks_like_html(text: str) -> bool:
    """Is the text markup, rather than text that mentions a tag?"""
    if "<" not in text:
        return False
    tags = sum(1 for _ in _MARKUP.finditer(text))
    return tags >= _FEWEST_TAGS and tags * _CHARACTERS_PER_TAG >= len(text)


def html_to_text(markup: str) -> str:
    """The text of a page, a line for each block element."""
    from selectolax.lexbor import LexborHTMLParser

    # A form feed before each block tag is a blank to the parser, so it stays where it is, even within tables.
    markup = re.sub(r"[\n\r\f]", " ", markup.replace("\0", " "))
    page = LexborHTMLParser(_BLOCK.sub("\f<", markup))
    page.strip_tags(_BOILERPLATE)
    body = page.body
    return body.text(separator="").replace("\f", "\n") if body is not None else ""


def _without_garbage(match: re.Match[str], counts: Counter[str]) -> str:
    run = match[0]
    if _HEXADECIMAL.fullmatch(run) or _looks_like_base64(run):
        counts["garbage tokens"] += 1
        return " "
    return run


def _looks_like_base64(run: str) -> bool:
    """Upper, lower and digits change every other character; paths have separators, identifiers few digits."""
    size = len(run)
    return (
        size >= _SHORTEST_BASE64
        and len(_KINDS.findall(run)) * 3 >= size
        and len(_DIGITS.findall(run)) * 16 >= size
        and len(_SEPARATORS.findall(run)) * 10 <= size
    )


def _cut(text: str, limit: int) -> list[str]:
    pieces = []
    begin = 0
    while len(text) - begin > limit:
        end = begin + limit
        for mark in _CUTS:
            found = text.rfind(mark, begin + limit // 2, end)
            if found >= 0:
                end = found + len(mark)
                break
        pieces.append(text[begin:end].strip())
        begin = end
    pieces.append(text[begin:].strip())
    return pieces
