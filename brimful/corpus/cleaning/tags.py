"""Tags in running text: which of them are HTML, and which belong to what the text says.

A tag of a known element is HTML wherever it stands; one is enough. It belongs to the text only

- in code: between Markdown's backticks, in a string of a line of a program, in JSX;
- in XML: with a declaration of XML, or where elements that HTML does not have prevail;
- where the text speaks of it: within quotes, beside words such as "tag" and 标签, or alone within a sentence;
  and in a text about HTML, in lines of markup without sentences;
- as one letter or an English word that no end tag and no attribute proves (`x <i> y`, `List<Object>`,
  `<title>` as a placeholder), unless it is joined to text of which it cannot be a part;
- if what follows its name are no attributes (`a<b 且 c>d`).

The name of another element (`<date>`, `<String>`, `<bob>`) is HTML if the text has tags that are, and it has
an end tag, an attribute or a slash.
"""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from brimful.corpus.cleaning.elements import (
    BLOCKS,
    CELLS,
    CLEAR,
    FOREIGN,
    HIDDEN,
    KNOWN,
    LETTERS,
    VOID,
    WORDS,
)

_VALUE = r"""(?:"[^"<]*+(?:<[^"<]*+){0,4}"|'[^'<]*+(?:<[^'<]*+){0,4}'|\\"[^"<]*+"|\\'[^'<]*+'|[^\s"'<>]++)"""
_NAME = r"[!#-&(-.0-;?-~]++"  # printable ASCII without quotation marks, <, >, / and =
_TAG = re.compile(
    r"(?i)<(?P<end>\\?/)?(?P<name>[a-z][a-z0-9]*+(?:[:_.-][a-z0-9]++)*+)"
    r"(?:(?P<close>\s*+/?\s*+>)"
    rf"|(?=[\s/])(?P<attributes>(?:[\s/]*+{_NAME}(?:\s*+=\s*+{_VALUE})?+){{1,64}})"
    r"(?P<shut>[\s/]*+>|(?=<)|(?<=[\"'])(?=[^\x00-\x7f][^<>]{0,300}<))"
    r"|(?P<broken>\s++[a-z-]++\s*+=\s*+[\"'\w#/\\][^<>]{0,2000}>))"
    r"|(?P<comment><!--)|(?P<cdata><!\[CDATA\[|\]\]>)"
    r"|(?P<other><!doctype(?:\s+(?:\"[^\"<>]{0,300}\"|'[^'<>]{0,300}'|[\w:./+-]{1,40}+)){1,6}\s*+/?>"
    r"|<!\[(?:if\b[^<>]{0,200}|endif)\]>|<\?xml:namespace\b[^<>]{0,300}>)"
)
# Where `_TAG` may match. It ignores case, so it finds no place fast.
_START = re.compile(r"<[A-Za-z\\/!?]")
_START_OR_END_OF_DATA = re.compile(r"<[A-Za-z\\/!?]|\]\]>")
_BARE_ATTRIBUTES = re.compile(
    r"(?i)(?:[\s/]+(?:nowrap|noshade|checked|selected|disabled|readonly|multiple|compact|defer|async|autofocus"
    r"|autoplay|controls|loop|muted|hidden|itemscope|required|reversed|open|ismap|allowfullscreen|playsinline"
    r"|data-[a-z0-9-]+|v-[a-z-]+)(?=[\s/]|$))+\s*"
)
_NOUN = r"(?:标签|标记|元素|节点|tags?\b|elements?\b|blocks?\b|attributes?\b)"
_USUAL = re.compile(
    r"(?i)<(/?(?:p|div|span|strong|em|font|img|br|hr|h[1-6]|ul|ol|li|table|tbody|thead|tr|td|th|blockquote|center"
    r"|section|article|a|b|i|u|sub|sup|small|big|dl|dt|dd|figure|figcaption))"
    r"(?:\s++[a-z][a-z0-9-]*+=(?:\"[^\"<>]*+\"|'[^'<>]*+'|[^\s\"'<>={}]++))*+\s*+/?>"
)
# In text with U+0000 for each tag: a tag after or between quotation marks, beside words for tags; code.
_UNUSUAL = re.compile(
    r"`|\"\s*\0|'\s*\0|“\0”|‘\0’|「\0」|『\0』|标签[ \t]?\0|标记[ \t]?\0|元素[ \t]?\0|节点[ \t]?\0"
    rf"|\0[ \t]?的?{_NOUN}"
)
_ENDS = {
    name: re.compile(rf"(?i)</{name}\b[^<>]*(?:>|\Z)") for name in ("script", "style", "xml", "svg", "math")
} | {"!": re.compile("-->")}
"""What ends an element whose content is not text, or a comment."""
_Ends = dict[str, tuple[int, int] | None]
"""The last end of each name that was found, or None if there is no other. Each is sought once, since the text
before it may hold thousands of beginnings."""
_STRINGS = re.compile(r"""'[^'\n]*+(?:'|\Z)|"[^"\n]*+(?:"|\Z)|<(?=\s)|</?[A-Za-z]*\Z""")
_PROGRAM_TEXT = re.compile(r"[;{}=]")
_HIDDEN_TEXT = re.compile(r"[;{}=<]")
_LONG_HIDDEN, _MOST_HIDDEN = 2000, 20_000

