"""Files that hold many texts -> JSON lines with one document each: the command that refusals name.

python -m brimful.corpus.converters KIND FILES > OUT.jsonl
"""

import argparse
import email
import html
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import AnyStr

from brimful.base.console import warn
from brimful.base.errors import BrimfulError
from brimful.corpus.cleaning.markup import read_page
from brimful.corpus.reading.archives import read_chunks
from brimful.corpus.reading.charsets import Decoder
from brimful.corpus.reading.forms import many_texts_of
from brimful.corpus.reading.inputs import Span
from brimful.corpus.reading.lines import UNDECODABLE, read_runs, recognise_charset
from brimful.corpus.reading.many_texts import CHAT_NAME, CHAT_STAMP, MAIL_START, SUBTITLE_TIMES, counts_pages

# The names of a document, and its tags; `a < b and c > d` has no tags.
_NO_TEXT = re.compile(
    r"<(url|docno|docid)>.*?</\1>|</?[a-z][\w:.-]*(?:\s[^<>]*=[^<>]*)?\s*/?>", re.IGNORECASE | re.DOTALL
)
_WIKI_TEXT = re.compile(r"<text\b[^>]*>(.*?)</text>", re.DOTALL)
_WIKI_NO_ARTICLE = re.compile(r"<redirect\b|<ns>(?!0<)")  # a redirect, or a page of discussion or help
_CDATA = re.compile(r"<!\[CDATA\[(.*?)\]\]>", re.DOTALL)
_XML_BREAK = re.compile(r"</[^<>]*>(?=<\w)|<\w[^<>]*/>")
_XML_MARKUP = re.compile(
    r"<!--.*?-->|<\?.*?\?>|<!doctype[^>\[]*(?:\[.*?\]\s*)?>|</?[^\s<>!][^<>]*>", re.I | re.DOTALL
)
# The times of a subtitle, and the number or the name before them.
_CUE = re.compile(rf"(?:\A.*\n|^ *\d+ *\n)?^(?:{SUBTITLE_TIMES.pattern}).*\n?", re.ASCII | re.MULTILINE)
_SUBTITLE_STYLE = re.compile(r"</?[a-z][^<>]*>|<\d[\d:.]*>|\{\\[^}]*\}", re.IGNORECASE)
_LYRICS_TIME = re.compile(r"\[\w+:.*?\]|<\d+:\d\d\.\d+>")
_CONLLU_WORD = re.compile(r"^\d+\t([^\t\n]+)", re.MULTILINE)
_QQ_STAMP = r"\d{4}-\d\d-\d\d +\d+:\d\d:\d\d .*\n"


def _split(pieces: Iterable[AnyStr], boundary: re.Pattern[AnyStr]) -> Iterator[AnyStr]:
    """Yield the parts between boundaries, which may reach from one piece of a file to the next."""
    tail = boundary.pattern[:0]
    for piece in pieces:
        parts = boundary.split(tail + piece)
        tail = parts.pop()
        yield from parts
    yield tail


def _decode(data: bytes, label: str, issues: Counter[str], *, is_page: bool = False) -> str:
    """Decode a part of a file by its byte order mark, its bytes, its declaration (of a page) or a label."""
    try:
        charset = recognise_charset(data, label, is_page, Counter())
    except BrimfulError:  # a label that no library knows
        charset = recognise_charset(data, "utf-8", is_page, Counter())
    decoder = Decoder(charset)
    text = decoder.decode(data, final=True)
    issues[UNDECODABLE] += decoder.replaced
    return text


def _read_archive(path: str, encoding: str, issues: Counter[str]) -> Iterator[str]:
    from fastwarc.warc import ArchiveIterator, WarcRecordType

    kinds = WarcRecordType.response | WarcRecordType.conversion
    with open(path, "rb") as file:
        for record in ArchiveIterator(file, record_types=kinds, parse_http=True, auto_decode="all"):
            if record.is_http and "html" not in (record.http_content_type or ""):
                continue
            try:
                data = record.reader.read()
            except OSError:  # a page that was compressed, and damaged
                issues["damaged pages, left out"] += 1
                continue
            if record.is_http:
                label = record.http_charset
                yield read_page(_decode(data, label or encoding, issues, is_page=not label))
            else:
                issues["texts that were cut short"] += len(data) < record.content_length
                yield _decode(data, encoding, issues)


def _read_mail(path: str, encoding: str, issues: Counter[str]) -> Iterator[str]:
    boundary = re.compile(f"^(?={MAIL_START})".encode(), re.MULTILINE)
    for mail in _split(read_chunks(path, issues), boundary):
        texts = {"text/plain": "", "text/html": ""}
        for part in email.message_from_bytes(mail).walk():
            kind, data = part.get_content_type(), part.get_payload(decode=True)
            if kind in texts and isinstance(data, bytes) and part.get_content_disposition() != "attachment":
                texts[kind] += _decode(data, part.get_content_charset(encoding), issues) + "\n"
        yield texts["text/plain"].strip() or read_page(texts["text/html"])


def _read_text(
    convert: Callable[[str], str],
    boundary: str,
    kind: str,
    path: str,
    encoding: str,
    issues: Counter[str],
) -> Iterator[str]:
    """Convert the parts of a file between boundaries, or the whole file if the boundary is empty.

    Args:
        boundary: a regular expression.
        kind: as for `read_runs`: "html" if the file may declare its charset, "rows" if form feeds stay.
    """
    size = 1 << 20
    runs = read_runs(Span(path=path), encoding, issues, None, run=size, longest=size, too_long="", kind=kind)
    if boundary:
        return map(convert, _split(runs, re.compile(boundary)))
    return map(convert, ["".join(runs)])


def _convert_document(document: str) -> str:
    return html.unescape(_NO_TEXT.sub("", document))


