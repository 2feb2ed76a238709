"""Reading: every format, and every way in which a file can be bad."""

import errno
import gzip
import itertools
import json
import re
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from hypothesis import assume, given
from hypothesis import strategies as st

from brimful.base.errors import BrimfulError
from brimful.corpus.reading import delimited
from brimful.corpus.reading.input_files import Input
from brimful.corpus.reading.lines import BINARY, EMPTY
from brimful.corpus.reading.read import ReadConfig
from brimful.corpus.reading.spans import divide
from builders.reading import read_numbered as read
from builders.reading import write

UNCLOSED = "quote never closed, its line skipped"
PACKERS = {"gz": gzip.compress, "zst": zstandard.ZstdCompressor().compress}


TEXT = b"one\r\ntwo\r\n\r\nthree\r\n"
LONG = "x" * 200_000  # beyond the default field limit of the csv module
BROKEN = '{"body": "中文"}\n{broken\n{"body": null}\n[1]\n'
ESCAPES = [r'{"text": "a\ud800b"}', r'{"text": "\ud83d\ude00\u0000"}', r'{"x": "\udc00", "text": "c"}']
ESCAPES += ['{"text": "d", "x": NaN}', '{"text": "e", "text": "f"}', r'{"te\u0078t": "g"}']
BAD = "undecodable characters in utf-8 (such as {})"
WRONG = "text that another program decoded with a wrong charset (such as {})"
LOST = "\ufffd \ufffd \ufffd \ufffd"
ROW_TEXT = "rows with text behind a closing quote, read without the quotes"
FILES: dict[str, tuple[str, str | bytes, dict[str, str], dict[int, str], dict[str, int]]] = {
    "a file": ("a.txt", TEXT, {}, {0: "one\ntwo\n\nthree"}, {}),
    "paragraphs": ("a.txt", TEXT, {"split": "paragraph"}, {0: "one\ntwo", 1: "three"}, {}),
    "lines": ("a.txt", TEXT, {"split": "line"}, {0: "one", 1: "two", 3: "three"}, {}),
    "empty lines end paragraphs": (
        *("a.txt", "a\u2028b\u2029\nc\r\rd\re", {"split": "paragraph"}, {0: "a\nb", 1: "c", 2: "d\ne"}, {}),
    ),
    "csv": (
        *("a.csv", f'label,text\n1,"two\nlines, ""quoted"""\n0,{LONG}\n1\n', {}),
        *({0: 'two\nlines, "quoted"', 1: LONG}, {"rows cut short": 1}),
    ),
    "json lines": (
        *("a.jsonl", BROKEN, {"field": "body"}, {0: "中文"}),
        {"broken JSON lines": 1, "records without a text 'body'": 2},
    ),
    "json escapes": (
        *("a.jsonl", "\n".join(ESCAPES), {}, dict(enumerate(["a\ufffdb", "😀\0", "c", "d", "f", "g"]))),
        {"lone surrogates": 1, "a key twice in a JSON row, the last one read": 1},
    ),
    "bad bytes": (
        *("a.txt", b"\xef\xbb\xbfgood \xff\xfe bad\0 more text here", {}),
        *({0: "good \ufffd\ufffd bad\0 more text here"}, {BAD.format("good \ufffd\ufffd bad\0 more t"): 2}),
    ),
    "a broken character leaves its line end, also at the end of a run": (
        *("a.txt", (b"a" * 65_536 + b"\xfc6\nb\n") * 2, {"encoding": "gb18030", "split": "line"}),
        dict(enumerate(["a" * 65_536 + "\ufffd6", "b"] * 2)),
        {f"undecodable characters in gb18030 (such as {'a' * 10}\ufffd6)": 2},
    ),
    "a replacement character of the file is no error": (
        *("a.txt", "\ufffd ".encode() + b"\xff \xe4\xb8 \xe4\xb8", {}),
        *({0: LOST}, {WRONG.format(LOST): 1, BAD.format(LOST): 3}),
    ),
    "binary": ("a.txt", bytes(range(256)) * 40, {}, {}, {BINARY: 1}),
    "text behind a closing quote": (
        *("a.csv", 'n,text\n1,"a "b" c"\n2,"a"b\n3,"c"\n', {}),
        *({0: 'a b" c"', 1: "ab", 2: "c"}, {ROW_TEXT: 2}),
    ),
    "a field in quotes on one line shows that quotes are no text": (
        *("a.csv", 'n,text\n"r0","x\n,"\n', {}, {0: "x\n,"}, {}),
    ),
    "a line separator in a tsv": ("b.tsv", "n\ttext\n1\ta\u2028b\n", {}, {0: "a\u2028b"}, {}),
    "marks in text": ("b.txt", "\ufeff\ufeffa\ufeff\n\ufeffb\r\n\ufeffc", {}, {0: "a\ufeff\nb\nc"}, {}),
    "marks in json lines": ("b.jsonl", '\ufeff{"text": "a"}\n' * 3, {}, dict.fromkeys(range(3), "a"), {}),
    "utf-16": ("c.txt", "a\n".encode("utf-16-le"), {"encoding": "utf-16"}, {0: "a"}, {}),
}


