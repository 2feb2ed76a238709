"""Files that hold many texts are refused, and the command that they are refused with makes what is read."""

import gzip
import json
import re
import subprocess
import sys
import types
from pathlib import Path

import pytest

from brimful.base.console import record_warnings
from brimful.base.errors import BrimfulError
from brimful.corpus.converters import convert
from brimful.corpus.reading.input_files import find_inputs, require_forms
from brimful.corpus.reading.many_texts import find_many_texts
from brimful.tables.file_rows import is_text
from builders.reading import read, write
from builders.records import read_named_records

KETTLE, LANTERN = "A kettle is a pot with a lid.", "A lantern is a lamp with a case."
CHINESE = "会议在上海举行，与会者讨论了新的计划。朱镕基出席。"


def warc(kind: str, payload: bytes, http: str = "") -> bytes:
    block = f"HTTP/1.1 200 OK\r\n{http}Content-Length: {len(payload)}\r\n\r\n".encode() * bool(http) + payload
    mime = "Content-Type: application/http; msgtype=response\r\n" if http else ""
    head = f"WARC/1.0\r\nWARC-Type: {kind}\r\n{mime}Content-Length: {len(block)}\r\n\r\n"
    return head.encode() + block + b"\r\n\r\n"


def page(text: str) -> str:
    return f"<html><head><meta charset=gb2312></head><body><p>{text}</p></body></html>"


def mail(kind: str, encoding: str, body: str) -> bytes:
    headers = f"Subject: x\nContent-Type: text/{kind}\nContent-Transfer-Encoding: {encoding}"
    return f"From a@b.org Thu Jan  1 00:00:00 2026\n{headers}\n\n{body}\n\n".encode("gb18030")


HTML = "Content-Type: text/html\r\n"
REPORT = "Annual Report                    2026\n\n{}\n\n{}\n\f"

FILES: dict[str, tuple[str | bytes, list[str]]] = {  # by kind and name: the content, the documents
    "warc part.warc.wet": (
        warc("warcinfo", b"x: y")
        + warc("conversion", KETTLE.encode())
        + warc("response", page(LANTERN).encode(), HTML)
        + warc("response", page(CHINESE).encode("gb18030"), HTML)
        + warc("response", gzip.compress(page(KETTLE).encode()), f"{HTML}Content-Encoding: gzip\r\n")
        + warc("response", b"GIF", "Content-Type: image/gif\r\n"),
        [KETTLE, LANTERN, CHINESE, KETTLE],
    ),
    "documents news.txt": (
        f"<doc>\n<url>http://x</url>\n<content>{CHINESE}</content>\n</doc>\n".encode("gb18030"),
        [CHINESE],
    ),
    "xml a.xml": (
        f'<?xml version="1.0" encoding="GB2312"?>\n<!DOCTYPE t [<!ENTITY e "x">]>\n'
        f"<t><p>{CHINESE} &eacute;</p><![CDATA[<b>]]></t>".encode("gb18030"),
        [f"{CHINESE} é<b>"],
    ),
    "mail list.mbox": (
        mail("plain; charset=utf-8", "base64", "5LuK5aSp5LiL6Zuo44CC")
        + mail("plain; charset=latin-1", "quoted-printable", "caf=E9")
        + mail("plain; charset=x-unknown", "8bit", KETTLE)
        + mail("plain; charset=gb2312", "8bit", CHINESE)
        + mail("html", "8bit", f"<p>{LANTERN}</p>"),
        ["今天下雨。", "café", KETTLE, CHINESE, LANTERN],
    ),
    "subtitles film.srt": (
        "1\r\n00:00:01,000 --> 00:00:03,500\r\n<i>Where is\r\nit?</i>\r\n\r\n2\r\n"
        "00:00:03,900 --> 00:00:05,200\r\n{\\an8}- Here. <3\r\n\r\n"
        "3\r\n00:00:06,000 --> 00:00:07,000\r\n42\r\n",
        ["Where is\nit?\n- Here. <3\n42"],
    ),
    "pages report.txt": (
        "London, 1925\n\f"
        + REPORT.format("Beginning", "     10")
        + REPORT.format("The costs were", "     11")
        + REPORT.format("necessary for\n1925\nus.", "     12"),
        ["London, 1925\nBeginning\nThe costs were\nnecessary for\n1925\nus."],
    ),
    "pages zh.txt": (f"{CHINESE}\n第1页\n\f{KETTLE}\n第2页\n\f", [f"{CHINESE}\n{KETTLE}"]),
}
for file, (written, right) in read_named_records(Path(__file__).parent / "many_texts_records.txt").items():
    FILES[file] = (written, json.loads(right))


def texts_of(path: Path, **config: str) -> list[str]:
    texts, issues = read(path, **config)
    assert not issues
    return texts


@pytest.mark.parametrize("file", FILES)
def test_a_file_is_refused_and_converted(file: str, tmp_path: Path) -> None:
    (kind, name), (content, texts) = file.split(), FILES[file]
    path = write(tmp_path / name, content)
    with pytest.raises(BrimfulError) as error:
        texts_of(path)
    what = "convert it and give the result in its place: python -m brimful.corpus.converters"
    assert re.fullmatch(
        f"{path} is [^/]*, not one text; {what} {kind} {path} > {path}.jsonl", str(error.value)
    )
    assert [*convert(kind, [str(path)])] == texts
    packed = write(tmp_path / f"{name}.gz", gzip.compress(path.read_bytes()))
    assert [*convert(kind, [str(packed)])] == texts
    if name.endswith(".txt"):
        with pytest.raises(BrimfulError, match="convert it"):
            is_text(path, ["text"])


