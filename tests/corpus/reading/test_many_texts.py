"""Files that hold many texts are refused, and the command that they are refused with makes what is read."""

import gzip
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from brimful.base.console import recorded_warnings
from brimful.base.errors import BrimfulError
from brimful.corpus.reading.inputs import Span, find_inputs
from brimful.corpus.reading.many_texts import find_many_texts
from brimful.corpus.reading.read import ReadConfig, read_documents
from brimful.tables.file_rows import is_text

KETTLE, LANTERN = "A kettle is a pot with a lid.", "A lantern is a lamp with a case."
WET = "WARC/1.0\r\nWARC-Type: {}\r\nWARC-Record-ID: <urn:uuid:{}>\r\nContent-Length: {}\r\n\r\n{}\r\n\r\n"
PAGE = f"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n<html><body><p>{LANTERN}</p></body></html>"
RESPONSE = WET.replace("Content-L", "Content-Type: application/http; msgtype=response\r\nContent-L")
MAIL = (
    "From a@b.org Thu Jan  1 00:00:00 2026\nSubject: x\nContent-Type: text/plain; charset={}\n"
    "Content-Transfer-Encoding: {}\n\n{}\n\n"
)
HEADER = "Annual Report                    2026\n\n{}\n\n                     {}\n\f"

# The name, the content, what the command gives.
FILES = {
    "web archive": (
        "part.warc.wet",
        WET.format("warcinfo", 0, 4, "x: y")
        + WET.format("conversion", 1, len(KETTLE), KETTLE)
        + RESPONSE.format("response", 2, len(PAGE), PAGE),
        [KETTLE, LANTERN],
    ),
    "wikiextractor": (
        "wiki_00",
        f'<doc id="1" title="Kettle">\nKettle\n\n{KETTLE}\n\n</doc>\n'
        f'<doc id="2">\n{LANTERN} &lt;1&gt;\n</doc>\n',
        [f"Kettle\n\n{KETTLE}", f"{LANTERN} <1>"],
    ),
    "XML": (
        "a.xml",
        f'<?xml version="1.0"?>\n<TEI><p>{KETTLE}</p>\n<p>{LANTERN}</p></TEI>',
        [f"{KETTLE}\n\n\n{LANTERN}"],
    ),
    "mailbox": (
        "list.mbox",
        MAIL.format("utf-8", "base64", "5LuK5aSp5LiL6Zuo44CC")
        + MAIL.format("latin-1", "quoted-printable", "The caf=E9 is clo=\nsed."),
        ["今天下雨。", "The café is closed.\n"],
    ),
    "subtitles": (
        "film.srt",
        "1\r\n00:00:01,000 --> 00:00:03,500\r\n<i>Where is\r\nthe kettle?</i>\r\n\r\n"
        "2\r\n00:00:03,900 --> 00:00:05,200\r\n{\\an8}- Here.\r\n",
        ["Where is\nthe kettle?\n\n- Here."],
    ),
    "web subtitles": ("film.vtt", "WEBVTT\n\n00:01.000 --> 00:03.000\nOn the stove.\n", ["\nOn the stove."]),
    "mail": (
        "a.eml",
        f"Return-Path: <a@b.org>\nReceived: from x\n by y\nSubject: x\n\n{KETTLE}\n",
        [KETTLE],
    ),
    "chat": (
        "chat.txt",
        "12/01/2026, 10:11 - Anna: Bring a cup: a clean one.\n[12.01.26, 10:12:13] Bo: Yes.\nSure.\n",
        ["Bring a cup: a clean one.\nYes.\nSure."],
    ),
    "pages": (
        "report.txt",
        HEADER.format("The costs were", 11) + HEADER.format("necessary for the club.", 12),
        ["The costs were\nnecessary for the club."],
    ),
}


def texts_of(path: Path, **config: str) -> list[str]:
    issues: Counter[str] = Counter()
    texts = [text for _, text in read_documents(Span(path=str(path)), ReadConfig(**config), issues)]
    assert not issues
    return texts


@pytest.mark.parametrize("kind", FILES)
def test_the_command_of_a_refusal_makes_what_is_read(kind: str, tmp_path: Path) -> None:
    name, content, texts = FILES[kind]
    path = tmp_path / name
    path.write_bytes(content.encode())
    with pytest.raises(BrimfulError, match=f"^{path} .*; convert it: ") as error:
        texts_of(path)
    command = str(error.value).split("; convert it: ")[1]
    assert "\n" not in command
    folder = os.path.dirname(sys.executable)
    subprocess.run(
        ["bash", "-c", command], check=True, env={**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}
    )
    made = Path(command.rsplit("> ", 1)[1])
    assert [text.strip("\n") for text in texts_of(made)] == [text.strip("\n") for text in texts]
    if name.endswith(".txt"):
        with pytest.raises(BrimfulError, match="convert it"):
            is_text(path, ["text"])


def test_a_compressed_file_is_unpacked_first(tmp_path: Path) -> None:
    path = tmp_path / "film.srt.gz"
    path.write_bytes(gzip.compress(FILES["subtitles"][1].encode()))
    with pytest.raises(BrimfulError, match=f"is subtitles.*unpack it first: gzip -dk {path}$"):
        texts_of(path)


def test_a_dump_of_a_wiki_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "dump.xml"
    path.write_text('<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.11/" version="0.11">\n')
    with pytest.raises(BrimfulError, match=r"dump of a wiki.*pip install mwparserfromhell && python3 -c"):
        texts_of(path)


NUMBERED = "".join(
    f"{number}\tThe {thing} was older.\n" for number, thing in enumerate(["cup", "hall", "river"], 7)
)


def test_the_sentences_behind_numbers_are_a_column(tmp_path: Path) -> None:
    path = tmp_path / "eng_news-sentences.txt"
    path.write_text(NUMBERED)
    with pytest.raises(BrimfulError, match=r"has columns between tabs: read them by number, --read\.field 2"):
        texts_of(path)
    assert texts_of(path, field="2") == ["The cup was older.", "The hall was older.", "The river was older."]


@pytest.mark.parametrize(
    "text",
    [
        "From Paris to London, 10:30 by train\nSubject to changes.",
        "1\tone\ntwo\n3\tthree\n",
        "2026-01-02 was a Friday, and 10:30 - noon was free.",
        "<p>no archive</p>",
        '<?xml version="1.0"?><!DOCTYPE html><html><body>page</body></html>',
        "1\n2\n3\n",
        "Subject: a report\nDate: today\n\nThe text of a memo.",
        "\tA paragraph.\n\tAnother one.\n\tA third.",
        "10:30 <b>bold</b>",
        "A page\fand another.\nTwo of them\n\fare no report.",
    ],
)
def test_prose_is_no_file_of_many_texts(text: str, tmp_path: Path) -> None:
    assert find_many_texts(text) is None
    path = tmp_path / "a.txt"
    path.write_text(text)
    assert texts_of(path) == [re.sub("\f", "\n", text).removesuffix("\n")]


def test_files_without_a_suffix_are_looked_at(tmp_path: Path) -> None:
    folder = tmp_path / "AA"
    folder.mkdir()
    (folder / "wiki_00").write_text(FILES["wikiextractor"][1])
    (folder / "README").write_text("x")
    (folder / "wiki_01").write_text('{"id": 1, "text": "a"}\n')
    with recorded_warnings() as warnings:
        assert [Path(item.path).name for item in find_inputs([str(folder)], "out")] == ["wiki_00", "wiki_01"]
    assert "1 file of another kind was left out (no suffix 1)" in warnings[0]