_NICK = re.compile(r"(?m)^[ \t]*(?:[\[(]?\d{1,2}:\d\d[^\n<]{0,12})?<([^<>\s/]{1,30})> ")
_CODE = re.compile(r"(?ms)^[ \t]*(`{3,}|~{3,}).*?(?:^[ \t]*\1|\Z)|(?<!`)(`{1,2})(?!`)[^`\n]{1,500}\2(?!`)")
_JSX = re.compile(r"<[A-Za-z][^<>]{0,500}\s[\w-]{1,40}=\{|<>|</>")
_STRING = re.compile(r"""["'`][^"'`<\n]{0,60}</?[A-Za-z]""")
_STATEMENT = re.compile(
    r"(?:\b(?:echo|printf?|println|return|cout|puts|sed|grep|awk)\b|\b(?:var|let|const|function|def|class)\s+\w"
    r"|\b(?:document|console|window|re|System|response|out)\.|innerHTML|\$\(|\$\w+\s*\.?=|=>|::"
    r"|\.(?:append|html|write|replace|match|find|findall|sub|compile|select|split|join)\w*\("
    r"|\w\s*\+?=\s*[fru]?[\"'`])"
)
_LONGEST_STATEMENT = 2000
_QUOTED = re.compile("([\"'`])[^\"'`\0]{0,60}\0.*?\\1")
_MARKUP_LINE = re.compile(r"\s*\0(?:.*\0)?\s*")
_PLAIN = frozenset(("p", "br", "img", "!"))
# Not a list of tags, as in `<p>标签：科技</p>`.
_NOUN_AFTER = re.compile(rf"(?i)(?P<apart>[\"'”’」`）)]?[ \t]|[\"'”’」`）)])?的?{_NOUN}(?!\s*(?:[:：<|]|\Z))")
_NOUN_BEFORE = re.compile(r"(?i)(?:标签|标记|元素|节点|\btags?|\belements?)[ \t]?[\"'“‘「`（(]?$")
# What text about markup speaks of. A regular expression finds names fast, since their first letters are rare,
# and `str.find` finds words fast.
_SUBJECT_NAMES = re.compile(
    "HTML|XHTML|CSS|DOM|JavaScript|Javascript|JSX|Vue|React|Angular|Bootstrap|Thymeleaf|JSP|PHP|Flask|Django|XPath"
    "|BeautifulSoup|Div|前端|网页代码|源代码|选择器|样式表|爬虫|正则|组件"
)
_SUBJECT_WORDS = ["html", "xhtml", "css", "jquery", "jQuery", "javascript", "xpath", "markup", "div"]
_SUBJECT_WORDS += ["innerHTML", "stylesheet"]
_BEFORE_WORD = re.compile(r"[^\w./<-]")
_AFTER_WORD = re.compile(r"(?:[35s]|\.js)?(?![\w/-]|\.[a-z])")
_FAR = 300  # characters between an example and what is said of it
_SENTENCE = re.compile(r"[。！？；，]|[^\W\d_]{2}[.!?](?:\s|$)")
_QUOTES = {'"': '"', "'": "'", "“": "”", "‘": "’", "「": "」", "『": "』", "`": "`"}
_OPERATOR = re.compile(r"[=+*/^≤≥≠·|&∈≅-][ \t]?$")
_OPERATOR_AFTER = re.compile(r"[ \t]?(?:[=+*/^≤≥≠·|&∈≅]|-[ \d])")
_OPERAND = re.compile(r"(?:(?<![A-Za-z])[A-Za-z]|\d)[ \t]?$")
_OPERAND_AFTER = re.compile(r"[ \t]?(?:[A-Za-z](?![A-Za-z])|\d)")
_WORD_END = re.compile(r"[A-Za-z]{2}$")
_WORD_BEGIN = re.compile(r"[A-Za-z]{2}")
_IDENTIFIER = re.compile(r"(?:[A-Za-z_]\w*|#include[ \t]*)$", re.ASCII)
_WORD_BEFORE = re.compile(r"[A-Za-z0-9,'’\u4e00-\u9fff][ \t]$")
_WORD_AFTER = re.compile(r"(?:[ \t][a-z0-9(]|[,.?!;:)]|[ \t][\u4e00-\u9fff])")


