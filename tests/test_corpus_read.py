"""Reading: every format, and every way in which a file can be bad."""

import gzip
import json
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from brimful.corpus.inputs import find_inputs
from brimful.corpus.read import ReadConfig, check_encoding, read_documents
from brimful.errors import BrimfulError


def read(path: Path, **config) -> tuple[list[tuple[int, str]], Counter[str]]:
    issues: Counter[str] = Counter()
    return list(read_documents(str(path), ReadConfig(**config), issues)), issues


def write(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


@pytest.mark.parametrize(
    ("split", "expected"),
    [
        ("file", [(0, "one\ntwo\n\nthree")]),
        ("paragraph", [(0, "one\ntwo"), (1, "three")]),
        ("line", [(0, "one"), (1, "two"), (3, "three")]),
    ],
)
def test_text(tmp_path: Path, split: str, expected: list[tuple[int, str]]) -> None:
    data = b"one\r\ntwo\r\n\r\nthree\r\n"
    compressor = zstandard.ZstdCompressor()
    files = {
        "a.txt": data,
        "a.txt.gz": gzip.compress(data[:7]) + gzip.compress(data[7:]),
        "a.txt.zst": compressor.compress(data[:7]) + compressor.compress(data[7:]),
    }
    for name, stored in files.items():
        assert read(write(tmp_path / name, stored), split=split) == (expected, Counter())


def test_only_line_feeds_end_a_line(tmp_path: Path) -> None:
    file = write(tmp_path / "a.txt", "a\u2028b\x85c\fd\ne".encode())
    assert [text for _, text in read(file, split="line")[0]] == ["a\u2028b\x85c\fd", "e"]


def test_tables_and_json(tmp_path: Path) -> None:
    long = "x" * 200_000  # beyond the default field limit of the csv module
    rows = write(tmp_path / "a.csv", f'label,text\n1,"two\nlines, ""quoted"""\n0,{long}\n1\n'.encode())
    documents, issues = read(rows)
    assert documents == [(0, 'two\nlines, "quoted"'), (1, long)]
    assert issues == {"rows cut short": 1}
    assert read(write(tmp_path / "a.tsv", b'text\tlabel\n"stray\t1\nnext\t0\n'))[0] == [
        (0, '"stray'),
        (1, "next"),
    ]
    lines = [json.dumps({"body": "中文"}), "{broken", '{"body": null}', "[1]", ""]
    documents, issues = read(write(tmp_path / "a.jsonl", "\n".join(lines).encode()), field="body")
    assert documents == [(0, "中文")]
    assert issues == {"broken JSON lines": 1, "records without a text 'body'": 2}


def test_parquet(tmp_path: Path) -> None:
    pq.write_table(pa.table({"text": ["a", None, "c"], "n": [1, 2, 3]}), tmp_path / "a.parquet")
    assert read(tmp_path / "a.parquet")[0] == [(0, "a"), (2, "c")]
    packed = write(tmp_path / "b.parquet.gz", gzip.compress((tmp_path / "a.parquet").read_bytes()))
    assert read(packed)[0] == [(0, "a"), (2, "c")]
    with pytest.raises(BrimfulError, match="holds int64, not text"):
        read(tmp_path / "a.parquet", field="n")
    documents, issues = read(write(tmp_path / "c.parquet", (tmp_path / "a.parquet").read_bytes()[:-9]))
    assert documents == []
    assert issues == {"cannot be read (not a Parquet file, or damaged)": 1}


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl", "a.parquet"])
def test_a_missing_field_names_the_nearest(tmp_path: Path, name: str) -> None:
    if name.endswith("parquet"):
        pq.write_table(pa.table({"texts": ["a"]}), tmp_path / name)
    else:
        write(tmp_path / name, b"texts,label\nhello,1\n" if name == "a.csv" else b'{"texts": "hello"}\n')
    with pytest.raises(BrimfulError, match=r"did you mean 'texts'\? \(set read.field\)"):
        read(tmp_path / name)


def test_bad_bytes_are_replaced_and_counted(tmp_path: Path) -> None:
    documents, issues = read(write(tmp_path / "a.txt", b"\xef\xbb\xbfgood \xff\xfe bad\0 more text here"))
    assert documents == [(0, "good \ufffd\ufffd bad\0 more text here")]
    assert issues == {"undecodable characters": 2, "NUL characters": 1}


@pytest.mark.parametrize("encoding", ["gb18030", "utf-16", "big5"])
def test_encodings(tmp_path: Path, encoding: str) -> None:
    text = "中文文本\n第二行\n" * 20_000  # characters lie across the chunks that are read
    documents, issues = read(
        write(tmp_path / "a.txt", text.encode(encoding)), encoding=encoding, split="line"
    )
    assert [line for _, line in documents] == text.split("\n")[:-1]
    assert not issues


def test_unknown_encoding() -> None:
    with pytest.raises(BrimfulError, match="unknown encoding 'utf-88'"):
        check_encoding("utf-88")


@pytest.mark.parametrize("suffix", ["gz", "zst"])
def test_cut_and_damaged_archives_keep_what_was_readable(tmp_path: Path, suffix: str) -> None:
    text = "".join(f"line {number} of {number * 7919 % 1000003}\n" for number in range(60_000)).encode()
    packed = gzip.compress(text) if suffix == "gz" else zstandard.ZstdCompressor().compress(text)
    file = tmp_path / f"a.txt.{suffix}"
    documents, issues = read(write(file, packed[: len(packed) // 2]), split="line")
    assert issues == {"archive cut short": 1}
    assert 1000 < len(documents) < 60_000
    middle = len(packed) // 2
    damaged = (
        packed[:middle]
        + bytes(byte ^ 0x55 for byte in packed[middle : middle + 400])
        + packed[middle + 400 :]
    )
    documents, issues = read(write(file, damaged), split="line")
    assert issues["archive damaged, its rest lost"] == 1
    assert len(documents) > 1000
    documents, issues = read(write(file, b"no archive at all"), split="line")
    assert (documents, issues) == ([], {"archive damaged, its rest lost": 1})


@pytest.mark.parametrize(
    "data", [bytes(range(256)) * 40, b"%PDF-1.7\n" + b"x" * 100, b"\x7fELF" + bytes(100)]
)
def test_binary_files_are_skipped(tmp_path: Path, data: bytes) -> None:
    assert read(write(tmp_path / "a.txt", data)) == ([], {"binary file skipped": 1})


def test_huge_lines_and_pages_come_in_pieces(tmp_path: Path) -> None:
    file = write(tmp_path / "a.txt", b"word " * 2_000_000)
    documents, issues = read(file, split="line")
    assert len(documents) == 3
    assert "".join(text for _, text in documents) == "word " * 2_000_000
    assert issues == {"line longer than 4 million characters, cut": 2}
    page = write(tmp_path / "a.html", b"<p>word</p>\n" * 500_000)
    documents, issues = read(page)
    assert len(documents) == 1
    assert issues == {"page longer than 4 million characters, its rest skipped": 1}


def test_unreadable_and_empty_files(tmp_path: Path) -> None:
    assert read(tmp_path / "absent.txt") == ([], {"cannot be read (No such file or directory)": 1})
    for name in ("a.txt", "a.html", "a.csv", "a.jsonl", "a.txt.gz"):
        assert read(write(tmp_path / name, b"")) == ([], Counter())


def test_inputs_are_sorted_unique_and_supported(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    (folder / "b").mkdir(parents=True)
    (folder / ".hidden").mkdir()
    names = ["b/2.txt", "b/1.jsonl.gz", "z.HTML", "a.csv", "image.png", ".hidden/x.txt", "notes.md"]
    for name in names:
        write(folder / name, b"x")
    out = str(tmp_path / "out")

    def found(*paths: str) -> list[str]:
        return [str(Path(item.path).relative_to(folder)) for item in find_inputs(paths, out)]

    assert found(str(folder)) == ["a.csv", "z.HTML", "b/1.jsonl.gz", "b/2.txt"]
    assert found(str(folder / "b/2.txt"), str(folder)) == ["b/2.txt", "a.csv", "z.HTML", "b/1.jsonl.gz"]
    assert found(f"{folder}/**/*.txt") == ["b/2.txt"]
    assert found(str(folder / "notes.md")) == ["notes.md"]  # named by the user


def test_no_input(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    write(tmp_path / "in" / "a.png", b"x")
    with pytest.raises(BrimfulError, match=r"no text in .*looked for files ending in \.txt \.jsonl"):
        find_inputs([str(tmp_path / "in")], "out")
    with pytest.raises(BrimfulError, match="does not exist"):
        find_inputs([str(tmp_path / "nothing")], "out")
    with pytest.raises(BrimfulError, match="no file matches"):
        find_inputs([str(tmp_path / "*.txt")], "out")


@pytest.mark.parametrize("out", ["in", "in/data", "."])
def test_output_is_never_input(tmp_path: Path, out: str) -> None:
    (tmp_path / "in").mkdir()
    write(tmp_path / "in" / "a.txt", b"x")
    with pytest.raises(BrimfulError, match="overlap"):
        find_inputs([str(tmp_path / "in")], str(tmp_path / out))