def _convert_wiki_page(page: str) -> str:
    try:
        import mwparserfromhell
    except ImportError as error:
        raise BrimfulError("dumps of wikis need: pip install mwparserfromhell") from error
    text = _WIKI_TEXT.search(page)
    if not text or _WIKI_NO_ARTICLE.search(page):
        return ""
    return mwparserfromhell.parse(html.unescape(text[1])).strip_code()


def _convert_xml(text: str) -> str:
    text = _CDATA.sub(lambda section: html.escape(section[1]), text)
    return html.unescape(_XML_MARKUP.sub("", _XML_BREAK.sub("\n", text)))


def _convert_subtitles(text: str) -> str:
    dialogue = re.findall(r"^Dialogue:(?:[^,\n]*,){9}(.*)", text, re.MULTILINE)
    if dialogue:
        text = re.sub(r"\\[Nn]", "\n", "\n".join(dialogue))
    elif re.search(r"^\[\d+:\d\d", text, re.MULTILINE):
        text = _LYRICS_TIME.sub("", text)
    else:
        is_web = text.startswith("WEBVTT")
        blocks = re.split(r"\n\s*\n", text.strip("\n"))
        # Without times, blocks hold the title, notes and styles in WebVTT, and speech elsewhere.
        text = "\n".join(_CUE.sub("", block) for block in blocks if not is_web or "-->" in block)
    return html.unescape(_SUBTITLE_STYLE.sub("", text))


def _convert_message(message: str) -> str:
    # A message without a name was written by the program, not by a person.
    sender = re.match(rf"{CHAT_STAMP}{CHAT_NAME}|{_QQ_STAMP}", message)
    return message[sender.end() :] if sender else ""


def _convert_treebank(document: str) -> str:
    sentences = re.findall(r"^# text = (.*)", document, re.MULTILINE)
    if not sentences:
        sentences = [" ".join(_CONLLU_WORD.findall(part)) for part in document.split("\n\n")]
    return "\n".join(sentences)


def _convert_pages(text: str) -> str:
    pages = [page.strip("\n") for page in text.rstrip("\f\n").split("\f")]
    for _ in range(2):  # a title and a number may be two lines
        for index, line in _find_running_lines([page.partition("\n")[0] for page in pages]):
            pages[index] = pages[index].removeprefix(line).strip("\n")
        for index, line in _find_running_lines([page.rpartition("\n")[2] for page in pages]):
            pages[index] = pages[index].removesuffix(line).strip("\n")
    return "\n".join(pages)


def _find_running_lines(lines: list[str]) -> Iterator[tuple[int, str]]:
    """Yield the first or last lines of pages that have a number that counts pages, or recur nearby.

    Each line comes with the index of its page.
    """
    fewest_alike = min(3, max(2, len(lines)))
    for index, line in enumerate(lines):
        alike = 0
        is_counting = False
        for other in range(max(0, index - 2), min(len(lines), index + 3)):
            alike += lines[other].strip() == line.strip()
            is_counting |= counts_pages(line, lines[other], other - index)
        if line and (is_counting or alike >= fewest_alike):
            yield index, line


CONVERTERS: dict[str, Callable[[str, str, Counter[str]], Iterator[str]]] = {
    "warc": _read_archive,
    "documents": partial(_read_text, _convert_document, "(?i)</doc>", "text"),
    "wiki": partial(_read_text, _convert_wiki_page, "</page>", "html"),
    "xml": partial(_read_text, _convert_xml, "", "html"),
    "mail": _read_mail,
    "subtitles": partial(_read_text, _convert_subtitles, "", "text"),
    "chat": partial(_read_text, _convert_message, rf"(?m)^(?={CHAT_STAMP}|{_QQ_STAMP})", "text"),
    "conllu": partial(_read_text, _convert_treebank, r"(?m)^# newdoc\b", "text"),
    "pages": partial(_read_text, _convert_pages, "", "rows"),
}


def _files_below(path: str, kind: str, encoding: str) -> Iterator[str]:
    """Yield a file, or the files of a kind in a folder and the folders below it."""
    if not Path(path).is_dir():
        yield path
        return
    for file in map(str, sorted(filter(Path.is_file, Path(path).rglob("*")))):
        form = many_texts_of(file, encoding)
        if form and form.kind == kind:
            yield file


def convert(kind: str, paths: Iterable[str], encoding: str = "utf-8") -> Iterator[str]:
    """Yield the documents of files that hold many texts. Warnings count damaged parts.

    Args:
        kind: a name of `CONVERTERS`.
        paths: files, or folders whose files of that kind are read.
        encoding: the charset of files that do not declare one.

    Raises:
        BrimfulError: a file cannot be read, or is of another form.
    """
    for path in paths:
        for file in _files_below(path, kind, encoding):
            issues: Counter[str] = Counter()
            try:
                yield from filter(None, map(str.strip, CONVERTERS[kind](file, encoding, issues)))
            except OSError as error:
                raise BrimfulError(f"{file}: {error}") from error
            for issue, number in (+issues).items():
                warn(f"{file}: {issue}: {number:,}")


def _main() -> None:
    parser = argparse.ArgumentParser(description="Convert files that hold many texts to JSON lines.")
    parser.add_argument("kind", choices=CONVERTERS)
    parser.add_argument("files", nargs="+", help="files, or folders of them")
    parser.add_argument(
        "--encoding", "--read.encoding", default="utf-8", help="charset of files that do not declare one"
    )
    options = parser.parse_args()
    try:
        for text in convert(options.kind, options.files, options.encoding):
            print(json.dumps({"text": text}))
    except BrimfulError as error:
        raise SystemExit(f"error: {error}") from error


if __name__ == "__main__":
    _main()