@pytest.mark.parametrize("case", FILES)
def test_files(tmp_path: Path, case: str) -> None:
    name, data, config, texts, issues = FILES[case]
    assert read(write(tmp_path / name, data), **config) == ([*texts.items()], issues)


ALL_ENDS = "\n", "\r", "\r\n", "\v", "\f", "\x85", "\u2028", "\u2029"


@pytest.mark.parametrize("encoding", ["utf-8", "gb18030", "utf-16", "iso8859-2"])
@given(st.lists(st.tuples(st.sampled_from(["one", "two words", "", "été"]), st.sampled_from(ALL_ENDS))))
def test_every_end_of_unicode_ends_a_line_of_text(encoding: str, lines: list[tuple[str, str]]) -> None:
    data = "".join(line + end for line, end in lines).encode(encoding, "ignore")
    text = data.decode(encoding)
    expected = [line for line in re.split("\r\n|[\n\r\v\f\x85\u2028\u2029]", text) if line]
    with tempfile.TemporaryDirectory() as folder:
        documents, issues = read(write(Path(folder, "a.txt"), data), encoding=encoding, split="line")
    assert [line for _, line in documents] == expected
    assert issues == ({} if data else {EMPTY: 1})


@pytest.mark.parametrize("end", ["\n", "\r", "\r\n"])
def test_line_ends_of_tables_and_json(tmp_path: Path, end: str) -> None:
    for name, tab in (("a.tsv", "\t"), ("a.csv", ",")):
        file = write(tmp_path / name, end.join([f"n{tab}text", f"1{tab}one", f"2{tab}two", ""]))
        assert read(file) == ([(0, "one"), (1, "two")], Counter())
    texts = ["a\u2028b", "c\x85d\u2029", "e\nf"]
    lines = [json.dumps({"text": text}, ensure_ascii=False) + end for text in texts]
    assert read(write(tmp_path / "a.jsonl", "".join(lines))) == (list(enumerate(texts)), Counter())


def test_damaged_and_packed_parquet(tmp_path: Path) -> None:
    pq.write_table(pa.table({"text": ["a"]}), tmp_path / "a.parquet")
    stored = (tmp_path / "a.parquet").read_bytes()
    with pytest.raises(BrimfulError, match=r"b\.parquet\.gz.* unpack it"):
        read(write(tmp_path / "b.parquet.gz", gzip.compress(stored)))
    issues = {"cannot be read (not a Parquet file, or damaged)": 1}
    assert read(write(tmp_path / "c.parquet", stored[:-9])) == ([], issues)


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl", "a.parquet", "a.arrow"])
def test_a_missing_field_names_the_nearest(tmp_path: Path, name: str) -> None:
    if name in ("a.parquet", "a.arrow"):
        write_table(tmp_path / name, pa.table({"texts": ["a"], "n": [1]}))
        with pytest.raises(BrimfulError, match=r"n.* holds int64, .*--read\.field"):
            read(tmp_path / name, field="n")
    else:
        write(tmp_path / name, "texts,label\nhello,1\n" if name == "a.csv" else '{"texts": "hello"}\n')
    with pytest.raises(BrimfulError, match=r"did you mean 'texts'\? \(set --read\.field"):
        read(tmp_path / name)