@dataclass(slots=True, eq=False)
class PageTag:
    """A tag, comment or the like.

    Attributes:
        begin, end: its place in the text; of a comment, a script or a style sheet, with its content.
        name: of the element, in lower case; "!" for what is no element.
        is_end: whether it is an end tag.
        proved: it has attributes.
        mixed: its name mixes capitals and small letters.
        whole: it holds content, which goes or is laid out with it.
        markup: whether it is HTML, rather than what the text says.
        doubtful: nothing but its name says so.
        partner: whether its start or end tag stands in the text, too.
        is_clean: whether it is written as the HTML standard wants it.
    """

    begin: int
    end: int
    name: str
    is_end: bool = False
    proved: bool = False
    self_closed: bool = False
    mixed: bool = False
    whole: bool = False
    markup: bool = True
    doubtful: bool = False
    partner: bool = False
    is_clean: bool = True

    @property
    def is_block(self) -> bool:
        """Does the element begin a new line?"""
        return self.name in BLOCKS

    @property
    def is_remarkable(self) -> bool:
        """If it stays, is it worth a warning?"""
        return self.is_known or (is_element(self) and "." not in self.name)

    @property
    def is_strong(self) -> bool:
        """Is it hardly ever anything but HTML?"""
        return not self.mixed and (
            self.name in CLEAR or (self.proved and self.name in LETTERS) or bool(FOREIGN.match(self.name))
        )

    @property
    def is_known(self) -> bool:
        """Does HTML have this element?"""
        if self.mixed:
            return self.name in CLEAR
        return self.name in KNOWN or self.name == "!" or bool(FOREIGN.match(self.name))


def plain_tags(text: str) -> int:
    """The number of tags in a text that needs no further thought; 0 if it does.

    All of its `<` begin tags of usual elements, well written and nested, outside of which no line ends, and
    nothing in it speaks of markup.
    """
    pieces = _USUAL.split(text)
    tags = len(pieces) // 2
    if tags != text.count("<") or ">" in pieces[0]:
        return 0
    outside = "\0".join(pieces[::2])
    if _UNUSUAL.search(outside) or _subject(outside, 0, len(outside)) is not None:
        return 0
    names = "\0".join(pieces[1::2]).lower().split("\0") if tags else []
    return tags if _are_nested(names) and ("\n" not in outside or _hold_lines(names, pieces[::2])) else 0


def _are_nested(names: list[str]) -> bool:
    """Does each element end within the element in which it starts, and each cell stand in a table?"""
    open_names: list[str] = []
    for name in names:
        if name in VOID:
            continue
        if name[0] == "/":
            if not open_names or open_names.pop() != name[1:]:
                return False
        elif name in CELLS and "table" not in open_names:
            return False
        else:
            open_names.append(name)
    return not open_names


def _hold_lines(names: list[str], pieces: list[str]) -> bool:
    """Do all line ends in these pieces of text stand in blocks, or between them?"""
    blocks = 0
    beside_block = True
    for piece, name in zip(pieces, [*names, "br"], strict=True):
        is_block = name.lstrip("/") in BLOCKS
        if not blocks and "\n" in piece and not (piece.isspace() and (is_block or beside_block)):
            return False
        beside_block = is_block
        if is_block and name not in VOID:
            blocks += -1 if name[0] == "/" else 1
    return True


def find_tags(text: str, *, shown: bool = False) -> list[PageTag]:
    """All that is shaped like a tag, in order; `markup` says which is HTML.

    Args:
        shown: the text is what a page shows, so tags in it may be its subject.
    """
    tags = _scan(text)
    if tags:
        _match(text, tags)
        _decide(text, tags, shown)
        _match(text, [tag for tag in tags if tag.markup])
    return tags


