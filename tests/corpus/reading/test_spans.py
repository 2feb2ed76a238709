"""Spans of a file together yield what the whole file yields."""

import json
import tempfile
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from brimful.corpus.reading import lines, read, spans
from brimful.corpus.reading.input_files import Input
from brimful.corpus.reading.inputs import Span
from brimful.corpus.reading.lines import BINARY
from brimful.corpus.reading.nonsense import WRONGLY_DECODED, kind_of_issue
from brimful.corpus.reading.read import ReadConfig, read_documents
from brimful.corpus.reading.spans import divide


def texts_of(path: Path, cuts: list[int], config: ReadConfig) -> tuple[list[str], Counter[str]]:
    issues: Counter[str] = Counter()
    texts = []
    for begin, end in zip([0, *cuts], [*cuts, None], strict=True):
        span = Span(path=str(path), begin=begin, end=end)
        texts += [text for _, text in read_documents(span, config, issues)]
    # The first example of an issue is one of its run, which a division may begin elsewhere.
    kinds: Counter[str] = Counter()
    for issue, number in issues.items():
        # A sample is taken of each run, so its count depends on where runs begin.
        if kind_of_issue(issue) != WRONGLY_DECODED:
            kinds[kind_of_issue(issue)] += number
    return texts, kinds


def state_of(path: Path) -> Input:
    return Input(path=str(path), bytes=path.stat().st_size, modified_ns=0)


# Small runs and pieces, so that short files have several; the rules are those of long files.
@pytest.fixture(params=[(8, 16, 64), (1 << 16, 1 << 22, 1 << 24)], ids=["small", "real"], scope="module")
def _sizes(request: pytest.FixtureRequest):
    with pytest.MonkeyPatch.context() as patch:
        run, piece, record = request.param
        patch.setattr(read, "RUN_BYTES", run)
        patch.setattr(lines, "CHUNK", run * 2)
        patch.setattr(lines, "HEAD_BYTES", run)
        patch.setattr(read, "LONGEST_PIECE", piece)
        patch.setattr(spans, "LONGEST_PIECE", piece)
        patch.setattr(read, "LONGEST_RECORD", record)
        yield


WORDS = st.sampled_from([
    *("a", "some words", "中文", "é", "😀", " ", "\t", "\r", "\u2028", "\u2029", "\ufeff", "\ufffd", '"'),
    "x" * 40,
])  # fmt: skip
ENDS = st.sampled_from([
    *("\n", "\n", "\r\n", "\n\n", "\n\r\n", "\n \n", "\n\n\n\n", "\r", "\r\r", "\r\r\n", "\n\r"),
    *("\x85", "\v\f"),
])  # fmt: skip
TEXT = st.lists(st.tuples(st.lists(WORDS, max_size=4).map("".join), ENDS).map("".join), max_size=25).map(
    "".join
)
CUTS = st.lists(st.integers(1, 400), max_size=6) | st.just(list(range(1, 400)))


def as_jsonl(text: str) -> str:
    records = ['{"text": ""}']
    for line in text.split("\n"):
        records.append(json.dumps({"text": line}, ensure_ascii=False) if line.strip() else line)
    return "\n".join([*records, ""])


def as_tsv(text: str) -> str:
    # The first row has as many columns as the header, since a table in which no row has is refused.
    rows = [f"1\t{line}\n" if line else "\n" for line in text.split("\n")]
    return "\ufeffn\ttext\r\n1\tfirst\n" + "".join(rows)


@pytest.mark.cases(8)
@pytest.mark.usefixtures("_sizes")
@pytest.mark.parametrize("encoding", ["utf-8", "gb18030", "big5", "utf-16"])
@pytest.mark.parametrize("kind", ["file", "paragraph", "line", "jsonl", "tsv"])
@given(
    text=TEXT,
    ended=st.booleans(),
    noise=st.sampled_from([b"", b"\xff", b"\x81\n", b"\xe4\xb8"]),
    cuts=CUTS,
    quote=st.sampled_from(["none", '"']),
)
def test_spans_lose_and_double_nothing(
    kind: str, encoding: str, text: str, ended: bool, noise: bytes, cuts: list[int], quote: str
) -> None:
    if kind in ("jsonl", "tsv"):
        # Quotes may be in doubt, and such files are refused.
        config = ReadConfig(encoding=encoding, split="file", quote=quote if '"' in text else "")
        text = as_jsonl(text) if kind == "jsonl" else as_tsv(text)
    else:
        config = ReadConfig(encoding=encoding, split=kind)
    data = text.encode(encoding, errors="ignore")
    if not ended:
        data = data.removesuffix(b"\n").removesuffix(b"\r")
    middle = len(data) // 2
    data = data[:middle] + noise + data[middle:] if config.split != "file" else data + noise
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, {"jsonl": "a.jsonl", "tsv": "a.tsv"}.get(kind, "a.txt"))
        path.write_bytes(data)
        whole = texts_of(path, [], config)
        assert texts_of(path, sorted(cuts), config) == whole
        for size in (1, 50):
            planned = divide(state_of(path), config, size)
            assert texts_of(path, [span.begin for span in planned[1:]], config) == whole


def test_what_is_divided(tmp_path: Path) -> None:
    def number(name: str, size: int = 10, **config) -> int:
        path = tmp_path / name
        path.write_bytes(b"text\n" * 100)
        planned = divide(state_of(path), ReadConfig(**config), size)
        assert planned[0].begin == 0
        assert planned[-1].end is None
        return len(planned)

    for name in ("a.jsonl", "a.tsv"):
        assert number(name) == 50
    for split, expected in (("line", 50), ("paragraph", 50), ("file", 1)):
        assert number("a.txt", split=split) == expected
    for encoding in ("GB18030", "latin-1", "utf_8_sig", "windows-1252", "Shift_JIS", "koi8_r", "euc_kr"):
        assert number("a.jsonl", encoding=encoding) == 50
    for encoding in ("utf-16", "utf_32_le", "utf-7", "iso2022_jp", "hz", "cp500"):
        assert number("a.jsonl", encoding=encoding) == 1
    for name in ("a.csv", "a.html", "a.arrow", "a.jsonl.gz", "a.txt.zst", "a.parquet"):
        assert number(name, split="line") == 1
    (tmp_path / "b.txt").touch()
    assert divide(state_of(tmp_path / "b.txt"), ReadConfig(), 10) == [Span(path=str(tmp_path / "b.txt"))]


def test_a_file_that_cannot_be_divided_after_all_is_read_once(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes("one\ntwo\nthree\n".encode("utf-16"))  # planned as utf-8: only its mark tells
    assert texts_of(path, [3, 9, 20], ReadConfig(split="line"))[0] == ["one", "two", "three"]
    path.write_bytes(b"\x7fELF" + bytes(100))
    assert texts_of(path, [3, 9], ReadConfig(split="line")) == ([], {BINARY: 1})


def test_parquet_is_divided_by_row_groups(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    table = pa.table({"text": [f"text {n}" * 10 for n in range(100)], "n": range(100)})
    pq.write_table(table, path, row_group_size=7)
    config = ReadConfig()
    whole, issues = texts_of(path, [], config)
    assert whole == table["text"].to_pylist()
    for size in (1, 2000, 1 << 30):
        planned = divide(state_of(path), config, size)
        assert texts_of(path, [span.begin for span in planned[1:]], config) == (whole, issues)
    assert len(divide(state_of(path), config, 1)) == 15
    assert len(divide(state_of(path), config, 1 << 30)) == 1
    path.write_bytes(path.read_bytes()[:-9])
    assert divide(state_of(path), config, 1) == [Span(path=str(path))]
