"""Delimited files as other programs write them, against the csv module with the writer's own dialect."""

import csv
import io
import json
import tempfile
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from brimful.corpus.reading.inputs import Span
from brimful.corpus.reading.read import ReadConfig, read_documents

WORDS = ["the", "room", "很好", "it's", '"good"', '5"', "a;b", "x,y", "tab\there", "line\nbreak", "1,000"]
WORDS += ["C:\\dir", "|", "=1+1", '"', "ok.", "—", "\\", "'quoted'"]
TEXTS = st.lists(st.sampled_from(WORDS), min_size=1, max_size=8).map(" ".join)


def read(path: Path, data: str | bytes, **config: str) -> tuple[list[str], Counter[str]]:
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    issues: Counter[str] = Counter()
    texts = [text for _, text in read_documents(Span(path=str(path)), ReadConfig(**config), issues)]
    return texts, issues


@pytest.mark.cases(40)
@pytest.mark.parametrize("suffix", [".csv", ".tsv"])
@given(
    texts=st.lists(TEXTS, min_size=3, max_size=20),
    delimiter=st.sampled_from(",;\t|"),
    quotechar=st.sampled_from('""\''),
    doublequote=st.booleans(),
    escaped=st.booleans(),
    quoting=st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL, csv.QUOTE_NONNUMERIC, csv.QUOTE_NONE]),
    lineterminator=st.sampled_from(["\n", "\r\n"]),
    text_first=st.booleans(),
)
def test_every_dialect_that_the_csv_module_writes(
    suffix: str,
    texts: list[str],
    delimiter: str,
    quotechar: str,
    doublequote: bool,
    escaped: bool,
    quoting: int,
    lineterminator: str,
    text_first: bool,
) -> None:
    """What is written is read, or a warning says which other reading was taken."""
    if quotechar == "'":  # who quotes with apostrophes has no texts that begin and end in the usual quotes
        texts = [text.replace('"', "") or "a" for text in texts]
    needs_escape = escaped or not doublequote or quoting == csv.QUOTE_NONE
    out = io.StringIO()
    writer = csv.writer(
        out,
        delimiter=delimiter,
        quotechar=quotechar,
        doublequote=doublequote,
        escapechar="\\" if needs_escape else None,
        quoting=quoting,
        lineterminator=lineterminator,
    )
    writer.writerow(["text", "n"] if text_first else ["n", "text"])
    writer.writerows((text, number) if text_first else (number, text) for number, text in enumerate(texts))
    with tempfile.TemporaryDirectory() as folder:
        found, issues = read(Path(folder, f"a{suffix}"), out.getvalue())
    notes = [issue for issue in issues if "between its columns" not in issue]
    assert found == texts or notes


@pytest.mark.parametrize("suffix", [".csv", ".tsv"])
@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ('n;text\n1;"a ""b"" c"\n2;d\n', ['a "b" c', "d"]),
        ('"n"|"text"\n"1"|"a, b"\n"2"|"c"\n', ["a, b", "c"]),
        ("'n','text'\n'1','it''s, here'\n'2','x'\n", ["it's, here", "x"]),
        ('n,text\n1,"he said \\"hi\\", and left"\n2,"x"\n', ['he said "hi", and left', "x"]),
        ('n,text\n1,"a ""b"" c"\n2,"d\\"\n', ['a "b" c', "d\\"]),
        ('sep=;\nn;text\n1;"a;b"\n', ["a;b"]),
        ('"sep=|"\nn|text\n1|a\n', ["a"]),
        ("n\ttext\n1\ta\\tb\\nc\\\\d\n2\t\\N\n3\tb\n", ["a\tb\nc\\d", "b"]),
        ("n\ttext\n1\ta\\\tb\\\nc\n2\t\\N\n3\tb\n", ["a\tb\nc", "b"]),
        ('"text"\t"n"\n"1"\t"a"\t5\n"2"\t"b"\t6\n"3"\t"c"\t7\n', ["a", "b", "c"]),
        ("text,n,\na,1,\nb,2,\n", ["a", "b"]),
    ],
)
def test_files_of_other_programs(suffix: str, written: str, expected: list[str], tmp_path: Path) -> None:
    assert read(tmp_path / f"a{suffix}", written)[0] == expected