def _scan(text: str) -> list[PageTag]:
    tags: list[PageTag] = []
    place = 0
    ends: _Ends = {}
    beginning = _START_OR_END_OF_DATA if "]]>" in text else _START
    while start := beginning.search(text, place):
        match = _TAG.match(text, start.start())
        if match is None:
            place = start.start() + 1
            continue
        begin, place = match.span()
        name = match["name"]
        if name is None:
            tag = PageTag(begin, place, "!")
            if match["comment"]:
                tag.end = place = _end_of_comment(text, place, ends)
                tag.markup = place > begin + len("<!--") or ends["!"] is None
            tags.append(tag)
            continue
        attributes = match["attributes"]
        if attributes is not None:
            valued = "=" in attributes
            if not valued and not _BARE_ATTRIBUTES.fullmatch(attributes):
                place = begin + 1
                continue
            if not match["shut"] and '"' not in attributes and "'" not in attributes:
                place = begin + 1
                continue
        lower = name.lower()
        tag = PageTag(
            begin,
            place,
            lower,
            is_end=match["end"] is not None,
            proved=attributes is not None or match["broken"] is not None,
            self_closed="/" in (match["close"] or match["shut"] or ""),
            mixed=not name.islower() and not name.isupper(),
            is_clean=bool(match["close"] or (match["shut"] and "\\" not in attributes)),
        )
        if lower in _ENDS and not tag.is_end and not tag.self_closed:
            tag.end = place = _end_of_raw(text, tag, place, ends)
        tags.append(tag)
    return tags


def _next_end(text: str, name: str, place: int, ends: _Ends) -> tuple[int, int] | None:
    """The place of the next end of a comment or an element; None if there is none."""
    found = ends.get(name, (-1, -1))
    if found and found[0] < place:
        match = _ENDS[name].search(text, place)
        found = ends[name] = match.span() if match else None
    return found


def _end_of_comment(text: str, place: int, ends: _Ends) -> int:
    """The end of a comment, in which only the last 500 characters of a text may lack the mark of its end."""
    if end := _next_end(text, "!", place, ends):
        return place if _is_prose(text, place, end[0]) else end[1]
    return len(text) if len(text) - place <= 500 and "\n" not in text[place:] else place


def _is_prose(text: str, begin: int, end: int) -> bool:
    """Is this text too long, and too poor in marks, for what a page hides?

    A text that speaks of HTML has a mark that begins a comment here, and one that ends it chapters later.
    """
    if end - begin <= _LONG_HIDDEN:
        return False
    length = min(end - begin, _MOST_HIDDEN)
    return len(_HIDDEN_TEXT.findall(text, begin, begin + length)) * 40 < length


def _end_of_raw(text: str, tag: PageTag, place: int, ends: _Ends) -> int:
    """The end of an element whose content is not text. Cut off, it ends with a text that looks like code."""
    name = tag.name
    if name == "xml" and not re.compile(r"\s*<[a-z]\w*:").match(text, place):
        return place
    if end := _next_end(text, name, place, ends):
        if not tag.proved and _is_prose(text, place, end[0]):
            return place
        tag.whole = tag.partner = True
        return end[1]
    rest = text[place:]
    if name in ("script", "style") and "<" not in _STRINGS.sub("", rest) and looks_like_program(rest):
        tag.whole = True
        return len(text)
    return place


def looks_like_program(text: str) -> bool:
    """Is the text a script or a style sheet?"""
    return len(_PROGRAM_TEXT.findall(text)) * 40 >= len(text)


def _match(text: str, tags: list[PageTag]) -> None:
    """Set `partner`: an end tag belongs to the last start tag of its name that is open.

    What pages do not show is no chapter of prose: two such tags are no partners.
    """
    open_tags: list[PageTag] = []
    counts: Counter[str] = Counter()
    for tag in tags:
        if tag.whole or tag.name == "!":
            continue
        tag.partner = False
        if not tag.is_end:
            if tag.name not in VOID and not tag.self_closed:
                open_tags.append(tag)
                counts[tag.name] += 1
        elif counts[tag.name]:
            while True:
                last = open_tags.pop()
                counts[last.name] -= 1
                if last.name == tag.name:
                    break
            hides = last.name in HIDDEN and not last.proved
            last.partner = tag.partner = not (hides and _is_prose(text, last.end, tag.begin))


