"""HTML -> text: the text that a page shows, without scripts, styles, navigation and hidden parts.

resiliparse parses the page and lays out its text: blocks on lines of their own, cells apart, `pre` as it is.
This module chooses what to drop, and handles line breaks in Chinese, which the library does not.
"""

import re
from collections.abc import Iterable

# Entities that mean a space, however often the text was escaped.
_SPACE_ENTITY = re.compile(
    r"&(?:amp;)*(?:nbsp|ensp|emsp|thinsp|#160|#xa0)(?:;|(?![A-Za-z0-9=;]))", re.IGNORECASE
)

# CSS selectors. These elements hold no text for readers, or stand beside the text that they annotate.
_NO_TEXT = (
    "title, canvas, noembed, noframes, annotation, annotation-xml, ruby rp, ruby rt, img, area, svg, object,"
    " embed, video, audio"
)
# Navigation by its role, and by the names that generators give it: DocBook and Publican (navheader, docnav),
# Doxygen (navpath, tablist), Bootstrap (navbar, breadcrumb, pagination), Sphinx (footer).
_NAVIGATION = (
    "nav, footer, [role=navigation], [role=search], .navheader, .navfooter, .docnav, .navpath, .tablist,"
    " .navbar, table.navigation, .breadcrumb, .breadcrumbs, .pagination, div.footer"
)
_HIDDEN = (
    '[hidden], [style*="display:none" i], [style*="display: none" i], [style*="display : none" i],'
    ' [style*="visibility:hidden" i], [style*="visibility: hidden" i], i[aria-hidden=true],'
    " span[aria-hidden=true]"
)
# An element with such a name hides the rest of the page if its end tag is missing.
_LARGE_NAMES = (b"nav", b"footer")
# So does an element with one of these names. They are frequent and often lack their ends, so only a page with
# little text is checked for them.
_RAW_NAMES = (b"title", b"style", b"iframe", b"textarea", b"noscript", b"select")
_OTHER_NAMES = (b"div", b"section", b"span", b"svg")
_LEAST_TEXT_SHARE = 0.05
# resiliparse indents each level of these lists, but not of `menu`: deep ones would make endless text.
_MOST_LISTS = 16
_LIST = re.compile(r"(</?)[uo]l\b", re.IGNORECASE)
# Two adjacent links are two words, except in scripts without spaces.
_ADJACENT_LINKS = re.compile(r"</a>(?<=[A-Za-z0-9]</a>)(?=<a\s[^<>]{0,500}>[A-Za-z0-9])")

# Han characters, kana, Yi, their punctuation and full-width forms. Hangul separates words, so it is not here.
WIDE_RANGES = (
    "\u2e80-\u312f\u3190-\ua4cf\uf900-\ufaff\ufe30-\ufe4f\uff01-\uff9f\uffe0-\uffe5\U00020000-\U0003fffd"
)
EITHER = "\u2014\u2018\u2019\u201c\u201d\u2026"  # dashes, quotes and the ellipsis occur in other scripts, too
# A noncharacter marks each line break beside a wide character; it survives the layout.
_MARK = "\ufdd0"
_WIDE, _WIDE_OR_EITHER = f"[{WIDE_RANGES}]", f"[{WIDE_RANGES}{EITHER}]"
_WIDE_BREAK = re.compile(rf"\n(?:(?<={_WIDE}\n)|(?=\s{{0,200}}{_WIDE}))")
_JOINED = re.compile(
    rf"{_MARK}(?:(?<={_WIDE}{_MARK}) ?(?={_WIDE_OR_EITHER})|(?<={_WIDE_OR_EITHER}{_MARK}) ?(?={_WIDE}))"
)
_LEFT_OVER = re.compile(rf"{_MARK}(?:(?<=\s{_MARK}) ?)?")
_SURROGATE = re.compile("[\ud800-\udfff]")
# The text of a heading's link to itself.
_PILCROW = re.compile("¶$", re.MULTILINE)


def read_page(
    markup: str, *, boilerplate: bool = False, main_content: bool = False, is_piece: bool = False
) -> str:
    """Return the text of an HTML page, however broken or deep, in time linear in its size.

    A line break between two Chinese or Japanese characters means nothing (CSS Text 3, section 4.1.3).

    Args:
        boilerplate: keep navigation and hidden parts.
        main_content: keep only what resiliparse takes for the main content.
        is_piece: the markup is a piece of a page, where navigation counts as text.
    """
    if "\0" in markup:
        markup = markup.replace("\0", " ")
    try:
        data = markup.encode().lower()
    except UnicodeEncodeError:
        markup = _SURROGATE.sub("\ufffd", markup)
        data = markup.encode().lower()
    if not markup.isascii():
        markup = _WIDE_BREAK.sub(f"{_MARK}\n", markup)
    markup = _ADJACENT_LINKS.sub("</a> ", markup)
    if data.count(b"<ul") + data.count(b"<ol") > _MOST_LISTS:
        markup = _LIST.sub(r"\1menu", markup)
    selectors = [_NO_TEXT]
    if not boilerplate and _all_end(_LARGE_NAMES, data):
        if not is_piece:
            selectors.append(_NAVIGATION)
        # In a piece of a page, a start tag without an end tag hides nothing.
        may_hide = b"hidden" in data or b"display" in data
        if may_hide and (not is_piece or _all_end(_OTHER_NAMES, data)):
            selectors.append(_HIDDEN)
    text = _extract(markup, selectors, main_content)
    if len(text) < _LEAST_TEXT_SHARE * len(markup):
        # Scripts are cut out before elements are counted: they hold tags in their strings.
        data = b"".join(part.partition(b"<script")[0] for part in data.split(b"</script"))
        markup = _drop_endless(markup, data)
        if not _all_end(_OTHER_NAMES, data):
            selectors = [_NO_TEXT]
        text = _extract(markup, selectors, main_content)
    if _MARK in text:
        text = _LEFT_OVER.sub("", _JOINED.sub("", text.replace(f" {_MARK}", _MARK)))
    if "¶" in text:
        text = _PILCROW.sub("", text)
    if "&" in text:
        text = _SPACE_ENTITY.sub("\xa0", text)
    return text


def _extract(markup: str, selectors: list[str], main_content: bool) -> str:
    from resiliparse.extract.html2text import extract_plain_text

    text: str = extract_plain_text(
        markup,
        preserve_formatting=True,
        main_content=main_content,
        list_bullets=False,
        alt_texts=True,  # a figure may have no other text
        skip_elements=[", ".join(selectors)],
    )
    return text


def _all_end(names: Iterable[bytes], data: bytes) -> bool:
    """Return whether elements of these names have as many end tags as start tags.

    Args:
        data: the page in lower case.
    """
    return all(data.count(b"<" + name) <= data.count(b"</" + name) for name in names)


def _drop_endless(markup: str, data: bytes) -> str:
    """Return the page without the start tags of comments and of raw text that never end."""
    if data.count(b"<!--") > data.count(b"-->"):
        markup = markup.replace("<!--", "<!")
    for name in _RAW_NAMES:
        if not _all_end([name], data):
            markup = re.sub(f"<{name.decode()}", "<span", markup, flags=re.IGNORECASE)
    return markup
