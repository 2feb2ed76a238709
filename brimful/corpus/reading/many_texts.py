"""Text files that hold many texts: they are refused with a command that makes JSON lines of them.

Several lines of a file's beginning must show a form, or its suffix must name it: refusing a book is worse
than reading a log.
"""

import os
import re
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise, product

from brimful.base.console import pluralise


@dataclass(frozen=True)
class ManyTexts:
    """A form of files that hold many texts.

    Attributes:
        kind: the name of its converter.
        description: its usual name, with an article.
        suffixes: suffixes of files of the form.
        shows: tells whether the beginning of a file is of the form.
    """

    kind: str
    description: str
    suffixes: tuple[str, ...]
    shows: Callable[[str], object]

    def refuse(self, paths: Sequence[str], encoding: str) -> str:
        """Return the refusal of the first file, with the command that converts all files of the form.

        Args:
            encoding: the charset that the user named for them.
        """
        source, out = paths[0], f"{paths[0]}.jsonl"
        what, place = f"is {self.description}", "it and give the result in its place"
        if len(paths) > 1:
            source = os.path.commonpath([os.path.dirname(path) for path in paths])
            out = f"{source}-texts.jsonl"
            what = f"and {pluralise(len(paths) - 1, 'other file')} are each {self.description}"
            place = "them and give the result in their place"
        option = f" --encoding {encoding}" if encoding != "utf-8" else ""
        converter = f"python -m brimful.corpus.converters {self.kind}{option}"
        command = f"{converter} {shlex.quote(source)} > {shlex.quote(out)}"
        return f"{what}, not one text; convert {place}: {command}"


_PAGE = re.compile(
    r"(?is)\s*(?:<\?xml [^<>]{1,200}>\s*)?(?:<!--(?:(?!-->).){0,1000}-->\s*){0,9}"
    r"<(?:!doctype\s+html|html|head|body)\b"
)
_WARC = re.compile(r"WARC/\d\.\d\n(?:[\w-]+:.*\n)*WARC-Type:")
_DOCUMENTS = re.compile(r"<doc\s+\w+=[^>]*>(?:\s*\n|.*</doc>)|<doc>\s*<\w+>", re.IGNORECASE)
_COMMENTS = r"\s*(?:<!--(?>.*?-->)\s*)*+"
_WIKI = re.compile(rf"(?:<\?xml[^>]*>)?{_COMMENTS}<mediawiki\s", re.DOTALL)
_XML = re.compile(
    rf"<\?xml\s+version\b[^<>]*>{_COMMENTS}<(?!(?:!doctype\s+)?html\b)|<!doctype\s+(?!html)\w+[^>]*>\s*<"
    r"|<(?!html|svg|math)[a-z][\w:.-]*\s[^<>]*\bxmlns\b|<rss\s+version=",
    re.IGNORECASE | re.DOTALL,
)
SUBTITLE_TIMES = re.compile(
    r"(?:\d+:)?\d+:\d\d[,.]\d+ *--> *(?:\d+:)?\d+:\d\d[,.]\d+.*|\d+:\d\d:\d\d\.\d+,\d+:\d\d:\d\d\.\d+",
    re.ASCII,
)
_SUBTITLES = re.compile(
    r"WEBVTT(?:[ \t].*)?\n(?=(?:.*\n)*?.*\d --> \d)|\[Script Info\]\s*\n"
    rf"|(?:\d+\s*\n)?(?:{SUBTITLE_TIMES.pattern})\s*\n|(?:\[\w+:.*\]\n)*(?:\[\d+:\d\d\.\d+\].*\n){{3}}"
)
MAIL_START = r"From \S+ +\w{3} +\w{3} +\d+ \d+:\d\d"
_HEADERS = re.compile(r"(?:[\w-]+:.*\n(?:[ \t].*\n)*){2,}(?=\n)")
_MAIL = re.compile(
    r"Message-ID: *<|Received: *(?:from|by) |Return-Path: *<|MIME-Version: *1\.|Newsgroups: *\w+\.|From:.*@",
    re.IGNORECASE,
)
# A date and a time, perhaps with a word before or after them.
CHAT_STAMP = (
    r"[\u200e\u200f]?\[?\d{1,4}[./-]\d\d?[./-]\d{1,4},?[ \u202f](?:[^\W\d]{1,4} ?)?\d?\d:\d\d(?::\d\d)?"
    r"(?:[ \u202f]?[^\W\d][\w.]{0,4})?(?:\] | - )"
)
# A log has a level where a chat has a name.
CHAT_NAME = r"[\u200e\u200f]?(?!(?:TRACE|DEBUG|INFO|NOTICE|WARN|ERROR|FATAL|CRITICAL)\b)[^:\n]{1,50}: "
_STAMPED = re.compile(f"^{CHAT_STAMP}", re.MULTILINE)
_MESSAGE = re.compile(f"^{CHAT_STAMP}{CHAT_NAME}", re.MULTILINE)
_QQ_TITLE = "消息记录（此消息记录为文本格式"
_CONLLU = re.compile(r"(?:#.*\n)*(?:\d+[-.\d]*\t(?:[^\t\n]*\t){8}[^\t\n]*\n){2}")
# A tab stands for a wide gap, before or after which a title may stand.
_PAGE_NUMBER = re.compile(
    r"(?:.*\t)?[\W_]*(?:page|seite|p\.|第)?\s?(?:\d{1,5}|[ivxl]+)(?:\s?[页頁]|\s?(?:of|/)\s?\d+)?[\W_]*|\d+\t.*",
    re.IGNORECASE,
)
_LONGEST_TITLE_CHARACTERS = 300
_ONES = ("", "i", "ii", "iii", "iv", "v", "vi", "vii", "viii", "ix")
_ROMAN_NUMERALS = [*map("".join, product(("", "x", "xx", "xxx"), _ONES))]