def _decide(text: str, tags: list[PageTag], shown: bool) -> None:
    strong = sum(tag.is_strong for tag in tags)
    strangers = [tag for tag in tags if not tag.is_known]
    elements = [tag for tag in strangers if is_element(tag)]
    if _is_xml(text, strangers) or ("={" in text and _JSX.search(text)):
        _leave(tags)
        return
    # Names with a hyphen are usual in XML and in pages.
    in_xml = bool(elements) and sum("-" not in tag.name for tag in elements) >= 2 * strong
    chat = _nicks(text)
    if "`" in text or "~~~" in text:
        _leave_code(text, tags)
    _leave_programs(text, tags)
    subjects = None if shown else _subjects(text, tags)
    about = subjects is None or bool(subjects)
    for tag in tags:
        if not tag.markup or tag.name == "!":
            continue
        if not tag.is_known:
            tag.markup = not in_xml and strong > 0 and is_element(tag)
        elif (
            (in_xml and not tag.is_strong)
            or (tag.begin in chat and not tag.partner)
            or _is_mentioned(text, tag, about)
        ):
            tag.markup = False
        elif not tag.proved and not tag.partner and not (tag.is_end and tag.name in CLEAR):
            tag.markup = _stands_for_itself(text, tag, strong > 0)
            tag.doubtful = tag.markup and tag.name not in CLEAR
    if about:
        _leave_examples(text, tags, subjects)


def _nicks(text: str) -> set[int]:
    """The places of names in a chat: they begin lines, and one at least is no usual element's."""
    found = list(_NICK.finditer(text)) if "> " in text else []
    if len(found) < 2 or all(match[1].lower() in CLEAR for match in found):
        return set()
    return {match.start(1) - 1 for match in found}


def is_element(tag: PageTag) -> bool:
    """Does anything but the brackets show that this is an element, whatever its name?"""
    return tag.partner or tag.proved or tag.self_closed or "-" in tag.name


def _leave(tags: list[PageTag]) -> None:
    for tag in tags:
        tag.markup = False


def _is_xml(text: str, strangers: list[PageTag]) -> bool:
    head = text.lstrip()[:1000].lower()
    if head.startswith("<?xml ") and "<html" not in head and "<!doctype html" not in head:
        return True
    return any(tag.proved and "xmlns" in text[tag.begin : tag.end] for tag in strangers)


def _code(text: str, tags: list[PageTag]) -> Iterator[tuple[int, int]]:
    """Where code begins and ends, in order; without fences, only in lines where a tag begins."""
    if "```" in text or "~~~" in text:
        yield from (match.span() for match in _CODE.finditer(text))
        return
    end = -1
    for tag in tags:
        if tag.begin > end:
            begin = text.rfind("\n", 0, tag.begin) + 1
            end = text.find("\n", tag.begin)
            end = end if end >= 0 else len(text)
            yield from (match.span() for match in _CODE.finditer(text, begin, end))


def _leave_code(text: str, tags: list[PageTag]) -> None:
    """In Markdown's code, everything belongs to the text."""
    spans = list(_code(text, tags))
    at = 0
    for tag in tags:
        while at < len(spans) and spans[at][1] <= tag.begin:
            at += 1
        if at < len(spans) and spans[at][0] < tag.begin and not tag.whole:
            tag.markup = False


def _lines(text: str, tags: list[PageTag]) -> list[tuple[int, str, list[PageTag]]]:
    """The lines that have tags: the place of its end, the line with U+0000 for each tag, its tags."""
    found: list[tuple[int, str, list[PageTag]]] = []
    at = 0
    while at < len(tags):
        place = text.rfind("\n", 0, tags[at].begin) + 1
        end = text.find("\n", tags[at].end)
        end = len(text) if end < 0 else end
        within = []
        pieces = []
        while at < len(tags) and tags[at].begin < end:
            pieces.append(text[place : tags[at].begin])
            place = tags[at].end
            within.append(tags[at])
            at += 1
        end = max(end, place)
        pieces.append(text[place:end])
        found.append((end, "\0".join(pieces), within))
    return found


def _leave_programs(text: str, tags: list[PageTag]) -> None:
    """Strings of programs stay as they are."""
    if not _STRING.search(text):
        return
    for _, line, within in _lines(text, tags):
        if len(line) > _LONGEST_STATEMENT or not _STATEMENT.search(line):
            continue
        for match in _QUOTED.finditer(line):
            first = line.count("\0", 0, match.start())
            _leave(within[first : first + match[0].count("\0")])