def test_huge_lines_paragraphs_and_pages_come_in_pieces(tmp_path: Path) -> None:
    for split, data in (("line", "word " * 2_000_000), ("paragraph", "0123456789\n" * 800_000)):
        documents, issues = read(write(tmp_path / "a.txt", data), split=split)
        joined = ("" if split == "line" else "\n").join(text for _, text in documents)
        assert joined == data.removesuffix("\n")
        assert max(len(text) for _, text in documents) <= 1 << 23
        assert issues == ({"line longer than 4 MB, cut": 1} if split == "line" else {})
    documents, issues = read(write(tmp_path / "a.html", "<p>word</p>\n" * 500_000))
    assert len(documents) == 1
    assert issues == {"page longer than 4 MB, its rest skipped": 1}


def test_unreadable_and_empty_files(tmp_path: Path) -> None:
    (tmp_path / "loop.txt").symlink_to(tmp_path / "loop.txt")
    (tmp_path / "b.parquet").mkdir()
    for name, reason in (
        ("absent.txt", "No such file or directory"),
        ("loop.txt", "Too many levels of symbolic links"),
        ("b.parquet", "Is a directory"),
    ):
        assert read(tmp_path / name) == ([], {f"cannot be read ({reason})": 1})
    for name in ("a.txt", "a.html", "a.csv", "a.tsv", "a.jsonl", "a.arrow"):
        assert read(write(tmp_path / name, b"")) == ([], {} if name == "a.arrow" else {EMPTY: 1})


@pytest.mark.parametrize("name", ["a.txt", "a.txt.gz", "a.html", "a.jsonl", "a.csv"])
def test_a_failure_of_the_machine_is_no_issue_of_the_file(tmp_path: Path, name: str) -> None:
    memory = Path("/proc/self/mem")
    if not memory.exists():
        pytest.skip("needs Linux, where reading /proc/self/mem from its start fails with EIO")
    (tmp_path / name).symlink_to(memory)
    with pytest.raises(BrimfulError, match=f"cannot read .*{name}: .*run again"):
        read(tmp_path / name)


def test_a_failure_within_a_table_is_none_of_the_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.ESTALE, "Stale file handle")

    write_table(tmp_path / "a.parquet", pa.table({"text": ["a"]}))
    monkeypatch.setattr(pq.ParquetFile, "iter_batches", fail)
    with pytest.raises(BrimfulError, match=r"cannot read .*a\.parquet: Stale file handle; run again"):
        read(tmp_path / "a.parquet")


def test_an_overlong_record_is_skipped_once_and_what_follows_is_read(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("brimful.corpus.reading.read.LONGEST_RECORD", 1 << 18)
    long = "long " * 200_000
    for name, data in (
        ("a.jsonl", f'{{"text":"a"}}\n{{"text":"{long}"}}\n{{"text":"b"}}\n'),
        ("a.tsv", f"text\tn\na\t1\n{long}\t2\nb\t3"),
        ("a.csv", f'n,text\n1,a\n2,"{long}"\n3,b\n'),
    ):
        issues = {"line longer than 16 MB, skipped": 1}
        assert read(write(tmp_path / name, data)) == ([(0, "a"), (2, "b")], issues)


def test_a_quote_never_closed_costs_time_linear_in_the_file(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(delimited, "LONGEST_ROW_CHARACTERS", 1 << 14)
    monkeypatch.setattr(delimited, "_SPARE_CHARACTERS", 1 << 16)
    lines = "a line, a line, and a line\n" * 2000
    documents, issues = read(write(tmp_path / "b.csv", f'n,text\n1,a\n2,"{lines}"\n3,b\n'), quote='"')
    assert [text for _, text in documents] == ["a", "b"]
    assert issues == {UNCLOSED: 2, "lines skipped after a quote that is never closed": 1999}
    rows = "".join(f"{n},this is the text of row {n}\n" for n in range(5000))
    documents, issues = read(write(tmp_path / "a.csv", f'n,text\n0,"bad\n{rows}'), quote='"')
    assert documents == [(n + 1, f"this is the text of row {n}") for n in range(5000)]
    assert issues == {UNCLOSED: 1}
    # A quote opens at the end of each line, whether one was open before or not.
    documents, issues = read(write(tmp_path / "c.csv", "n,text\n" + '",x","\n' * 20_000), quote='"')
    assert documents == []
    assert issues.total() == 20_000


@pytest.mark.parametrize(
    ("lines", "texts", "lost"),
    [
        (["1,a", '2,"b', "3,c", "4,d"], ["a", "c", "d"], 1),
        (["1,a", '2,"b'], ["a"], 1),
        (['1,"b', '2,"c"', '3,"d"'], ["c", "d"], 1),
        (['1,"b', '2,"c', '3,"d"', "4,e"], ["d", "e"], 2),
        (['1,"b', '2,"c', 'c, c"', "3,d"], ["c\nc, c", "d"], 1),
        (['"1,b', "2,c", "", "3,d"], ["c", "d"], 1),
        (['3,a "b"', '4,""'], ['a "b"', ""], 0),
    ],
)
def test_a_quote_never_closed_costs_its_line(
    tmp_path: Path, lines: list[str], texts: list[str], lost: int
) -> None:
    file = write(tmp_path / "a.csv", "\n".join(["n,text", *lines]).encode())
    documents, issues = read(file, quote='"')
    assert [text for _, text in documents] == texts
    assert issues == ({UNCLOSED: lost} if lost else {})


def test_byte_order_marks_override_the_encoding(tmp_path: Path) -> None:
    text = "名前\ttext\n1\tनमस्ते\n"
    for codec in ("utf-8-sig", "utf-16", "utf-32"):
        for encoding in ("utf-8", "utf_8_sig", "U8", "gbk", "UTF-16"):
            for name, expected in (("a.tsv", (0, "नमस्ते")), ("a.txt", (0, text[:-1]))):
                file = write(tmp_path / name, text.encode(codec))
                assert read(file, encoding=encoding) == ([expected], Counter())


_json = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text() | st.just("text"), inner, max_size=3)
    ),
    max_leaves=6,
)


