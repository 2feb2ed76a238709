"""Fields of records with HTML in them -> text, as a browser lays it out.

tags.py says which tags are HTML. All other signs are escaped, and markup.py reads the rest like a page, with
these differences, since a field is a piece of a page, or text in which a few tags were left:

- outside of all elements, line breaks of the text stay;
- a start tag without an end hides nothing, an end tag without a start still ends its line or cell;
- a tag that is cut off at the beginning or the end of the text goes, and CDATA leaves what it holds;
- text that was escaped, once or twice, is read like text that was not.
"""

import re
from dataclasses import dataclass

from brimful.corpus.cleaning.elements import CELLS, CLEAR, FOREIGN, KNOWN, LETTERS
from brimful.corpus.cleaning.markup import decode_entities, read_page
from brimful.corpus.cleaning.tags import PageTag, find_tags, looks_like_program, plain_tags

_EXAMPLE = 30
_MOST_LEVELS = 3
_ESCAPED = re.compile(r"(?i)&(?:amp;)*(?:lt|\#60|\#x3c);[/!]?[a-z\[-]")
_OWN_CODE = re.compile(r"(?i)<(?:code|pre|kbd|samp|tt|xmp|textarea|listing)\b")
_NAME_BEFORE = re.compile(r"&(?=[A-Za-z]+\d*=)")

_ATTRIBUTE = r"""[\s/]*+[^\s"'<>/=]++\s*+=\s*+(?:"[^"<>]*+"|'[^'<>]*+'|[^\s"'<>]++)"""
# What is left of a tag at the beginning: attributes, a part of a value, of a name, of a comment. The second
# group needs other tags in the text.
_HEAD = re.compile(
    rf"(?i)\s*(?:[^\s\"'<>]{{0,40}}(?:{_ATTRIBUTE})+[\s/]*>"
    rf"|[^\s\"'<>=]{{0,40}}=(?:\"[^\"<>]*+\"|'[^'<>]*+')(?:{_ATTRIBUTE})*[\s/]*>"
    rf"|[ !#-&(-;=?-~]{{0,200}}[:;/%#=.][ !#-&(-;=?-~]{{0,200}}[\"'](?:{_ATTRIBUTE})*[\s/]*>"
    r"|/(?P<name>[a-z][a-z0-9]*)\s*>)"
)
_HEAD_OF_HTML = re.compile(
    rf"(?i)\s*(?:[^\"'<>\n]{{0,80}}[\"'](?:{_ATTRIBUTE})*[\s/]*>|[^<>\n]{{0,200}}-->"
    r"|(?P<name>/?(?:[a-z:-][a-z0-9:-]*)?)\s*/?>(?![\s>]))"
)
# Unquoted, other names than these may be mathematics: `a=5>3`.
_USUAL_ATTRIBUTE = re.compile(
    r"(?i)[\"']|\b(?:class|style|v?align|width|height|color|size|face|href|src|lang|type|border|target|bgcolor)="
)
_TAIL = re.compile(r"(?i)<(?P<end>/?)(?P<name>(?:[a-z][a-z0-9:-]*)?)(?P<rest>\s[^<>]*)?$")

_BEGUN = re.compile(r"""\s+[\w:-]+\s*=\s*["'\w/#\\]?""")

_PROGRAMS = frozenset(("script", "style"))
_COLUMNS = frozenset(("td", "th"))
_RENAMED = {
    "xmp": "pre",
    "listing": "pre",
    "plaintext": "pre",
    "poem": "pre",
    "title": "div",
    "summary": "div",
    "details": "div",
    "legend": "div",
    "label": "span",
    "button": "span",
}


@dataclass
class Field:
    """What became of the text of a field.

    Attributes:
        tags: how many tags went.
        has_blocks: whether elements divided it into lines.
        entities: how many entities were decoded; in HTML, they are not counted.
        left: how many tags of known elements and of XML stayed, and an example.
        doubtful: how many of those that went may have belonged to the text, and an example.
        kept_entities: how many stayed in prose, and an example.
    """

    text: str
    tags: int = 0
    entities: int = 0
    has_blocks: bool = False
    left: int = 0
    doubtful: int = 0
    left_example: str = ""
    doubtful_example: str = ""
    kept_entities: int = 0
    entity_example: str = ""


