"""Delimited files as other programs write them, against the csv module with the writer's own dialect."""

import contextlib
import csv
import io
import subprocess
import tempfile
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from brimful.base.errors import BrimfulError
from brimful.corpus.reading.inputs import Span
from brimful.corpus.reading.read import ReadConfig, read_documents
from brimful.tables.table_files import read_table
from builders.reading import read, write

WORDS = ["the", "room", "很好", "it's", '"good"', '5"', "a;b", "x,y", "tab\there", "line\nbreak", "1,000"]
WORDS += ["C:\\dir", "|", "=1+1", '"', "ok.", "—", "\\", "'quoted'"]
TEXTS = st.lists(st.sampled_from(WORDS), min_size=1, max_size=8).map(" ".join)


@pytest.mark.parametrize("suffix", [".csv", ".tsv"])
@given(
    texts=st.lists(TEXTS, min_size=3, max_size=20),
    delimiter=st.sampled_from(",;\t|"),
    quoting=st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL, csv.QUOTE_NONNUMERIC]),
    lineterminator=st.sampled_from(["\n", "\r\n"]),
    text_first=st.booleans(),
    says=st.booleans(),
)
def test_what_the_csv_module_writes(
    suffix: str,
    texts: list[str],
    delimiter: str,
    quoting: int,
    lineterminator: str,
    text_first: bool,
    says: bool,
) -> None:
    """It is read, or refused with an option, with which it is read."""
    out = io.StringIO()
    writer = csv.writer(out, delimiter=delimiter, quoting=quoting, lineterminator=lineterminator)
    writer.writerow(["text", "n"] if text_first else ["n", "text"])
    writer.writerows((text, number) if text_first else (number, text) for number, text in enumerate(texts))
    options = {"delimiter": "tab" if delimiter == "\t" else delimiter, "quote": '"'} if says else {}
    refusal = ""
    with tempfile.TemporaryDirectory() as folder:
        try:
            assert read(Path(folder, f"a{suffix}"), out.getvalue(), **options) == (texts, {})
        except BrimfulError as error:
            refusal = str(error)
    assert not refusal or (not says and "--read." in refusal)


@pytest.mark.parametrize("suffix", [".csv", ".tsv"])
@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ('"n"|"text"\n"1"|"a, b"\n"2"|"c"\n', ["a, b", "c"]),
        ('n,text\n1,"a ""b"" c"\n2,"d\\"\n', ['a "b" c', "d\\"]),
        ('sep=;\nn;text\n1;"a;b"\n', ["a;b"]),
        ('"sep=|"\nn|text\n1|a\n', ["a"]),
        ("text;n, of rows\na, b;1\nc;2\n", ["a, b", "c"]),
        ("n\ttext\n1\t\\N\n2\ta\n", ["a"]),
        ("n\ttext\n1\ta\\tb\n", ["a\\tb"]),
        ("text,n,\na,1,\nb,2,\n", ["a", "b"]),
    ],
)
def test_files_of_other_programs(suffix: str, written: str, expected: list[str], tmp_path: Path) -> None:
    assert read(tmp_path / f"a{suffix}", written)[0] == expected


@pytest.mark.parametrize(
    ("written", "message", "options", "expected"),
    [
        ("'n','text'\n'1','it''s, here'\n", "read.quote", {"quote": "'"}, ["it's, here"]),
        ('n,text\n1,"Good" he said\n', "may be text", {"quote": "none"}, ['"Good" he said']),
        ('n,text\n1,"never closed\n2,a\n', "may be text", {"quote": '"'}, ["a"]),
        ('n, text\n1, "a"\n', "may be text", {"quote": "none"}, [' "a"']),
        ('n, text\n1, "Hello, world"\n', "may be text", {"quote": '"'}, ["Hello, world"]),
        ("text;b,text\nx;y,z\n", "divided at ',' or ';'", {"delimiter": ";"}, ["x"]),
        ("n:text\n1:a, b\n", "read.delimiter", {"delimiter": ":"}, ["a, b"]),
        ("my text\nHello, there\n", "did you mean 'my text'", {"field": "my text"}, ["Hello, there"]),
        ('"text"\t"n"\n"1"\t"a"\t5\n"2"\t"b"\t6\n', "2 columns in its header and 3", {}, []),
        ("text,n\na,1,\nb,2,\n", "2 columns in its header and 3", {}, []),
        ("text,n\nx\\ty,\\N\n", "read.quote", {"quote": "none"}, ["x\\ty"]),
    ],
)
def test_what_is_in_doubt_is_refused_with_the_option(
    written: str, message: str, options: dict[str, str], expected: list[str], tmp_path: Path
) -> None:
    with pytest.raises(BrimfulError, match=message):
        read(tmp_path / "a.csv", written)
    if options:
        assert read(tmp_path / "a.csv", written, **options)[0] == expected