def _leave_examples(text: str, tags: list[PageTag], subjects: list[int] | None) -> None:
    """Lines of markup without sentences, beside text that speaks of markup, are examples.

    Args:
        subjects: the places where the text speaks of markup; None: anywhere.
    """
    groups: list[list[tuple[int, str, list[PageTag]]]] = []
    last = -2
    for line in _lines(text, tags):
        begin = line[0] - len(line[1]) + len(line[2]) - sum(tag.end - tag.begin for tag in line[2])
        if begin != last + 1:
            groups.append([])
        groups[-1].append(line)
        last = line[0]
    for group in groups:
        begin, end = group[0][2][0].begin, group[-1][0]
        if (
            any(_SENTENCE.search(line) or not _MARKUP_LINE.fullmatch(line) for _, line, _ in group)
            or all(tag.name in _PLAIN for _, _, within in group for tag in within)
            or (subjects is not None and not any(begin - _FAR < place < end + _FAR for place in subjects))
        ):
            continue
        for _, _, within in group:
            _leave(within)


def _subjects(text: str, tags: list[PageTag]) -> list[int]:
    """The places outside of all elements where the text speaks of markup."""
    found = []
    depth = place = 0
    for tag in [*tags, PageTag(len(text), len(text), "!")]:
        if depth <= 0 and (subject := _subject(text, place, tag.begin)) is not None:
            found.append(subject)
        if tag.name in KNOWN and not tag.proved and _has_noun(text, tag):
            found.append(tag.begin)
        if tag.partner and not tag.whole and tag.is_block:
            depth += -1 if tag.is_end else 1
        place = tag.end
    return found


def _subject(text: str, begin: int, end: int) -> int | None:
    """The first place that speaks of markup. Parts of words, of addresses and of file names do not."""
    found = end
    for match in _SUBJECT_NAMES.finditer(text, begin, end):
        if match[0] > "\x7f" or _stands_alone(text, *match.span()):
            found = match.start()
            break
    for word in _SUBJECT_WORDS:
        place = text.find(word, begin, end)
        while 0 <= place < found:
            if _stands_alone(text, place, place + len(word)):
                found = place
            place = text.find(word, place + 1, end)
    return found if found < end else None


def _stands_alone(text: str, begin: int, end: int) -> bool:
    return bool((not begin or _BEFORE_WORD.match(text, begin - 1)) and _AFTER_WORD.match(text, end))


def _has_noun(text: str, tag: PageTag) -> bool:
    """Does a word for tags stand beside this one? Beside an element with its end, it may be content."""
    if after := _NOUN_AFTER.match(text, tag.end):
        return not tag.partner or after["apart"] is not None
    return not tag.partner and bool(_NOUN_BEFORE.search(text[max(tag.begin - 12, 0) : tag.begin]))


def _is_mentioned(text: str, tag: PageTag, about: bool) -> bool:
    """Does a sentence speak of this tag?"""
    before, after = text[max(tag.begin - 1, 0) : tag.begin], text[tag.end : tag.end + 1]
    if before and _QUOTES.get(before) == after and tag.name != "img":
        return True
    if about and _has_noun(text, tag):
        return True
    if tag.proved:
        return about and ("..." in text[tag.begin : tag.end] or "…" in text[tag.begin : tag.end])
    if tag.partner and not about:
        return False
    if tag.name in ("p", "br", "hr") and not about:
        return False
    head = text[max(tag.begin - 2, 0) : tag.begin]
    return bool(_WORD_BEFORE.search(head)) and bool(_WORD_AFTER.match(text, tag.end))


def _stands_for_itself(text: str, tag: PageTag, others: bool) -> bool:
    """Is a tag without attributes and without a partner HTML?"""
    head = text[max(tag.begin - 24, 0) : tag.begin]
    if head.rstrip().endswith("#include"):
        return False
    name = tag.name
    if name in WORDS:
        return tag.is_end or (others and not _IDENTIFIER.search(head))
    if len(name) > 1 and name != "p":
        return not (_IDENTIFIER.search(head) and text[tag.end : tag.end + 1] in ("(", ">", ",", "{"))
    if tag.is_end or (others and _WORD_END.search(head) and _WORD_BEGIN.match(text, tag.end)):
        return True
    operands = bool(_OPERAND.search(head)) + bool(_OPERAND_AFTER.match(text, tag.end))
    if operands > (name == "p") or _OPERATOR.search(head) or _OPERATOR_AFTER.match(text, tag.end):
        return False
    after = text[tag.end : tag.end + 1]
    if name == "p":
        return not (_IDENTIFIER.search(head) and not after.isalnum())
    return not _IDENTIFIER.search(head) and (others or bool(after and not after.isspace()))
