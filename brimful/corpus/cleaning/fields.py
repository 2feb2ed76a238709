"""HTML in fields: texts other than pages, of records and of text files. One rule decides:

A field is HTML if a tag of an element that HTML has or had carries an attribute, or is the end of one that
began (`<p class=a>`, `<b>x</b>`, `<br/>`), be it written plainly or escaped. Then it is read as a page is.
Otherwise it is prose, and stays as it is. Only tags go: what stands in `<script>`, `<title>` and the like is
prose, too.
"""

import html
import re
from collections import Counter
from dataclasses import dataclass

from brimful.corpus.cleaning.markup import read_page
from brimful.corpus.reading.nonsense import excerpt


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
    # resiliparse lays these out within a line.
    **dict.fromkeys(("dir", "legend", "marquee", "menu", "summary"), "div"),
    **dict.fromkeys(("button", "label", "output", "svg"), "span"),
    **dict.fromkeys(("listing", "poem", "xmp"), "pre"),
}
_NAMES_WITHOUT_TABLE = {name: "div" if name == "tr" else "" for name in _CELL_NAMES}
_HTML_NAMES = _BLOCK_NAMES | _INLINE_NAMES | frozenset(_NEW_NAMES)
_UNCHANGED_NAMES = _HTML_NAMES - _CELL_NAMES - frozenset(_NEW_NAMES)
_SHOWING_NAMES = _HTML_NAMES - {"script", "style"}
# Their ends without a start are tags in a page, too.
_NAMES_OF_LONE_ENDS = {"p", "br"}

_VALUE_PATTERN = r"""\s*+=\s*+(?:"[^"]*+"|'[^']*+'|[^\s"'<>]++)"""
_ATTRIBUTE_PATTERN = rf"\s++[a-zA-Z_:@.*-][\w:.@*-]*+(?:{_VALUE_PATTERN})?+"
# Its groups: the slash of an end, the name, the attributes, the slash of an empty element; or attributes with
# stray quotation marks; or the beginning of a comment, and what else has no name.
_TAG = re.compile(
    r"<(?:((?:\\?/)?)([a-zA-Z][\w:.-]*+)"
    rf"(?:((?:{_ATTRIBUTE_PATTERN})*+)\s*+(/?)\s*+>|(\s++[a-zA-Z_:@-][\w:.-]*+\s*+=[^<>]*+)>)"
    r"|(!--|!(?i:doctype)\b[^<>]*+>|\?xml\b[^<>]*+>|!\[[^<>\]]*+\]>))",
    re.ASCII,
)
# Other words behind a name, as in `a <b and c> d`, are not attributes.
_BARE_ATTRIBUTES = re.compile(
    r"(?i)(?:\s+(?:allowfullscreen|async|autofocus|autoplay|checked|compact|controls|default|defer|disabled"
    r"|hidden|ismap|itemscope|loop|multiple|muted|noshade|novalidate|nowrap|open|playsinline|readonly|required"
    r"|reversed|selected|data-[a-z0-9-]+|v-[a-z-]+))+"
)
_ENTITY = re.compile(r"&(?:amp;)*(?:#\d{1,7}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z][A-Za-z0-9]{1,31});")
_ESCAPED_TAG = re.compile(r"(?i)&(?:amp;)*(?:lt|\#60|\#x3c);[/!]?[a-z\[]")
_MOST_ESCAPES = 2
# A longer comment is more likely a text that speaks of `<!--` here, and of `-->` chapters later.
_LONGEST_COMMENT_CHARACTERS = 2000
# `?a=1&copy=2` is an address.
_PARAMETER = re.compile(r"&(?=[A-Za-z]+\d*=)")
_EXAMPLE_CHARACTERS = 60