def test_the_command_names_the_encoding(tmp_path: Path) -> None:
    path = tmp_path / "a.srt"
    path.write_bytes("1\n00:00:01,000 --> 00:00:03,500\nHello\n".encode("utf-16-le"))
    with pytest.raises(BrimfulError, match="converters subtitles --encoding utf-16 "):
        texts_of(path, encoding="utf-16")
    assert [*convert("subtitles", [str(path)], "utf-16")] == ["Hello"]
    with record_warnings() as warnings:
        assert not [*convert("subtitles", [str(path)])]
    assert "a.srt: binary file skipped" in warnings[0]


def test_damaged_records_of_a_web_archive_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "a.warc"
    damaged = warc("response", b"garbage", f"{HTML}Content-Encoding: br\r\n")
    path.write_bytes(
        damaged + warc("conversion", KETTLE.encode()) + warc("conversion", LANTERN.encode())[:-10]
    )
    with record_warnings() as warnings:
        assert [*convert("warc", [str(path)])] == [KETTLE, LANTERN[:-6]]
    assert warnings == [f"{path}: damaged pages, left out: 1", f"{path}: texts that were cut short: 1"]


def test_one_command_converts_all_files_of_a_form(tmp_path: Path) -> None:
    folder = tmp_path / "a b"
    (folder / "AA").mkdir(parents=True)
    for number in range(3):
        (folder / "AA" / f"wiki_{number:02}").write_text(f'<doc id="{number}">\n{KETTLE} {number}\n</doc>\n')
    (folder / "a.txt").write_text("WEBVTT\n\n00:01.000 --> 00:03.000\nx")
    (folder / "b.txt").write_text("prose")
    with pytest.raises(BrimfulError, match=r"wiki_00 and 2 other files are each an extract") as error:
        require_forms(find_inputs([str(folder / "AA"), str(folder)], "out"), ["text"], "utf-8")
    message = str(error.value).split(" (1 more of the files")[0]
    command = message.split("in their place: ")[1].replace("python", sys.executable, 1)
    subprocess.run(["bash", "-c", command], check=True)
    assert texts_of(folder / "AA-texts.jsonl") == [f"{KETTLE} {number}" for number in range(3)]


def test_a_dump_of_a_wiki_is_refused_and_converted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    article = "<page><ns>0</ns>{}<revision><text>{}</text></revision></page>"
    pages = [article.format("", KETTLE), article.format("<redirect />", "x"), article.format("", LANTERN)]
    talk = article.format("", "x").replace("0", "1")
    dump = f'<mediawiki xmlns="http://www.mediawiki.org">{talk}{"".join(pages)}</mediawiki>'
    path = tmp_path / "dump.xml.gz"
    path.write_bytes(gzip.compress(dump.encode()))
    with pytest.raises(BrimfulError, match=r"dump of a wiki.*converters wiki "):
        texts_of(path)
    monkeypatch.setitem(sys.modules, "mwparserfromhell", None)
    with pytest.raises(BrimfulError, match="pip install mwparserfromhell"):
        next(convert("wiki", [str(path)]))
    parse = types.SimpleNamespace(parse=lambda text: types.SimpleNamespace(strip_code=text.strip))
    monkeypatch.setitem(sys.modules, "mwparserfromhell", parse)
    assert [*convert("wiki", [str(path)])] == [KETTLE, LANTERN]


@pytest.mark.parametrize(
    "text",
    [
        "From Paris to London, 10:30 by train\nSubject to changes.",
        "1\tone\ntwo\n3\tthree\n",
        "2026-01-02 was a Friday, and 10:30 - noon was free.",
        "<p>no archive</p>",
        '<?xml version="1.0"?><!DOCTYPE html><html><body>page</body></html>',
        "Subject: a report\nDate: today\n\nThe text of a memo.",
        "Received: 3 May 2020\nFrom: Bank\n\nDear Sir",
        "\tA paragraph.\n\tAnother one.\n\tA third.",
        "10:30 <b>bold</b>",
        "A page\fand another.\nTwo of them\n\fare no report.",
        "The lamp\n\nLondon, 1925\n\fIt was late.\n\fThe end.",
        "Chapter 1\nIt was late.\n\fChapter 2\nIt was later.\n\f.",
        "12.05.2021, 18:30 - Sitzung des Rates\n\nDer Rat tagte.",
        "12.05.2021, 18:30 - Sitzung: der Rat\n\nDer Rat tagte.",
        "[2024-05-06 09:15:00] ERROR x: y\n" * 4,
        "WARC/1.1 is a format.",
        "<doc>\nis a tag.",
        "WEBVTT is a format.\n\nSo is another.",
        '<?xml version="1.0"?> is a line.',
    ],
)
def test_prose_is_no_file_of_many_texts(text: str, tmp_path: Path) -> None:
    assert find_many_texts(".txt", text) is None
    path = tmp_path / "a.txt"
    path.write_text(text)
    assert texts_of(path) == [re.sub("\f", "\n", text).removesuffix("\n")]
