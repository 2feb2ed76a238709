"""Files that hold many texts -> JSON lines with one document each: the command that refusals name.

python -m brimful.corpus.converters KIND FILES > OUT.jsonl
"""

import argparse
import email
import html
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, AnyStr
from xml.etree import ElementTree

from brimful.base.console import warn
from brimful.base.errors import BrimfulError
from brimful.corpus.cleaning.markup import read_page
from brimful.corpus.reading.archives import read_chunks
from brimful.corpus.reading.charsets import Decoder, find_charset
from brimful.corpus.reading.detection import find_declared_charset, find_marked_charset, guess_charset
from brimful.corpus.reading.forms import many_texts_of
from brimful.corpus.reading.inputs import Span
from brimful.corpus.reading.lines import UNDECODABLE, read_runs
from brimful.corpus.reading.many_texts import CHAT_NAME, CHAT_STAMP, MAIL_START, SUBTITLE_TIMES, counts_pages

# `a < b and c > d` has no tags.
_TAG = re.compile(r"</?[a-z][\w:.-]*(?:\s[^<>]*=[^<>]*)?\s*/?>", re.IGNORECASE)
_NAME_OF_DOCUMENT = re.compile(r"<(url|docno|docid)>.*?</\1>", re.IGNORECASE | re.DOTALL)
_XML_BREAK = re.compile(r"</[^<>]*>(?=<\w)|<\w[^<>]*/>")
_XML_MARKUP = re.compile(
    r"<!--.*?-->|<\?.*?\?>|<!doctype[^>\[]*(?:\[.*?\]\s*)?>|</?[^\s<>!][^<>]*>", re.I | re.DOTALL
)
_SUBTITLE_STYLE = re.compile(r"</?[a-z][^<>]*>|<\d[\d:.]*>|\{\\[^}]*\}", re.IGNORECASE)
_LYRICS_TIME = re.compile(r"\[\w+:.*?\]|<\d+:\d\d\.\d+>")
_CONLLU_WORD = re.compile(r"^\d+\t([^\t\n]+)", re.MULTILINE)
_QQ_STAMP = r"\d{4}-\d\d-\d\d +\d+:\d\d:\d\d .*\n"


@dataclass(frozen=True)
class _Source:
    """A file to convert.

    Attributes:
        encoding: its charset, if it does not declare one.
        issues: counts its faults.
    """

    path: str
    encoding: str
    issues: Counter[str]

    def read_runs(self, kind: str = "text") -> Iterator[str]:
        yield from read_runs(
            Span(path=self.path), self.encoding, self.issues, None,
            run=1 << 20, longest=1 << 28, too_long="line longer than 256 MB, cut", kind=kind,
        )  # fmt: skip

    def read_text(self, kind: str = "text") -> str:
        return "".join(self.read_runs(kind))

    def decode(self, data: bytes, label: str) -> str:
        """Decode a part of the file by its byte order mark, its bytes or its label."""
        try:
            declared = find_charset(label)
        except BrimfulError:  # a label that no library knows
            declared = find_charset("utf-8")
        decoder = Decoder(find_marked_charset(data) or guess_charset(data, declared) or declared)
        text = decoder.decode(data, final=True)
        self.issues[UNDECODABLE] += decoder.replaced
        return text


def _split(pieces: Iterable[AnyStr], boundary: re.Pattern[AnyStr]) -> Iterator[AnyStr]:
    """Yield the parts between boundaries, which may reach from one piece of a file to the next."""
    tail: AnyStr | None = None
    for piece in pieces:
        parts = boundary.split(piece if tail is None else tail + piece)
        tail = parts.pop()
        yield from parts
    if tail:
        yield tail


def _from_warc(source: _Source) -> Iterator[str]:
    from fastwarc.warc import ArchiveIterator, WarcRecordType

    kinds = WarcRecordType.response | WarcRecordType.conversion
    with open(source.path, "rb") as file:
        for record in ArchiveIterator(file, record_types=kinds, parse_http=True, auto_decode="all"):
            if record.is_http and "html" not in (record.http_content_type or ""):
                continue
            try:
                data = record.reader.read()
            except OSError:  # a page that was compressed, and damaged
                source.issues["damaged pages, left out"] += 1
                continue
            if not record.is_http:
                source.issues["texts that were cut short"] += len(data) < record.content_length
                yield source.decode(data, source.encoding)
            else:
                declared = find_declared_charset(data)
                page_label = declared.name if declared else source.encoding
                yield read_page(source.decode(data, record.http_charset or page_label))


def _from_documents(source: _Source) -> Iterator[str]:
    for document in _split(source.read_runs(), re.compile("</doc>", re.IGNORECASE)):
        yield html.unescape(_TAG.sub("", _NAME_OF_DOCUMENT.sub("", document)))


def _from_wiki(source: _Source) -> Iterator[str]:
    try:
        import mwparserfromhell
    except ImportError as error:
        raise BrimfulError("dumps of wikis need: pip install mwparserfromhell") from error
    events: Any = ElementTree.XMLPullParser(["start", "end"])
    root: Any = None
    for chunk in read_chunks(source.path, source.issues):
        events.feed(chunk)
        for event, element in events.read_events():
            root = element if root is None else root
            if event == "end" and element.tag.endswith("}page"):
                if element.findtext("{*}ns", "0") == "0" and element.find("{*}redirect") is None:
                    yield mwparserfromhell.parse(element.findtext(".//{*}text") or "").strip_code()
                root.clear()  # a dump is larger than memory