def test_a_column_alone_may_hold_commas(tmp_path: Path) -> None:
    found, issues = read(tmp_path / "a.csv", 'text\nHello, world\n"a ""b"", c"\nd\n')
    assert (found, issues) == (["Hello, world", 'a "b", c', "d"], {})


def test_columns_have_numbers_where_no_header_names_them(tmp_path: Path) -> None:
    rows = "one long string\t0\nanother , one\t1\nthird\t1\n"
    assert read(tmp_path / "a.tsv", rows, field="1") == (["one long string", "another , one", "third"], {})
    assert read(tmp_path / "a.tsv", "0\t1\nx\ty\n", field="1") == (["y"], {})


RAW = 'n\ttext\n1\t"Good" he said\n2\tthe 5" disk\n3\t"never closed\n4\t"All of it"\n'


def test_quotes_that_are_text_in_a_tsv_stay(tmp_path: Path) -> None:
    found, issues = read(tmp_path / "a.tsv", RAW)
    assert found == ['"Good" he said', 'the 5" disk', '"never closed', '"All of it"']
    assert not issues


def test_two_readings_of_a_tsv_are_said(tmp_path: Path) -> None:
    rows = "".join(f"{n}\tplain {n}\n" for n in range(9))
    found, issues = read(tmp_path / "a.tsv", f'n\ttext\n{rows}9\t"All of it"\n')
    assert found[-1] == '"All of it"'
    assert any("1 fields of it stand in quotes, such as '\"All of it\"'" in issue for issue in issues)
    found, issues = read(tmp_path / "a.csv", f'n\ttext\n{rows}9\t"All of it"\n')
    assert found[-1] == "All of it"


def test_rows_of_another_width_are_counted(tmp_path: Path) -> None:
    found, issues = read(tmp_path / "a.csv", "n,text\n1,a\n2,b,c\n3\n4,d\n")
    assert found == ["a", "b", "d"]
    assert issues == {"rows longer than the header": 1, "rows cut short": 1}
    found, issues = read(tmp_path / "a.csv", "text,n\na\nb,1\nc,2\n")
    assert (found, issues) == (["a", "b", "c"], {"rows cut short": 1})


def test_escapes_that_only_a_missing_value_shows_are_said(tmp_path: Path) -> None:
    found, issues = read(tmp_path / "a.csv", 'n,text\n1,\\N\n2,"C:\\new, x"\n')
    assert found == ["C:new, x"]
    assert any("are read as escapes" in issue for issue in issues)
    assert read(tmp_path / "a.tsv", "n\ttext\n1\t\\N\n2\ta\\tb\n")[1] == {"records without a text 'text'": 1}


def test_a_column_twice_is_said(tmp_path: Path) -> None:
    found, issues = read(tmp_path / "a.csv", "text,n,text\na,1,b\nc,2,d\n")
    assert (found, issues) == (["a", "c"], {"has 2 columns 'text', the first of which is read": 1})
    out = pa.BufferOutputStream()
    pq.write_table(pa.table([["a", "c"], ["b", "d"]], names=["text", "text"]), out)
    assert read(tmp_path / "a.parquet", out.getvalue().to_pybytes()) == (found, issues)


def test_json_in_a_cell_keeps_its_backslashes(tmp_path: Path):
    text = json.dumps(['a "b"', "c"])
    out = io.StringIO()
    csv.writer(out).writerows([["text", "n"], [text, 1], ["d", 2]])
    found, issues = read(tmp_path / "a.csv", out.getvalue())
    assert found == [text, "d"]
    assert any("backslashes" in issue for issue in issues)