@given(st.dictionaries(st.text() | st.just("text"), _json, max_size=4), st.booleans(), st.data())
def test_json_is_read_as_the_standard_library_does(
    record: dict, ascii_only: bool, data: st.DataObject
) -> None:
    line = json.dumps(record, ensure_ascii=ascii_only)
    if data.draw(st.booleans()):
        at = data.draw(st.integers(0, len(line)))
        line = line[:at] + data.draw(st.sampled_from([*'{}[]",:\\u0e-.\x1f', ""])) + line[at + 1 :]
    try:
        value = json.loads(line)
        expected = value.get("text") if isinstance(value, dict) else value
    except ValueError:
        expected = None
    assume(not isinstance(expected, list))
    with tempfile.TemporaryDirectory() as folder:
        found, _ = read(write(Path(folder, "a.jsonl"), b'{"text":""}\n' + line.encode()))
    assert found[1:] == ([(1, expected)] if isinstance(expected, str) else [])


def write_table(file: Path, table: pa.Table) -> None:
    if file.suffix == ".parquet":
        pq.write_table(table, file, row_group_size=4)
    else:
        with pa.ipc.new_stream(str(file), table.schema) as stream:
            stream.write_table(table, max_chunksize=4)


@pytest.mark.parametrize("suffix", ["parquet", "arrow"])
def test_a_column_of_bad_utf8(tmp_path: Path, suffix: str) -> None:
    data = pa.array([b"good", b"bad \xff", "\ufffd".encode()], pa.binary())
    write_table(tmp_path / f"a.{suffix}", pa.table({"text": data.view(pa.string())}))
    documents, issues = read(tmp_path / f"a.{suffix}")
    assert [text for _, text in documents] == ["good", "bad \ufffd", "\ufffd"]
    assert issues == {"undecodable characters": 1}


@pytest.mark.parametrize("field", ["", "a.b", 'q"x', "a\\b", "中文", "type"])
def test_any_name_of_a_field(tmp_path: Path, field: str) -> None:
    file = write(tmp_path / "a.jsonl", json.dumps({"x": 1, field: "v"}).encode())
    assert read(file, field=field) == ([(0, "v")], Counter())


