"""Text files that hold many texts: named by what their first lines show, and refused with a command that
makes of them what is read. Each has tools that read it better than rules here could."""

import os
import re
import shlex
from dataclasses import dataclass

_UNPACK = {".gz": "gzip -dk", ".zst": "zstd -d", ".bz2": "bzip2 -dk", ".xz": "xz -dk", ".zip": "unzip"}
_LINES = (
    "python3 -c 'import json, sys, {imports}; texts = {texts};"
    " [print(json.dumps(dict(text=text))) for text in texts]'"
)
# The whole file as text.
_WHOLE = 'open(sys.argv[1], encoding="utf-8", errors="replace").read()'


@dataclass(frozen=True)
class ManyTexts:
    """A form of files that hold many texts.

    Attributes:
        what: its name.
        head: what files of the form begin with.
        command: makes of a file, whose name follows, texts or JSON lines.
        suffix: of what the command writes.
        unpacks: whether the command reads compressed files.
    """

    what: str
    head: re.Pattern[str]
    command: str
    suffix: str
    unpacks: bool = False

    def refuse(self, path: str, compression: str) -> str:
        """What to say of a file, and the command to convert it.

        Args:
            compression: the suffix of its compression; empty if it has none.
        """
        what = f"is {self.what}, not one text"
        if compression and not self.unpacks:
            return f"{what}; unpack it first: {_UNPACK[compression]} {shlex.quote(path)}"
        # Never the name of the file itself, which the shell would empty before it is read.
        out = f"{os.path.splitext(path)[0]}-texts.{self.suffix}"
        return f"{what}; convert it: {self.command} {shlex.quote(path)} > {shlex.quote(out)}"


def _python(imports: str, texts: str) -> str:
    """A command that writes an iterable of texts as JSON lines."""
    return _LINES.format(imports=imports, texts=texts)


_FORMS = (
    ManyTexts(
        "a web archive",
        re.compile(r"WARC/\d"),
        _python(
            "fastwarc.warc as w, resiliparse.extract.html2text as h, resiliparse.parse.encoding as e",
            '(h.extract_plain_text(e.bytes_to_str(b)) if r.is_http else b.decode("utf-8", "replace")'
            ' for r in w.ArchiveIterator(open(sys.argv[1], "rb"), parse_http=True,'
            " record_types=w.WarcRecordType.response | w.WarcRecordType.conversion)"
            ' if not r.is_http or "html" in (r.http_content_type or "") for b in [r.reader.read()])',
        ),
        "jsonl",
        unpacks=True,
    ),
    ManyTexts(
        "an extract of a wiki or a collection of documents",
        re.compile(r"<doc\b[^>]*>\s", re.IGNORECASE),
        _python(
            "html, re",
            '(html.unescape(re.sub("<[^>]*>", "", d)).strip()'
            f' for d in re.findall(r"(?si)<doc\\b[^>]*>(.*?)</doc>", {_WHOLE}))',
        ),
        "jsonl",
    ),
    ManyTexts(
        "a dump of a wiki",
        re.compile(r"(?:<\?xml[^>]*>\s*)?<mediawiki\b"),
        "pip install mwparserfromhell && "
        + _python(
            "bz2, mwparserfromhell as m, xml.etree.ElementTree as x",
            "(m.parse(e.text).strip_code() for _, e in x.iterparse((bz2.open if sys.argv[1][-4:] =="
            ' ".bz2" else open)(sys.argv[1], "rb")) if e.tag.endswith("}text") and e.text)',
        ),
        "jsonl",
        unpacks=True,
    ),
    ManyTexts(
        "XML",
        re.compile(
            r"<\?xml\b(?![^<]*(?:<!--.*?-->\s*)*<(?:!doctype\s+html|html)\b)", re.IGNORECASE | re.DOTALL
        ),
        "python3 -c 'import sys, xml.etree.ElementTree as x;"
        ' print("\\n".join(x.parse(sys.argv[1]).getroot().itertext()))\'',
        "txt",
    ),
    ManyTexts(
        "mail",
        # Headers, one of which no other text has, or the line before those of each mail in a mailbox.
        re.compile(
            r"From \S+ .*\d\d:\d\d.*\n[\w-]+: "
            r"|(?=(?:.+\n)*(?:Message-I[Dd]|Received|Return-Path|MIME-Version|Newsgroups): )"
            r"(?:[\w-]+: .*\n(?:[ \t].*\n)*){2,}\n"
        ),
        _python(
            "email, mailbox",
            '(p.get_payload(decode=True).decode(p.get_content_charset("utf-8"), "replace") for m in'
            ' [*mailbox.mbox(sys.argv[1])] or [email.message_from_binary_file(open(sys.argv[1], "rb"))]'
            ' for p in m.walk() if p.get_content_type() == "text/plain")',
        ),
        "jsonl",
    ),
    ManyTexts(
        "subtitles",
        re.compile(r"WEBVTT\b|\d+\s*\n\d+:\d\d:\d\d[,.]\d+ +--> "),
        r"LC_ALL=C sed -E '/^WEBVTT|^NOTE|^(Kind|Language): |-->/d; s/\r$//; /^[0-9:.,]+$/d;"
        r" s/<[^>]*>|\{\\[^}]*\}//g'",
        "txt",
    ),
    ManyTexts(
        "a chat",
        re.compile(
            r"\u200e?\[?\d{1,4}[./-]\d{1,2}[./-]\d{1,4},? \d{1,2}:\d\d(?::\d\d)?"
            r"(?:[\s\u202f]?[ap]\.?m\.?)?(?:\]| -) ",
            re.IGNORECASE,
        ),
        r"LC_ALL=C sed -E 's/\r$//; s/^[^0-9[]*\[?[0-9]+[./-][0-9]+[./-][0-9]+,? [^]-]*(\]| -) ([^:]*: )?//'",
        "txt",
    ),
    ManyTexts(
        "a text in pages with their numbers",
        # The first part looks quickly whether there is a form feed at all.
        re.compile(r"(?=[^\f]*+\f)[^\f]*[\s\[]\d{1,5}\]?[ \t]*\n+\f"),
        # Each page without its first and last lines.
        'python3 -c \'import sys; pages = open(sys.argv[1], encoding="utf-8").read().split("\\f");'
        ' print("\\n".join("\\n".join(p.strip().split("\\n")[1:-1]).strip() for p in pages))\'',
        "txt",
    ),
)


def find_many_texts(head: str) -> ManyTexts | None:
    """The form of a file with many texts; None if its beginning has none of them."""
    head = head.replace("\r\n", "\n").lstrip("\ufeff\n\r\t ")
    for form in _FORMS:
        if form.head.match(head):
            return form
    return None
