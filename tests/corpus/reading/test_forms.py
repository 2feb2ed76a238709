"""Files whose content contradicts their name, archives, and what is passed over in a folder."""

import bz2
import gzip
import io
import json
import lzma
import shlex
import zipfile
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from brimful.base.console import record_warnings
from brimful.base.errors import BrimfulError
from brimful.corpus.reading.input_files import find_inputs, require_forms
from brimful.corpus.reading.read import TABBED
from brimful.tables.table_files import read_table
from builders.reading import read, write

ROWS = [("the room was clean", "1"), ("很好", "0"), ("and, so, on", "1")]
TEXTS = [text for text, _ in ROWS]
TSV = "text\tlabel\n" + "".join(f"{text}\t{label}\n" for text, label in ROWS)
LINES = "".join(json.dumps({"text": text, "label": label}) + "\n" for text, label in ROWS)
POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:12\nsize 12345\n"
ARRAY = json.dumps([{"text": text, "label": label} for text, label in ROWS])


def parquet() -> bytes:
    out = pa.BufferOutputStream()
    pq.write_table(pa.table({"text": TEXTS, "label": [label for _, label in ROWS]}), out)
    return out.getvalue().to_pybytes()


@pytest.mark.parametrize(
    ("name", "data", "named"),
    [
        ("a.csv", parquet(), "is Parquet: name it a.parquet"),
        ("a b.txt", parquet(), "is Parquet: name it 'a b.parquet'"),
        ("a.csv", LINES, "is JSON lines: name it a.jsonl"),
        ("a.txt", LINES, "is JSON lines: name it a.jsonl"),
        ("a.txt.gz", gzip.compress(LINES.encode(), mtime=0), "is JSON lines: name it a.jsonl.gz"),
        ("a.tsv", ARRAY, "is JSON: name it a.json"),
        ("a.txt", json.dumps(json.loads(ARRAY), indent=1).encode(), "is JSON: name it a.json"),
        ("a.txt", TSV, "is TSV: name it a.tsv"),
        ("a.txt", b"label,text\n1,a\n0,b\n", "is CSV: name it a.csv"),
    ],
)
def test_a_name_that_content_contradicts_is_refused(
    name: str, data: str | bytes, named: str, tmp_path: Path
) -> None:
    path = tmp_path / name
    with pytest.raises(BrimfulError) as error:
        read(path, data)
    assert str(error.value) == f"{path} {named}"
    path.rename(tmp_path / shlex.split(named)[-1])  # as the message says
    assert read(tmp_path / shlex.split(named)[-1], data)[0]
    with pytest.raises(BrimfulError, match="name it"):
        read_table(write(path, data), labelled=True)


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("a.tsv", gzip.compress(TSV.encode(), mtime=0)),
        ("a.jsonl", bz2.compress(LINES.encode())),
        ("a.json", LINES),
        ("a.jsonl", ARRAY),
    ],
)
def test_compression_and_kinds_of_json_are_told_by_content(name: str, data: bytes, tmp_path: Path) -> None:
    assert read(tmp_path / name, data) == (TEXTS, {})
    assert read_table(tmp_path / name, labelled=True).texts == TEXTS


def test_files_are_refused_before_any_is_read(tmp_path: Path) -> None:
    for name in ("a.txt", "b.txt", "c.txt"):
        (tmp_path / name).write_text(LINES if name > "a.txt" else "prose")
    with pytest.raises(
        BrimfulError, match=r"b\.txt is JSON lines.* \(1 more of the files are refused, too\)"
    ):
        require_forms(find_inputs([str(tmp_path)], "out"), ["text"], "utf-8")


@pytest.mark.parametrize(
    "text",
    [
        "[1] A reference\n[2] Another\n",
        "[1]\n[2]\n",
        '{"a": 1}\nno JSON\n',
        '[["a", "b"]] is a list\n',
        '{"quoted": yes} is a joke\n',
        "[x](y)\n",
    ],
)
def test_prose_that_begins_like_something_else_is_prose(text: str, tmp_path: Path) -> None:
    assert read(tmp_path / "a.txt", text) == ([text.removesuffix("\n")], {})


@pytest.mark.parametrize(
    ("name", "data", "said"),
    [
        ("a.csv", b"PK\x03\x04" + b"x" * 99, "a zip archive or an Office document"),
        ("a.csv", b"\xd0\xcf\x11\xe0" + b"x" * 99, "an Office document"),
        ("a.jsonl", b"<!doctype html>\n<html><body>404</body></html>", "an HTML page"),
        ("a.txt", b"%PDF-1.7\n" + b"x" * 99, "a PDF document: write its text, pdftotext"),
        ("a.txt", POINTER, "a pointer of Git LFS"),
        ("a.parquet", POINTER, "a pointer of Git LFS"),
    ],
)
def test_what_is_no_text_is_refused(name: str, data: bytes, said: str, tmp_path: Path) -> None:
    with pytest.raises(BrimfulError, match=f"a.* is {said}"):
        read(tmp_path / name, data)
    with pytest.raises(BrimfulError, match=f"a.* is {said}"):
        read_table(tmp_path / name, labelled=True)