def _from_xml(source: _Source) -> Iterator[str]:
    # The charset of a page is the one that its declaration names.
    parts = re.split(r"<!\[CDATA\[(.*?)\]\]>", source.read_text("html"), flags=re.DOTALL)
    for index in range(0, len(parts), 2):  # each other part is the content of a CDATA section, which is text
        parts[index] = html.unescape(_XML_MARKUP.sub("", _XML_BREAK.sub("\n", parts[index])))
    yield "".join(parts)


def _from_mail(source: _Source) -> Iterator[str]:
    boundary = re.compile(rb"^(?=" + MAIL_START.encode() + rb")", re.MULTILINE)
    for mail in _split(read_chunks(source.path, source.issues), boundary):
        texts: dict[str, list[str]] = {"text/plain": [], "text/html": []}
        for part in email.message_from_bytes(mail).walk():
            kind, data = part.get_content_type(), part.get_payload(decode=True)
            if kind in texts and isinstance(data, bytes) and part.get_content_disposition() != "attachment":
                texts[kind].append(source.decode(data, part.get_content_charset(source.encoding)))
        yield "\n".join(texts["text/plain"]) or read_page("\n".join(texts["text/html"]))


def _from_subtitles(source: _Source) -> Iterator[str]:
    text = source.read_text()
    if "\nDialogue:" in text:
        spoken = "\n".join(re.findall(r"^Dialogue:(?:[^,\n]*,){9}(.*)", text, re.MULTILINE))
        spoken = re.sub(r"\\[Nn]", "\n", spoken)
    elif re.search(r"^\[\d+:\d\d", text, re.MULTILINE):
        spoken = _LYRICS_TIME.sub("", text)
    else:
        is_web = text.startswith("WEBVTT")
        blocks = re.split(r"\n\s*\n", text.strip("\n"))
        # Without times, blocks hold the title, notes and styles in WebVTT, and speech elsewhere.
        spoken = "\n".join(_drop_times(block) for block in blocks if not is_web or "-->" in block)
    yield html.unescape(_SUBTITLE_STYLE.sub("", spoken))


def _drop_times(block: str) -> str:
    """Return the lines of a block without its times and the number or name before them."""
    speech = []
    for number, line in enumerate(block.split("\n")):
        if not SUBTITLE_TIMES.match(line):
            speech.append(line)
        elif number == 1 or (speech and speech[-1].strip().isdecimal()):
            speech.pop()
    return "\n".join(speech)


def _from_chat(source: _Source) -> Iterator[str]:
    messages = re.split(rf"(?m)^(?={CHAT_STAMP}|{_QQ_STAMP})", source.read_text())
    for message in messages:
        # A message without a name was written by the program, not by a person.
        sender = re.match(rf"{CHAT_STAMP}{CHAT_NAME}|{_QQ_STAMP}", message)
        if sender:
            yield message[sender.end() :]


def _from_conllu(source: _Source) -> Iterator[str]:
    for document in re.split(r"(?m)^# newdoc\b", source.read_text()):
        sentences = re.findall(r"^# text = (.*)", document, re.MULTILINE)
        if not sentences:
            sentences = [" ".join(_CONLLU_WORD.findall(part)) for part in document.split("\n\n")]
        yield "\n".join(sentences)


def _from_pages(source: _Source) -> Iterator[str]:
    text = source.read_text("rows")  # a kind of file that keeps its form feeds
    pages = [page.strip("\n") for page in text.rstrip("\f\n").split("\f")]
    for _ in range(2):  # a title and a number may be two lines
        for index in _find_running_lines([page.partition("\n")[0] for page in pages]):
            pages[index] = pages[index].partition("\n")[2].strip("\n")
        for index in _find_running_lines([page.rpartition("\n")[2] for page in pages]):
            pages[index] = pages[index].rpartition("\n")[0].strip("\n")
    yield "\n".join(pages)


def _find_running_lines(lines: list[str]) -> Iterator[int]:
    """Yield the pages whose first or last lines have a number that counts pages, or recur near them."""
    for index, line in enumerate(lines):
        near = {*range(max(0, index - 2), min(len(lines), index + 3))} - {index}
        counting = [other for other in near if counts_pages(line, lines[other], other - index)]
        alike = [other for other in near if lines[other].strip() == line.strip()]
        if line and (counting or len(alike) >= max(1, min(2, len(near)))):
            yield index


CONVERTERS = {
    "warc": _from_warc,
    "documents": _from_documents,
    "wiki": _from_wiki,
    "xml": _from_xml,
    "mail": _from_mail,
    "subtitles": _from_subtitles,
    "chat": _from_chat,
    "conllu": _from_conllu,
    "pages": _from_pages,
}


def _files_below(path: str, kind: str, encoding: str) -> Iterator[str]:
    """Yield a file, or the files of a kind in a folder and the folders below it."""
    if not Path(path).is_dir():
        yield path
        return
    for file in sorted(Path(path).rglob("*")):
        form = many_texts_of(str(file), encoding) if file.is_file() else None
        if form and form.kind == kind:
            yield str(file)


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
                for text in map(str.strip, CONVERTERS[kind](_Source(file, encoding, issues))):
                    if text:
                        yield text
            except (OSError, ElementTree.ParseError) as error:
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