@pytest.mark.parametrize(
    "options", [{"delimiter": "::"}, {"delimiter": "\n"}, {"quote": "''"}, {"delimiter": '"', "quote": '"'}]
)
def test_options_that_divide_nothing_are_refused(options: dict[str, str]) -> None:
    with pytest.raises(BrimfulError, match="read"):
        ReadConfig(**options)


@given(
    data=st.text(st.sampled_from('ab1",;|\t\n\r \\N'), max_size=40),
    suffix=st.sampled_from([".csv", ".tsv", ".txt"]),
    options=st.sampled_from([{}, {"quote": '"'}, {"quote": "none"}, {"delimiter": ";"}]),
    field=st.sampled_from(["a", "1", "2"]),
)
def test_any_file_is_read_or_refused(data: str, suffix: str, options: dict[str, str], field: str) -> None:
    with tempfile.TemporaryDirectory() as folder, contextlib.suppress(BrimfulError):
        found, _ = read(Path(folder, f"a{suffix}"), data, field=field, **options)
        assert all(isinstance(text, str) for text in found)


RAW = 'n\ttext\n1\t"Good" he said\n2\tthe 5" disk\n3\t"never closed\n4\t"All of it"\n'
SHORT, LONG = {"rows cut short": 1}, {"rows longer than the header": 1}
NUMBERED = "one long string\t0\nanother , one\t1\nthird\t1\n"


@pytest.mark.parametrize(
    ("name", "data", "options", "texts", "issues"),
    [
        ("a.csv", 'text\nHello, world\n"a ""b"", c"\nd\n', {}, ["Hello, world", 'a "b", c', "d"], {}),
        ("a.tsv", NUMBERED, {"field": "1"}, ["one long string", "another , one", "third"], {}),
        ("a.tsv", "0\t1\nx\ty\n", {"field": "1"}, ["y"], {}),
        ("a.tsv", RAW, {}, ['"Good" he said', 'the 5" disk', '"never closed', '"All of it"'], {}),
        ("a.csv", "n,text\n1,a\n2,b,c\n3\n4,d\n", {}, ["a", "b", "d"], LONG | SHORT),
        ("a.csv", "text,n\na\nb,1\nc,2\n", {}, ["a", "b", "c"], SHORT),
    ],
)
def test_columns_and_quotes(
    name: str, data: str, options: dict, texts: list[str], issues: dict, tmp_path: Path
) -> None:
    assert read(tmp_path / name, data, **options) == (texts, issues)


def test_escaped_quotes_are_refused_with_a_converter(tmp_path: Path) -> None:
    written = 'n;text\n1;"he said \\"hi\\"; 很好"\n2;"x"\n'
    with pytest.raises(BrimfulError, match="backslashes before quotes") as error:
        read(tmp_path / "an a.csv", written)
    subprocess.run(str(error.value).partition("its encoding): ")[2], shell=True, check=True)
    converted = (tmp_path / "an a.csv.csv").read_bytes()
    assert read(tmp_path / "b.csv", converted)[0] == ['he said "hi"; 很好', "x"]


@pytest.mark.parametrize("text", ['"All of it"', '"He said\n9\tno"'])
def test_quotes_of_a_tsv_that_may_be_either_are_asked_for(text: str, tmp_path: Path) -> None:
    rows = "".join(f"{n}\tplain {n}\n" for n in range(9))
    path = write(tmp_path / "a.tsv", f"n\ttext\n{rows}9\t{text}\n")
    with pytest.raises(BrimfulError, match=r"may be text, such as .*: --read\.quote none keeps them"):
        read(path)
    assert read(path, quote="none")[0][9].startswith('"')
    assert read(path, quote='"')[0][9] == text.strip('"')


def test_a_quote_that_begins_a_field_late_in_a_tsv_is_said(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    path.write_text("n\ttext\n" + "1\tthe text of a row\n" * 20_000 + '2\t"Go," she said\n')
    found, issues = read(path, path.read_text())
    assert found[-1] == '"Go," she said'
    assert [*issues.values()] == [1]
    cut = path.stat().st_size // 2
    parts: Counter[str] = Counter()
    for span in (Span(path=str(path), begin=0, end=cut), Span(path=str(path), begin=cut)):
        list(read_documents(span, ReadConfig(), parts))
    assert parts == issues
    with pytest.raises(BrimfulError, match="line 20002 is the first with a field that begins with a quote"):
        read_table(path, labelled=False)
    found, issues = read(path, "n\ttext\n" + "1\tthe text of a row\n" * 20_000 + '2\t"Go, she said\n')
    assert (found[-1], issues) == ('"Go, she said', {})


def test_a_column_twice_is_said(tmp_path: Path) -> None:
    found, issues = read(tmp_path / "a.csv", "text,n,text\na,1,b\nc,2,d\n")
    assert (found, issues) == (["a", "c"], {"has 2 columns 'text', the first of which is read": 1})
    out = pa.BufferOutputStream()
    pq.write_table(pa.table([["a", "c"], ["b", "d"]], names=["text", "text"]), out)
    assert read(tmp_path / "a.parquet", out.getvalue().to_pybytes()) == (found, issues)