def zipped(data: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("folder/a.tsv", data)
        archive.writestr("__MACOSX/folder/._a.tsv", b"junk")
    return file.getvalue()


PACKERS: dict[str, Callable[[bytes], bytes]] = {
    ".gz": gzip.compress,
    ".zst": zstandard.ZstdCompressor().compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".zip": zipped,
}


@pytest.mark.parametrize("suffix", PACKERS)
def test_archives_are_read_by_prepare_and_as_tables(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"a.tsv{suffix}"
    assert read(path, PACKERS[suffix](TSV.encode())) == (TEXTS, {})
    assert read_table(path, labelled=True).texts == TEXTS
    if suffix != ".zip":
        _, issues = read(path, PACKERS[suffix](TSV.encode() * 99)[:-9])
        assert issues
        with pytest.raises(BrimfulError, match="archive"):
            read_table(path, labelled=True)


def test_an_archive_of_several_files_is_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("a.txt", "a")
        archive.writestr("b.txt", "b")
    with pytest.raises(BrimfulError, match=r"a\.zip holds 2 files: unpack it"):
        read(tmp_path / "a.zip", (tmp_path / "a.zip").read_bytes())


def test_what_is_left_out_is_said_by_suffix(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    for name in ("a.txt", "b.md", "c.ndjson", "d.log", "e.log", "f.tex.gz", "README", ".hidden"):
        (folder / name).write_text("x")
    (folder / "wiki_00").write_text('<doc id="1">\nA text.\n</doc>\n')
    (folder / "wiki_01").write_text('{"id": 1, "text": "a"}\n')
    with record_warnings() as warnings:
        inputs = find_inputs([str(folder)], str(tmp_path / "out"))
    names = [Path(item.path).name for item in inputs]
    assert names == ["a.txt", "b.md", "c.ndjson", "wiki_00", "wiki_01"]
    assert "4 files of other kinds were left out (.log 2, no suffix 1, .tex.gz 1)" in warnings[0]


@pytest.mark.parametrize(
    "broken",
    [
        *('{"text": "cut\n', '{"text": "a}{"text": 1\n', '{"text": \n{"text": \n'),
        *(f'{{"text": {value}}}\n' for value in ("9" * 5000, "[" * 5000)),  # which no reader takes
    ],
)
def test_broken_first_lines_cost_no_other(broken: str, tmp_path: Path) -> None:
    for name in ("a.jsonl", "a.json"):
        assert read(tmp_path / name, f"{broken}{LINES}") == (TEXTS, {"broken JSON lines": broken.count("\n")})


@pytest.mark.parametrize("name", ["a.json", "a.jsonl", "a.json.gz"])
def test_lines_of_json_may_be_longer_than_what_is_looked_at(name: str, tmp_path: Path) -> None:
    texts = ["很好" * 40_000, "b" * 20_000, "c"]
    data = "\n".join(json.dumps({"id": 1, "text": text}, ensure_ascii=False) for text in texts).encode()
    packed = gzip.compress(data) if name.endswith(".gz") else data
    assert read(tmp_path / name, packed) == (texts, {})
    with pytest.raises(BrimfulError, match=r"is JSON lines: name it b\.jsonl"):
        read(tmp_path / "b.txt", data)
    one_line = json.dumps({"data": [{"text": text} for text in texts]}).encode()
    assert read(tmp_path / "b.json", one_line) == (texts, {})


def test_json_in_another_encoding_is_told_by_the_option(tmp_path: Path) -> None:
    assert read(tmp_path / "a.json", LINES.encode("utf-16-le"), encoding="utf-16")[0] == TEXTS


def test_one_tab_in_most_lines_is_said_and_numbers_before_it_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    glossary = "apple\ta fruit\npear\tanother one\n\nand a line\n" * 30
    assert read(path, glossary) == ([glossary.removesuffix("\n")], {TABBED: 60})
    numbered = "# of words\n1\tOne.\n2\tTwo.\tOr more.\n3\tThree, or so.\n4\tFour.\n"
    assert read(path, numbered, field="2") == (
        ["One.", "Two.", "Three, or so.", "Four."],
        {"rows cut short": 1, "rows longer than the header": 1},
    )
    with pytest.raises(BrimfulError, match=r"has columns between tabs: read them by number, --read\.field 2"):
        read(path, "".join(f"{number}\tA sentence.\n" for number in range(40)) + "# end\n")
