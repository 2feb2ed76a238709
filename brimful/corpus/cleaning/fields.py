"""HTML in fields: texts that are no pages, of records and of text files. One rule decides:

A field is HTML if a tag of an element that HTML has or had carries an attribute or an end (`<p class=a>`,
`</p>`, `<br/>`), be it written plainly or escaped. Then it is read as a page is. Otherwise it is prose, and
stays as it is. Only tags go: what stands in `<script>`, `<title>` and the like is prose, too.
"""

import html
import re
from collections import Counter
from dataclasses import dataclass

from brimful.corpus.cleaning.markup import read_page


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_CELL_NAMES = _names("caption col colgroup tbody td tfoot th thead tr")
_BLOCK_NAMES = _CELL_NAMES | _names("""
    address article aside blockquote center dd details dir div dl dt fieldset figcaption figure footer form
    h1 h2 h3 h4 h5 h6 header hgroup hr legend li listing main marquee menu nav ol p poem pre section summary
    table ul xmp
""")
_INLINE_NAMES = _names("""
    a abbr acronym applet area b base basefont bdi bdo bgsound big blink br cite code command content data
    del dfn dialog element em embed filter font gallery i ilayer image img includeonly input ins isindex kbd
    keygen layer link map mark math menuitem meta meter multicol nextid nobr noinclude nowiki onlyinclude
    param picture portal progress q rb rbc ref references rp rt rtc ruby s samp search shadow slot small
    source spacer span strike strong sub sup time track tt u var wbr xml
""")
# A page hides what stands in these. In a field, they are lines or parts of a line.
_HIDING_NAMES = _names("""
    audio body canvas frame frameset head html iframe noembed noframes noscript object optgroup option
    plaintext script select style template textarea title video
""")
_NEW_NAMES = {
    **dict.fromkeys(_HIDING_NAMES, "div"),
    **dict.fromkeys(("button", "label", "output", "svg"), "span"),
    **dict.fromkeys(("listing", "poem", "xmp"), "pre"),
}
_NAMES_WITHOUT_TABLE = {name: "div" if name == "tr" else "" for name in _CELL_NAMES}
_HTML_NAMES = _BLOCK_NAMES | _INLINE_NAMES | frozenset(_NEW_NAMES)
_SHOWING_NAMES = _HTML_NAMES - {"script", "style"}

_VALUE_PATTERN = r"""\s*+=\s*+(?:"[^"]*+"|'[^']*+'|[^\s"'<>]++)"""
_ATTRIBUTE_PATTERN = rf"\s++[a-zA-Z_:@.*-][\w:.@*-]*+(?:{_VALUE_PATTERN})?+"
_TAG = re.compile(
    r"<(?P<end>(?:\\?/)?)(?P<name>[a-zA-Z][\w:.-]*+)"
    rf"(?:(?P<attributes>(?:{_ATTRIBUTE_PATTERN})*+)\s*+(?P<slash>/?)\s*+>"
    r"|(?P<broken>\s++[a-zA-Z_:@-][\w:.-]*+\s*+=[^<>]*+)>)"  # with stray quotation marks
    r"|(?P<mark><!--|<!(?i:doctype)\b[^<>]*+>|<\?xml\b[^<>]*+>|<!\[[^<>\]]*+\]>)",
    re.ASCII,
)
# Other words behind a name, as in `a <b and c> d`, are no attributes.
_BARE_ATTRIBUTES = re.compile(
    r"(?i)(?:\s+(?:allowfullscreen|async|autofocus|autoplay|checked|compact|controls|default|defer|disabled"
    r"|hidden|ismap|itemscope|loop|multiple|muted|noshade|novalidate|nowrap|open|playsinline|readonly|required"
    r"|reversed|selected|data-[a-z0-9-]+|v-[a-z-]+))+"
)
_ESCAPED_TAG = re.compile(r"(?i)&(?:amp;)*(?:lt|\#60|\#x3c);[/!]?[a-z\[]")
_MOST_ESCAPES = 2
# A longer comment is more likely a text that speaks of `<!--` here, and of `-->` chapters later.
_LONGEST_COMMENT_CHARACTERS = 2000
# `?a=1&copy=2` is an address.
_PARAMETER = re.compile(r"&(?=[A-Za-z]+\d*=)")
_CONTEXT_CHARACTERS = 30

_Tag = re.Match[str]


@dataclass(frozen=True)
class Field:
    """What a field turned out to be.

    Attributes:
        text: of HTML, what a reader sees; of prose, the field itself.
        is_html: whether the rule holds.
        tags: how many tags and comments of HTML it has. They went if the rule holds.
        example: the surroundings of the first one.
    """

    text: str
    is_html: bool = False
    tags: int = 0
    example: str = ""


