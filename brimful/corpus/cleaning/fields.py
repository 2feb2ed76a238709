"""HTML in fields: texts from records and text files, which are not pages.

A field is HTML if a tag of an element that HTML has or had carries an attribute, or ends an element that
began (`<p class=a>`, `<b>x</b>`, `<br/>`), plainly or escaped. Then it is read like a page. Any other field
is prose, and stays as it is. Only tags are dropped: text in `<script>`, `<title>` and the like is prose, too.
"""

import html
import re
from collections import Counter
from dataclasses import dataclass

from brimful.corpus.cleaning.markup import read_page
from brimful.corpus.reading.nonsense import make_excerpt


def _split_names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_CELL_NAMES = _split_names("caption col colgroup tbody td tfoot th thead tr")
_BLOCK_NAMES = _CELL_NAMES | _split_names("""
    address article aside blockquote center dd details dir div dl dt fieldset figcaption figure footer form
    h1 h2 h3 h4 h5 h6 header hgroup hr legend li listing main marquee menu nav ol p poem pre section summary
    table ul xmp
""")
_INLINE_NAMES = _split_names("""
    a abbr acronym applet area b base basefont bdi bdo bgsound big blink br cite code command content data
    del dfn dialog element em embed filter font gallery i ilayer image img includeonly input ins isindex kbd
    keygen layer link map mark math menuitem meta meter multicol nextid nobr noinclude nowiki onlyinclude
    param picture portal progress q rb rbc ref references rp rt rtc ruby s samp search shadow slot small
    source spacer span strike strong sub sup time track tt u var wbr xml
""")
# A page hides the contents of these. In a field, they are lines or parts of a line.
_HIDING_NAMES = _split_names("""
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
_NAMES_WITHOUT_TABLE = {**dict.fromkeys(_CELL_NAMES, ""), "tr": "div"}
_HTML_NAMES = _BLOCK_NAMES | _INLINE_NAMES | frozenset(_NEW_NAMES)
_SHOWING_NAMES = _HTML_NAMES - {"script", "style"}
# Ends of these without a start are tags in a page, too.
_NAMES_OF_LONE_ENDS = {"p", "br"}

_VALUE_PATTERN = r"""\s*+=\s*+(?:"[^"]*+"|'[^']*+'|[^\s"'<>]++)"""
_ATTRIBUTE_PATTERN = rf"\s++[a-zA-Z_:@.*-][\w:.@*-]*+(?:{_VALUE_PATTERN})?+"
# The groups: the slash of an end, the name, the attributes, the slash of an empty element; or attributes with
# stray quotation marks; or the beginning of a comment or a declaration.
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
_MOST_ESCAPES = 2  # `&amp;lt;` has been escaped twice
# A longer comment is more likely a text that speaks of `<!--` here, and of `-->` chapters later.
_LONGEST_COMMENT_CHARACTERS = 2000
# `?a=1&copy=2` is an address.
_PARAMETER = re.compile(r"&(?=[A-Za-z]+\d*=)")
_EXAMPLE_CHARACTERS = 60


@dataclass(frozen=True)
class Field:
    """A field as it was read.

    Attributes:
        text: the text that HTML shows; prose as it was.
        is_html: whether the field is HTML.
        tags: the number of HTML tags, which were dropped; in prose, the number of tags and entities.
        example: the surroundings of the first tag or entity.
    """

    text: str
    is_html: bool = False
    tags: int = 0
    example: str = ""


def read_field(raw: str, *, boilerplate: bool = False, main_content: bool = False) -> Field:
    """Read a field by the rule above.

    Args:
        boilerplate, main_content: as for `read_page`.
    """
    text = raw
    tags = plain_tags = _Tags(_drop_comments(raw))
    for _ in range(_MOST_ESCAPES):
        if tags.show_html() or "&" not in text or not _ESCAPED_TAG.search(text):
            break
        text = html.unescape(text)
        tags = _Tags(_drop_comments(text))
    if tags.show_html():
        page = tags.make_page()
        page_text = read_page(page, boilerplate=boilerplate, main_content=main_content, is_piece=True)
        return Field(page_text, True, len(tags.names), tags.make_example())
    tag_count = sum(map(_HTML_NAMES.__contains__, plain_tags.names))
    entities = _ENTITY.findall(raw) if "&" in raw else []
    if not tag_count and entities:
        return Field(raw, False, len(entities), make_excerpt(raw, raw.find(entities[0])))
    return Field(raw, False, tag_count + len(entities), plain_tags.make_example())


def keep_lines(text: str) -> str:
    """Return text that, read as a page, keeps its line ends where no element divides it into lines."""
    if "\n" in text and _BLOCK_NAMES.isdisjoint(_Tags(text).names):
        return f"<pre>{text}</pre>"
    return text


def _drop_comments(text: str) -> str:
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
    """The tags of a text.

    Attributes:
        names: the names of their elements in lower case; empty for a comment and the like.
    """

    def __init__(self, text: str) -> None:
        # The text before the first tag; then of each tag its groups, and the text behind it.
        parts = _TAG.split(text) if "<" in text else [text]
        self._text, self._before = text, parts[0]
        self.names = [(name or "").lower() for name in parts[2::7]]
        columns = (parts[number::7] for number in range(1, 8))
        self._rows = list(zip(self.names, *columns, strict=True))

    def show_html(self) -> bool:
        """Return whether one of the tags is enough to read the text as HTML."""
        begun_names = set(_NAMES_OF_LONE_ENDS)
        for name, end, _, attributes, slash, broken, _, _ in self._rows:
            has_more = attributes or slash or broken or (end and name in begun_names)
            if not end:
                begun_names.add(name)
            if has_more and name in _SHOWING_NAMES and _are_attributes(attributes):
                return True
        return False

    def make_example(self) -> str:
        """Return the surroundings of the first tag."""
        begin = max(len(self._before) - _EXAMPLE_CHARACTERS // 4, 0)
        return self._text[begin : begin + _EXAMPLE_CHARACTERS]

    def make_page(self) -> str:
        """Return the text as a piece of a page that hides nothing of it.

        Some elements get other names, signs that are not tags are escaped, line ends outside of blocks stay.
        """
        # The number of starts of each element without an end; below 0, of ends without a start.
        balance: Counter[str] = Counter()
        known_names = set(_HTML_NAMES)
        for name, end, *_ in self._rows:
            balance[name] += -1 if end else 1
            if end:
                known_names.add(name)
        new_names = _NEW_NAMES
        if "table" not in balance:
            # A browser drops cells outside of tables, and joins their words.
            new_names = new_names | _NAMES_WITHOUT_TABLE
        pieces = [_write_text(self._before, 0)]
        depth = 0
        for name, end, raw_name, attributes, slash, broken, mark, after in self._rows:
            new_name = new_names.get(name, name)
            is_tag = name in known_names or attributes or slash or broken
            if mark:  # a comment that nothing ends, or a declaration
                pass
            elif not is_tag or not _are_attributes(attributes):
                pieces.append(f"&lt;{end}{raw_name}{attributes}{slash}>")
            elif not new_name:
                pieces.append(" ")
            elif end:
                is_lone_end = name in _BLOCK_NAMES and balance[name] < 0
                pieces.append("<br>" if is_lone_end else f"</{new_name}>")
            elif new_name == name:
                pieces.append(f"<{name}{attributes or ''}{slash or ''}>")
            else:
                pieces.append(f"<{new_name}>")
            if name in _BLOCK_NAMES and balance[name] == 0:
                depth += -1 if end else 1
            pieces.append(_write_text(after, depth))
        page = "".join(pieces)
        if "&lt;![CDATA[" in page:
            page = page.replace("&lt;![CDATA[", "").replace("]]>", "")
        return _PARAMETER.sub("&amp;", page)


def _are_attributes(words: str | None) -> bool:
    """Return whether the words after a name, if there are any, are attributes."""
    return not words or "=" in words or bool(_BARE_ATTRIBUTES.fullmatch(words))


def _write_text(piece: str, depth: int) -> str:
    """Return text between tags, `depth` blocks deep, as a page writes it."""
    if "<" in piece:
        piece = piece.replace("<", "&lt;")
    if depth <= 0 and "\n" in piece and not piece.isspace():
        piece = piece.replace("\n", "<br>")
    return piece