def read_field(
    text: str,
    *,
    entities: bool = True,
    prose: bool = False,
    boilerplate: bool = False,
    main_content: bool = False,
) -> Field:
    """The text of a field. Without `<` and `&`, it costs nothing.

    Args:
        prose: it is no piece of a page: without tags that are surely HTML it speaks of its comments, and
            without any tags of its entities, and they stay.
        entities: decode entities where there is no HTML, too, and look for HTML that was escaped.
        boilerplate, main_content: as for `read_page`.
    """
    field = Field(text)
    layout = {"boilerplate": boilerplate, "main_content": main_content}
    if "<" in text or ">" in text:
        _strip(field, layout, prose=prose)
    if prose and not field.tags:
        field.kept_entities = decode_entities(text)[1]
        place = max(text.find("&") - _EXAMPLE // 2, 0)
        field.entity_example = text[place : place + 2 * _EXAMPLE]
        return field
    if not entities or "&" not in text:
        return field
    if field.tags:
        _strip_shown(field, text, layout)
        return field
    field.text, field.entities = decode_entities(text)
    within = field.text
    if "<" not in within and not _ESCAPED.search(within):
        return field
    for _ in range(_MOST_LEVELS):
        inner = Field(within, entities=field.entities)
        _strip(inner, layout)
        if inner.tags:
            _strip_shown(inner, within, layout)
            return inner
        if not _ESCAPED.search(within):
            field.left, field.left_example = inner.left, inner.left_example
            break
        within, _ = decode_entities(within)
    return field


def _strip_shown(field: Field, source: str, layout: dict[str, bool]) -> None:
    """Take away tags that a page shows, unless it shows them as code."""
    if _ESCAPED.search(source) and not _OWN_CODE.search(source):
        _strip(field, layout, shown=True)


def _strip(field: Field, layout: dict[str, bool], *, shown: bool = False, prose: bool = False) -> None:
    text = field.text
    if not shown and (plain := plain_tags(text)):
        field.tags += plain
        field.has_blocks = True
        field.text = read_page(_NAME_BEFORE.sub("&amp;", text) if "&" in text else text, **layout)
        return
    tags = find_tags(text, shown=shown)
    if prose and not any(tag.markup and tag.is_strong for tag in tags):
        for tag in tags:
            tag.markup &= tag.name != "!"
    markup = _with_ends([tag for tag in tags if tag.markup], text)
    left = [tag for tag in tags if not tag.markup and (tag.is_remarkable or (prose and tag.name == "!"))]
    field.left += len(left)
    if left and not field.left_example:
        field.left_example = _around(text, left[0])
    if not markup:
        return
    field.tags += len(markup)
    if doubtful := [tag for tag in markup if tag.doubtful]:
        field.doubtful += len(doubtful)
        field.doubtful_example = field.doubtful_example or _around(text, doubtful[0])
    field.has_blocks |= any(tag.is_block for tag in markup)
    field.text = read_page(_page_of(text, markup), **layout)


def _around(text: str, tag: PageTag) -> str:
    return text[max(tag.begin - _EXAMPLE // 2, 0) : tag.end + _EXAMPLE // 2][: 2 * _EXAMPLE]


def _with_ends(tags: list[PageTag], text: str) -> list[PageTag]:
    """The tags, and those that are cut off at the beginning and the end of the text."""
    last = text.rfind("<")
    if head := _end_of_head(text, bool(tags)):
        tags = [PageTag(0, head, "!"), *tags]
    elif tags and tags[0].is_end and tags[0].name in _PROGRAMS and looks_like_program(text[: tags[0].begin]):
        tags[0].begin = 0
    if last < max(0, tags[-1].end if tags else 0) or text.find(">", last) >= 0:
        return tags
    if tags and text.startswith("<!", last):
        return [*tags, PageTag(last, len(text), "!")]
    if (tail := _TAIL.match(text, last)) and _is_cut_off(tail, bool(tags), text[last - 1 : last]):
        tags = [*tags, PageTag(last, len(text), "!")]
    return tags


def _end_of_head(text: str, others: bool) -> int:
    """Where a tag ends that was cut off at the beginning of the text; 0: there is none."""
    first, begin = text.find(">"), text.find("<")
    if first < 0 or 0 <= begin < first:
        return 0
    if match := _HEAD.match(text):
        if name := match["name"]:
            return match.end() if name.lower() in CLEAR | LETTERS else 0
        return match.end() if _USUAL_ATTRIBUTE.search(match[0]) else 0
    if not others or not (match := _HEAD_OF_HTML.match(text)):
        return 0
    name = (match["name"] or "").lower().strip("/")
    if len(name) == 1 and text[match.end() : match.end() + 1].isascii():
        return 0
    if not (name.startswith(":") or "-" in name or any(known.endswith(name) for known in KNOWN)):
        return 0
    return match.end()


def _is_cut_off(tail: re.Match[str], others: bool, before: str) -> bool:
    name, rest = tail["name"].lower(), tail["rest"]
    is_known = name in KNOWN or bool(FOREIGN.match(name)) or (others and "-" in name)
    if rest and "=" in rest:
        return is_known and bool(_BEGUN.match(rest))
    if rest and not rest.strip().replace("-", "").isalpha():
        return False
    if tail["end"]:
        return (others or is_known) and not rest
    if not others:
        return not rest and len(name) > 1 and name in CLEAR and not before.isascii()
    if len(name) == 1:
        return bool(rest) or before == ">" or not before.isascii()
    return not name or is_known or any(known.startswith(name) for known in KNOWN)


def _page_of(text: str, tags: list[PageTag]) -> str:
    """The text as a page that says the same: all that is no markup escaped, no element without its end."""
    pieces = []
    place = depth = tables = 0
    open_paragraphs = sum(tag.name == "p" and not tag.partner and not tag.is_end for tag in tags) > 1
    in_paragraph = False
    has_head = any(tag.name == "head" and tag.partner for tag in tags)
    beside_block = True
    for tag in [*tags, PageTag(len(text), len(text), "!")]:
        piece = text[place : tag.begin]
        place = tag.end
        if piece:
            if "<" in piece:
                piece = piece.replace("<", "&lt;")
            if "&" in piece:
                piece = _NAME_BEFORE.sub("&amp;", piece)
            if (
                "\n" in piece
                and not (depth or in_paragraph)
                and not (beside_block and tag.is_block and piece.isspace())
            ):
                piece = piece.replace("\n", "<br>")
            pieces.append(piece)
        beside_block = tag.is_block
        if tag.is_block:
            in_paragraph = open_paragraphs and tag.name == "p" and not tag.is_end
        name = tag.name
        if name == "table":
            tables = max(tables + (-1 if tag.is_end else 1), 0)
        elif name in CELLS and not tables:
            pieces.append(" " if name in _COLUMNS else "<br>" if name == "tr" else "")
            continue
        if tag.whole:
            if name in ("svg", "math"):
                pieces.append(text[tag.begin : tag.end])
        elif tag.partner and name in KNOWN:
            if tag.is_block:
                depth += -1 if tag.is_end else 1
            pieces.append(_written(text, tag, has_head))
        elif name in CELLS or (name == "table" and not tag.is_end):
            pieces.append(f"</{name}>" if tag.is_end else f"<{name}>")
        elif tag.is_block:
            pieces.append("<br>")
    return "".join(pieces)


def _written(text: str, tag: PageTag, has_head: bool) -> str:
    name = tag.name if has_head and tag.name == "title" else _RENAMED.get(tag.name, tag.name)
    if tag.is_end:
        return f"</{name}>"
    if name != tag.name or not tag.proved or not tag.is_clean:
        return f"<{name}>"
    return text[tag.begin : tag.end]