@dataclass(frozen=True)
class Field:
    """What a field turned out to be.

    Attributes:
        text: of HTML, what a reader sees; of prose, the field itself.
        is_html: whether the rule holds.
        tags: how many tags of HTML it has, and how many entities if it is prose. They went if the rule holds.
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
    shown_tags = tags = _Tags(_without_comments(raw))
    for _ in range(_MOST_ESCAPES):
        if tags.show_html() or "&" not in text or not _ESCAPED_TAG.search(text):
            break
        text = html.unescape(text)
        tags = _Tags(_without_comments(text))
    if tags.show_html():
        page = tags.make_page()
        text_of_page = read_page(page, boilerplate=boilerplate, main_content=main_content, is_piece=True)
        return Field(text_of_page, True, len(tags.names), tags.make_example())
    tags_left = sum(name in _HTML_NAMES for name in shown_tags.names)
    entities = list(_ENTITY.finditer(raw)) if "&" in raw else []
    if tags_left or not entities:
        return Field(raw, False, tags_left + len(entities), shown_tags.make_example())
    return Field(raw, False, len(entities), excerpt(raw, entities[0].start()))


def keep_lines(text: str) -> str:
    """Text that is read as a page, with its line ends: they count where no element divides it into lines."""
    if "\n" in text and _BLOCK_NAMES.isdisjoint(_Tags(text).names):
        return f"<pre>{text}</pre>"
    return text


def _without_comments(text: str) -> str:
    pieces = []
    place = 0
    begin = text.find("<!--")
    while begin >= 0:
        end = text.find("-->", begin, begin + _LONGEST_COMMENT_CHARACTERS)
        if end >= 0:
            pieces.append(text[place:begin])
            place = end + len("-->")
        begin = text.find("<!--", max(place, begin + 1))
    return "".join([*pieces, text[place:]])


class _Tags:
    """The tags of a text, of whatever elements.

    Attributes:
        names: of the elements, in lower case; empty for a comment and the like.
    """

    def __init__(self, text: str) -> None:
        # The text before the first tag; then of each tag its groups, and the text behind it.
        self._parts = _TAG.split(text) if "<" in text else [text]
        self._text = text
        self._ends = self._parts[1::7]
        self._attributes = self._parts[3::7]
        self.names = [name.lower() if name else "" for name in self._parts[2::7]]

    def show_html(self) -> bool:
        """Is one of the tags enough to read the text as HTML?"""
        columns = (self._parts[number::7] for number in (4, 5))
        rows = zip(self.names, self._ends, self._attributes, *columns, strict=True)
        begun_names = set(_NAMES_OF_LONE_ENDS)
        for name, end, attributes, slash, broken in rows:
            has_more = attributes or slash or broken or (end and name in begun_names)
            if not end:
                begun_names.add(name)
            if has_more and name in _SHOWING_NAMES and _are_attributes(attributes):
                return True
        return False

    def make_page(self) -> str:
        """The text as a piece of a page that hides nothing and says the same."""
        # How many starts of each element lack their end; below 0, ends that lack their start.
        balance: Counter[str] = Counter()
        for name, end in zip(self.names, self._ends, strict=True):
            balance[name] += -1 if end else 1
        is_page = self._is_page() and min(balance.values()) >= 0
        page = self._text if is_page else self._write_page(balance)
        return _PARAMETER.sub("&amp;", page) if "&" in page else page

    def make_example(self) -> str:
        """The surroundings of the first tag."""
        begin = max(len(self._parts[0]) - _EXAMPLE_CHARACTERS // 4, 0)
        return self._text[begin : begin + _EXAMPLE_CHARACTERS]

    def _is_page(self) -> bool:
        """Would a page be written so?"""
        return (
            len(self.names) == self._text.count("<")
            and "\n" not in self._text
            and _UNCHANGED_NAMES.issuperset(self.names)
            and "\\/" not in self._ends
            and None not in self._attributes
            and all(map(_are_attributes, self._attributes))
        )

    def _write_page(self, balance: Counter[str]) -> str:
        """The page with other names for some elements, without signs other than tags, and with the line
        ends that stand outside of all blocks."""
        new_names = _NEW_NAMES
        if "table" not in balance:
            # A browser drops cells that stand in no table, and joins their words.
            new_names = new_names | _NAMES_WITHOUT_TABLE
        ended_names = {name for name, end in zip(self.names, self._ends, strict=True) if end}
        known_names = _HTML_NAMES | ended_names
        pieces = [_write_text(self._parts[0], 0)]
        depth = 0
        columns = (self._parts[number::7] for number in range(1, 8))
        rows = zip(self.names, *columns, strict=True)
        for name, end, raw_name, attributes, slash, broken, mark, after in rows:
            new_name = new_names.get(name, name)
            is_tag = name in known_names or attributes or slash or broken
            if mark:
                pass
            elif not is_tag or not _are_attributes(attributes):
                pieces.append(f"&lt;{end}{raw_name}{attributes}{slash}>")
            elif not new_name:
                pieces.append(" ")
            elif end:
                is_alone = name in _BLOCK_NAMES and balance[name] < 0
                pieces.append("<br>" if is_alone else f"</{new_name}>")
            elif new_name == name:
                pieces.append(f"<{name}{attributes or ''}{slash or ''}>")
            else:
                pieces.append(f"<{new_name}>")
            if name in _BLOCK_NAMES and balance[name] == 0:
                depth += -1 if end else 1
            pieces.append(_write_text(after, depth))
        page = "".join(pieces)
        return page.replace("&lt;![CDATA[", "").replace("]]>", "") if "&lt;![CDATA[" in page else page


def _are_attributes(words: str | None) -> bool:
    """Are the words behind a name attributes, if there are any?"""
    return not words or "=" in words or bool(_BARE_ATTRIBUTES.fullmatch(words))


def _write_text(piece: str, depth: int) -> str:
    """Text between tags, in so many blocks."""
    if "<" in piece:
        piece = piece.replace("<", "&lt;")
    if depth <= 0 and "\n" in piece and not piece.isspace():
        piece = piece.replace("\n", "<br>")
    return piece