def test_arrow_files(tmp_path: Path) -> None:
    table = pa.table({"text": [f"text {n}" for n in range(5000)], "n": range(5000)})
    expected = [(n, f"text {n}") for n in range(5000)]
    write_table(tmp_path / "a.arrow", table)
    with pa.ipc.new_file(str(tmp_path / "b.arrow"), table.schema) as file:
        file.write_table(table)
    for name in ("a.arrow", "b.arrow"):
        assert read(tmp_path / name) == (expected, Counter())
    stored = (tmp_path / "a.arrow").read_bytes()
    documents, issues = read(write(tmp_path / "d.arrow", stored[: len(stored) // 2]))
    assert 1000 < len(documents) < 5000
    assert documents == expected[: len(documents)]
    assert issues["has no end mark, perhaps cut short"] == 1
    _, issues = read(write(tmp_path / "e.arrow", b"no table at all" * 9))
    assert issues["cannot be read (not an Arrow file, or damaged)"] == 1


@pytest.mark.parametrize("suffix", ["parquet", "arrow"])
def test_damaged_names_of_columns(tmp_path: Path, suffix: str) -> None:
    file = tmp_path / f"a.{suffix}"
    write_table(file, pa.table({"body": ["a", "b"]}))
    write(file, file.read_bytes().replace(b"body", b"bo\xe4y"))
    divide(Input(path=str(file), bytes=1, modified_ns=0), ReadConfig(), 1)
    assert read(file)[1] == {"cannot be read (damaged in the names of its columns)": 1}


def test_a_damaged_row_group_costs_no_other(tmp_path: Path) -> None:
    file = tmp_path / "a.parquet"
    texts = [f"{n * 7919 % 10007}" * 30 for n in range(3000)]
    pq.write_table(pa.table({"text": texts}), file, row_group_size=1000, compression="zstd")
    column = pq.read_metadata(file).row_group(1).column(0)
    begin, size = column.dictionary_page_offset, column.total_compressed_size
    data = file.read_bytes()
    data = data[:begin] + b"\xff" * size + data[begin + size :]
    documents, issues = read(write(file, data))
    assert documents == [(n, text) for n, text in enumerate(texts) if not 1000 <= n < 2000]
    assert issues == {"rows damaged, the rest of their group lost": 1}


LINES = "".join(f"line {n} 中文 {n * 7919 % 1009}\n" for n in range(300)).encode()


def _archives() -> Iterator[tuple[str, bytes, set[int]]]:
    """(suffix, archive, the lengths at which it ends between two members)."""
    parts = [LINES[:1000], LINES[1000:1000], LINES[1000:]]
    makers: list[tuple[str, Callable[[bytes], bytes]]] = [("gz", gzip.compress)]
    for settings in ({}, {"write_checksum": True}, {"write_content_size": False, "level": 19}):
        makers.append(("zst", zstandard.ZstdCompressor(**settings).compress))
    for suffix, compress in makers:
        yield suffix, compress(LINES), set()
        members = [compress(part) for part in parts]
        yield suffix, b"".join(members), set(itertools.accumulate(map(len, members[:-1])))


@pytest.mark.parametrize(("suffix", "packed", "ends"), list(_archives()))
@given(st.data())
def test_archives_cut_anywhere(suffix: str, packed: bytes, ends: set[int], data: st.DataObject) -> None:
    length = data.draw(st.integers(0, len(packed)) | st.integers(len(packed) - 8, len(packed)))
    with tempfile.TemporaryDirectory() as folder:
        documents, issues = read(write(Path(folder, f"a.txt.{suffix}"), packed[:length]))
    assert issues["archive cut short"] == (length != len(packed) and length not in ends)
    text = documents[0][1] if documents else ""
    readable = text.rstrip("\ufffd")  # the cut may lie within a character
    assert LINES.decode().startswith(readable)
    if length == len(packed):
        assert text == LINES.decode()[:-1]


@pytest.mark.parametrize("suffix", ["gz", "zst"])
@pytest.mark.parametrize("garbage", [b"garbage", b"<html>" * 99999])
def test_garbage_after_an_archive(tmp_path: Path, suffix: str, garbage: bytes) -> None:
    packed = PACKERS[suffix](LINES)
    documents, issues = read(write(tmp_path / f"a.txt.{suffix}", packed + garbage))
    assert documents == [(0, LINES.decode()[:-1])]
    assert issues == {"archive damaged, its rest lost": 1}
    assert read(write(tmp_path / f"b.txt.{suffix}", packed + bytes(512)))[1] == Counter()


@pytest.mark.parametrize("suffix", ["gz", "zst"])
def test_empty_archives(tmp_path: Path, suffix: str) -> None:
    assert read(write(tmp_path / f"a.txt.{suffix}", PACKERS[suffix](b""))) == ([], {EMPTY: 1})
    assert read(write(tmp_path / f"a.txt.{suffix}", bytes(99)))[1] == {"archive damaged, its rest lost": 1}