def read_field(raw: str, *, boilerplate: bool = False, main_content: bool = False) -> Field:
    """The text of a field, by the rule above.

    Args:
        boilerplate, main_content: as for `read_page`.
    """
    text = raw
    for _ in range(_MOST_ESCAPES + 1):
        tags = _find_tags(text)
        if any(_shows_html(tag) for tag in tags):
            tags = _of_page(tags)
            page = _make_page(text, tags)
            text_of_page = read_page(page, boilerplate=boilerplate, main_content=main_content, is_piece=True)
            return Field(text_of_page, True, len(tags), _around(text, tags[0]))
        if "&" not in text or not _ESCAPED_TAG.search(text):
            break
        text = html.unescape(text)
    tags = [tag for tag in _find_tags(raw) if tag["mark"] or _name(tag) in _HTML_NAMES]
    return Field(raw, False, len(tags), _around(raw, tags[0]) if tags else "")


def keep_lines(text: str) -> str:
    """Text that is read as a page, with its line ends: they count where no element divides it into lines."""
    if "\n" in text and not any(_name(tag) in _BLOCK_NAMES for tag in _find_tags(text)):
        return f"<pre>{text}</pre>"
    return text


def _find_tags(text: str) -> list[_Tag]:
    """All that is written as a tag, of whatever element, and the beginnings of comments."""
    if "<" not in text:
        return []
    tags = []
    for tag in _TAG.finditer(text):
        attributes = tag["attributes"]
        if not attributes or "=" in attributes or _BARE_ATTRIBUTES.fullmatch(attributes):
            tags.append(tag)
    return tags


def _name(tag: _Tag) -> str:
    """The name of the element; `!` for a comment and the like."""
    return tag["name"].lower() if tag["name"] else "!"


def _has_more_than_a_name(tag: _Tag) -> bool:
    return bool(tag["end"] or tag["attributes"] or tag["slash"] or tag["broken"])


def _shows_html(tag: _Tag) -> bool:
    """Is this tag enough to read its field as HTML?"""
    return _has_more_than_a_name(tag) and _name(tag) in _SHOWING_NAMES


def _of_page(tags: list[_Tag]) -> list[_Tag]:
    """The tags without those of unknown elements that are names alone, as in `List<String>` or `<date>`."""
    ended_names = {_name(tag) for tag in tags if tag["end"]}
    of_page = []
    for tag in tags:
        name = _name(tag)
        if name in _HTML_NAMES or name == "!" or name in ended_names or _has_more_than_a_name(tag):
            of_page.append(tag)
    return of_page


def _make_page(text: str, tags: list[_Tag]) -> str:
    """The field as a piece of a page that hides nothing and says the same."""
    # How many starts of each element lack their end; below 0, ends that lack their start.
    balance: Counter[str] = Counter()
    is_page_already = len(tags) == text.count("<") and "\n" not in text
    for tag in tags:
        name = _name(tag)
        balance[name] += -1 if tag["end"] else 1
        if tag["broken"] or tag["end"] == "\\/" or name in _NEW_NAMES or name in _CELL_NAMES or name == "!":
            is_page_already = False
    if not is_page_already or min(balance.values()) < 0:
        text = _write_page(text, tags, balance)
    return _PARAMETER.sub("&amp;", text) if "&" in text else text


def _write_page(text: str, tags: list[_Tag], balance: Counter[str]) -> str:
    """The field with other names for some elements, without the signs that are no tags, and with the line
    ends that stand outside of all blocks."""
    new_names = _NEW_NAMES
    if "table" not in balance:
        # A browser drops cells that stand in no table, and joins their words.
        new_names = new_names | _NAMES_WITHOUT_TABLE
    pieces = []
    place = depth = 0
    for tag in tags:
        if tag.start() < place:
            continue  # it stands in a comment
        pieces.append(_write_text(text[place : tag.start()], depth))
        place = tag.end()
        name = _name(tag)
        new_name = new_names.get(name, name)
        if tag["mark"] == "<!--":
            end = text.find("-->", place, place + _LONGEST_COMMENT_CHARACTERS)
            place = place if end < 0 else end + len("-->")
        elif new_name == "":
            pieces.append(" ")
        elif name in _BLOCK_NAMES and tag["end"] and balance[name] < 0:
            pieces.append("<br>")
        elif new_name != name or tag["broken"] or tag["end"] == "\\/":
            pieces.append(f"</{new_name}>" if tag["end"] else f"<{new_name}>")
        elif name != "!":
            pieces.append(tag[0])
        if name in _BLOCK_NAMES and balance[name] == 0:
            depth += -1 if tag["end"] else 1
    pieces.append(_write_text(text[place:], depth))
    page = "".join(pieces)
    return page.replace("&lt;![CDATA[", "").replace("]]>", "") if "&lt;![CDATA[" in page else page


def _write_text(piece: str, depth: int) -> str:
    """Text between tags, in so many blocks."""
    if "<" in piece:
        piece = piece.replace("<", "&lt;")
    if depth == 0 and "\n" in piece and not piece.isspace():
        piece = piece.replace("\n", "<br>")
    return piece


def _around(text: str, tag: _Tag) -> str:
    begin = max(tag.start() - _CONTEXT_CHARACTERS // 2, 0)
    return text[begin : tag.end() + _CONTEXT_CHARACTERS // 2][: 2 * _CONTEXT_CHARACTERS]