def _is_mail(head: str) -> bool:
    headers = _HEADERS.match(head)
    return bool(re.match(MAIL_START, head) or (headers and _MAIL.search(headers[0])))


def _is_chat(head: str) -> bool:
    messages = len(_MESSAGE.findall(head))
    lines = len(re.findall(r"\S.*", head))
    are_most = messages >= 3 and messages * 3 >= lines
    are_all = messages >= 2 and len(_STAMPED.findall(head)) == lines
    return are_most or are_all or head.startswith(_QQ_TITLE)


def _is_in_pages(head: str) -> bool:
    pages = [page.strip("\n").split("\n") for page in head.split("\f")]
    for page, following in pairwise(pages):
        if counts_pages(page[-1], following[-1], 1):
            return True
        # A number without a title at the top may be the number of a chapter.
        has_title = re.search(r"\S\s{2,}\S", page[0])
        if has_title and counts_pages(page[0], following[0], 1):
            return True
    return False


def counts_pages(line: str, other: str, distance: int) -> bool:
    """Return whether two lines, of pages at this distance, differ only in the number of the page."""
    line, other = line.strip()[:_LONGEST_TITLE_CHARACTERS], other.strip()[:_LONGEST_TITLE_CHARACTERS]
    if not _PAGE_NUMBER.fullmatch(re.sub(r"\s{2,}", "\t", line)):
        return False
    parts, other_parts = _split_numbers(line), _split_numbers(other)
    if len(parts) != len(other_parts):
        return False
    differing = [pair for pair in zip(parts, other_parts, strict=True) if pair[0] != pair[1]]
    if len(differing) != 1:
        return False
    first, second = differing[0]
    return first.isdecimal() and second.isdecimal() and int(second) - int(first) == distance


def _split_numbers(line: str) -> list[str]:
    """Return the words and the numbers of a line; Roman numerals become decimal."""
    line = " ".join(line.split())
    numeral = line.strip("-–—()[]. ")
    if numeral in _ROMAN_NUMERALS:
        line = line.replace(numeral, str(_ROMAN_NUMERALS.index(numeral)))
    return re.split(r"([0-9]+)", line)


_FORMS = (
    ManyTexts("warc", "a web archive", (".warc", ".wet", ".wat"), _WARC.match),
    ManyTexts("documents", "an extract of a wiki or a collection of documents", (), _DOCUMENTS.match),
    ManyTexts("wiki", "a dump of a wiki", (), _WIKI.match),
    ManyTexts("xml", "XML", (".xml", ".ttml", ".rss", ".tei"), _XML.match),
    ManyTexts("mail", "mail", (".eml", ".mbox"), _is_mail),
    ManyTexts("subtitles", "subtitles", (".srt", ".vtt", ".ass", ".ssa", ".lrc", ".sbv"), _SUBTITLES.match),
    ManyTexts("chat", "a chat", (), _is_chat),
    ManyTexts("conllu", "a treebank", (".conllu",), _CONLLU.match),
    ManyTexts("pages", "a text in pages with their numbers", (), _is_in_pages),
)


def find_many_texts(suffix: str, head: str) -> ManyTexts | None:
    """Return the form of a file with many texts; None if neither its suffix nor its beginning shows one."""
    head = re.sub("\r\n?", "\n", head).lstrip("\ufeff\n\t ")
    for form in _FORMS:
        if suffix in form.suffixes or form.shows(head):
            return form
    return None


def begins_a_page(text: str) -> bool:
    """Return whether a text is a whole page, rather than a piece of one or text with tags in it."""
    return bool(_PAGE.match(text))
