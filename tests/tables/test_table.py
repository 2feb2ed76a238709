"""Tables as users have them: formats, byte order marks, quotes, and what is told of a wrong one."""

import gzip
import json
import re
import zipfile
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from brimful.base.console import record_warnings
from brimful.base.errors import BrimfulError
from brimful.corpus.reading.dialects import DialectOptions
from brimful.tables.layouts import Columns, FileLayout
from brimful.tables.table import Table
from brimful.tables.table_files import read_table, read_texts
from brimful.tables.tagged_files import read_tagged
from brimful.tables.text_files import files_of_table
from brimful.tasks.cached_tables import TaskFiles
from brimful.tasks.classification import Classification, list_label_names
from brimful.tasks.encoded_tables import encode
from brimful.tasks.registry import find_task
from builders.encoders import pair_template, word_tokenizer
from builders.tables import write_rows


def write(path: Path, data: str | bytes) -> Path:
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return path


def refused(path: Path, *, labelled: bool = True) -> str:
    with pytest.raises(BrimfulError) as error:
        read_table(path, labelled=labelled)
    text = str(error.value)
    assert path.name in text
    assert "\n" not in text
    return text


ROW = '{"text": "a", "label": 1}\n'
ROWS = [("好的 text", "1"), ('"quoted" text', "0"), ("a 'b' \\ c", "1")]
FILES = {
    "a.tsv": "text\tlabel\n" + "".join(f"{text}\t{label}\n" for text, label in ROWS),
    "b.csv": 'text,label\n好的 text,1\n"""quoted"" text",0\n"a \'b\' \\ c",1\n',
    "c.jsonl": "".join(json.dumps({"label": int(label), "text": text}) + "\n" for text, label in ROWS),
}


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("line_end", [b"\n", b"\r\n", b"\n\n", b"\r\n\r\n"])
def test_formats(name: str, mark: bytes, line_end: bytes, tmp_path: Path) -> None:
    data = mark + FILES[name].encode().replace(b"\n", line_end)
    for whole in (data, data.rstrip(b"\r\n")):
        table = read_table(write(tmp_path / name, whole), labelled=True)
        assert table.texts == [text for text, _ in ROWS]
        assert table.labels == [label for _, label in ROWS]
        assert table.second is None
        assert len(table) == 3


@pytest.mark.parametrize(
    ("name", "data", "needle"),
    [
        ("a.tsv", "txt\tlabel\na\tb\n", "'text' (line 2): did you mean 'txt'?"),
        ("a.jsonl", '{"text": "a", "label": 1}\n{"text": "b", "Label": 1}\n', "did you mean 'Label'?"),
        ("a.tsv", "text\tlabel\na\t1\nb\t\n", "line 3: the label"),
        ("a.jsonl", '{"text": "a", "label": NaN}\n', "line 1: the label"),
        ("a.jsonl", '{"text": null, "label": 1}\n', "line 1: the text"),
        ("a.tsv", "text\tlabel\na\t1\nb\n", "line 3 has 1 field, the header 2"),
        ("a.csv", 'text,label\na,1\n"b,0\nc,1\nd,0\n', "quotes that may be text"),
        ("a.jsonl", '{"text": ["a", "b"], "label": 1}\n', "line 1: 'text' is ['a', 'b']"),
        ("a.jsonl", '{"text": "a", "label": ["x", "y"]}\n', "--task multi-label"),
        ("a.tsv", "text\tlabel\tlabel\na\t1\t2\n", "2 columns 'label'"),
        ("a.jsonl", '{"text": "a", "label": 1}\n\n{"text": \n', "line 3"),
        ("a.jsonl", "[1, 2]\n", "--columns.text"),
        ("a.tsv", "", "no rows"),
        ("a.jsonl", "\n\n", "no rows"),
        ("a.parquet", "", "not a Parquet file"),
        ("a.xlsx", "", ".tsv, .csv, .jsonl, .parquet"),
        ("a.jsonl", '{"text": "a", "text_b": "b", "label": 1}\n\n' + ROW, "line 3 has no text_b"),
        ("a.jsonl", ROW + '{"text": "a", "text_b": "b", "label": 1}\n', "line 1 has no text_b"),
    ],
)
def test_wrong_tables(name: str, data: str, needle: str, tmp_path: Path) -> None:
    assert needle in refused(write(tmp_path / name, data))


def test_unreadable_tables(tmp_path: Path) -> None:
    assert "cannot read" in refused(tmp_path / "absent.tsv")
    (tmp_path / "folder.csv").mkdir()
    assert "cannot read" in refused(tmp_path / "folder.csv")
    refused(write(tmp_path / "a.csv", b'text,label\n\x00\xff,1\na\rb,2\n"c,3'))


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("a.tsv", "text\tlabel\nok\t1\n很好\t1\n好\t0\n"),
        ("a.csv", "text,label\nok,1\n很好,1\n好,0\n"),
        ("a.jsonl", '{"text": "a"}\n\n{"text": "很好"}\n{"text": "好"}\n'),
        ("a.txt", "a\n\n很好\n好\n"),
        ("a.conll", "Ann B-PER\n\n很 O\n好 O\n"),
    ],
)
@pytest.mark.parametrize("encoding", ["utf-16", "gb18030", "euc-jp"])
def test_other_encodings_are_read(
    name: str, data: str, encoding: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """By their marks; without one, with a warning."""
    data = data.replace("好", "好天氣和他們的國家" if encoding == "gb18030" else "日本語の文字です好")
    (tmp_path / "other").mkdir()
    plain, written = write(tmp_path / name, data), write(tmp_path / "other" / name, data.encode(encoding))
    read = partial(read_tagged, labelled=True) if name == "a.conll" else read_texts
    assert read(written).texts == read(plain).texts
    warning = f"{written}: read as {encoding}, as its bytes say"
    assert (warning in capfd.readouterr().err) == (encoding != "utf-16")


@pytest.mark.parametrize("text", ["“wow” it’s", "café £5", "x’" * 40_000])
def test_single_bytes_of_windows_1252_are_read(text: str, tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", f'text,label\nplain,x\n"{text}",y\n'.encode("cp1252"))
    with record_warnings() as said:
        assert read_table(path, labelled=True).texts == ["plain", text]
    assert [line for line in said if "a.csv: read as windows-1252" in line] == said != []


@pytest.mark.parametrize("data", ["很".encode("gb18030"), "créé".encode("cp1252"), b"a\x81b"])
def test_few_bytes_of_other_encodings_are_refused(data: bytes, tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", b"a\n\n%b\na\n" % data)
    remedy = r"iconv -f WINDOWS-1252 -t UTF-8 \((.*)\) or iconv -f GB18030 -t UTF-8 \((.*)\)$"
    with pytest.raises(BrimfulError, match=rf"a.txt is not UTF-8 in 1 line \(3\): .*{remedy}") as error:
        read_texts(path)
    shown = re.search(remedy, str(error.value))
    assert shown
    assert shown.groups() == (repr(data.decode("cp1252", "replace")), repr(data.decode("gb18030", "replace")))


@pytest.mark.parametrize(
    ("data", "needle"),
    [
        ("text\nthe room was clean\n".encode("utf-16-le") * 9, "is no text: .* iconv -f UTF-16LE"),
        ("text\nthe room was clean\n".encode("utf-16-be") * 9, "is no text: .* iconv -f UTF-16LE"),
        ("text\naé\n好𝄞 \0\nb\n".encode(), "line 3 has a NUL byte"),
        ("text\n\0aé\n".encode(), "line 2 has a NUL byte"),
    ],
)
@pytest.mark.parametrize("name", ["a.tsv", "a.csv", "a.txt"])
def test_what_is_no_text_is_refused(name: str, data: bytes, needle: str, tmp_path: Path) -> None:
    with pytest.raises(BrimfulError, match=f"{name}.*{needle}"):
        read_texts(write(tmp_path / name, data))


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("a.tsv", "text\tother\tother\na\tb\tc\n"),  # nobody reads these columns
        ("A.TSV", "text\tlabel\na\t\n"),
        ("a.jsonl", '{"text": "a", "label": ["x"], "more": []}\n'),
    ],
)
def test_labels_are_optional_where_nobody_asks(name: str, data: str, tmp_path: Path) -> None:
    table = read_table(write(tmp_path / name, data), labelled=False)
    assert (table.texts, table.second, table.labels) == (["a"], None, None)


def table_of(labels: list[str]) -> Table:
    return Table(Path("train.tsv"), [f"text {i}" for i in range(len(labels))], None, labels)


@pytest.mark.parametrize(
    ("labels", "names"),
    [
        (["10", "9", "-1", "9"], ["-1", "9", "10"]),
        (["pos", "neg", "10"], ["10", "neg", "pos"]),
        (["10.0", "9.5", "-1"], ["-1", "9.5", "10.0"]),
        (["1", "01", "2"], ["01", "1", "2"]),
        (["--1", "2"], ["--1", "2"]),
        (["²", "1"], ["1", "²"]),
    ],
)
def test_label_names(labels: list[str], names: list[str]) -> None:
    """Numbers by value, else by spelling; the same whatever the order of the rows."""
    assert list_label_names(table_of(labels)) == names
    assert list_label_names(table_of(labels[::-1])) == names


def test_label_ids() -> None:
    with pytest.raises(BrimfulError, match="single label, 'a'"):
        list_label_names(table_of(["a", "a"]))
    task = Classification(["bad", "good"])
    assert task.targets(table_of(["good", "bad", "good"]))["label"].tolist() == [1, 0, 1]
    with pytest.raises(BrimfulError, match=r"train\.tsv, row 2: unknown label 'goood'; did you mean 'good'"):
        task.targets(table_of(["good", "goood"]))


def test_fingerprints_are_of_pairs() -> None:
    first, second, third = Table(Path("a"), ["ab", "a", "ab"], ["c", "bc", "c"], None).fingerprints
    assert first == third != second


def test_the_longer_text_of_a_pair_is_cut_first() -> None:
    tokenizer = word_tokenizer()
    tokenizer.post_processor = pair_template()
    firsts, seconds = ["w1 w2 w3 w4 w5", "w1", ""], ["w6 w7", "w6 w7 w8 w9", "w6"]
    examples = encode(Table(Path("a"), firsts, seconds, None), tokenizer, 7).examples
    words = [tokenizer.decode(ids, skip_special_tokens=False) for ids in examples.tokens]
    assert words == ["[CLS] w1 w2 [SEP] w6 w7 [SEP]", "[CLS] w1 [SEP] w6 w7 w8 [SEP]", "[CLS] [SEP] w6 [SEP]"]
    of_second = [np.flatnonzero(types).tolist() for types in examples.segments]
    assert of_second == [[4, 5, 6], [3, 4, 5, 6], [2, 3]]
    assert examples.cut == 2


def test_texts(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    table = read_texts(write(tmp_path / "a.txt", b"\xef\xbb\xbf one \r\n\n \xe4\xb8\xad\xe2\x80\xa8 two\n"))
    assert table.texts == ["one", "", "中", "two"]
    said = capfd.readouterr().err
    assert "a.txt: 1 text (line 3) end within a line" in said
    assert "a.txt: 1 row (line 2) have an empty text" in said
    for end in ("\r", "\x85", "\u2028"):
        assert read_texts(write(tmp_path / "b.txt", end.join(["one", "two", ""]))).texts == ["one", "two"]
        assert not capfd.readouterr().err
    with pytest.raises(BrimfulError, match=r"b\.txt holds no text"):
        read_texts(write(tmp_path / "b.txt", " \n\n"))


def test_columns_without_numbers_are_refused_in_a_text_file(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", "很好\t3\n不好, 真的\t1\n好\t2\n")
    assert "--columns.text 1 --columns.label 2" in refused(path)
    with pytest.raises(BrimfulError, match=r"columns between tabs.*--columns\.text 1"):
        read_texts(path)


@pytest.mark.parametrize(
    ("data", "delimiter"),
    [
        ("很好\t3\n不好; x\t1\n好\t2\n", ""),
        ("a\t1\nb\t2\n", ""),
        ("a,1\nb,2\n", ""),
        ("a; b,1\nc,2\n", ","),
    ],
)
def test_columns_with_numbers_are_read_from_any_text_file(data: str, delimiter: str, tmp_path: Path) -> None:
    dialect = DialectOptions(delimiter=delimiter)
    layout = FileLayout(columns=Columns(text="1", label="2"), dialect=dialect)
    table = read_table(write(tmp_path / "a.txt", data), labelled=True, layout=layout)
    assert table.texts == [re.split(r"[\t,]", line)[0] for line in data.splitlines()]


def test_the_file_in_an_archive_has_the_name_that_counts(tmp_path: Path) -> None:
    spans = '{"text": "a", "spans": [[0, 1, "X"]]}\n'
    files = {"b.csv": "text,label\na,1\n", "in.txt": "a\tB-X\n", "in.jsonl": spans}
    for name, read in zip(files, (read_table, read_tagged, read_tagged), strict=True):
        with zipfile.ZipFile(tmp_path / f"{name}.zip", "w") as archive:
            archive.writestr(name, files[name])
        assert read(tmp_path / f"{name}.zip", labelled=True).texts == ["a"]
    (tmp_path / "c.txt.gz").write_bytes(gzip.compress(b"a\nb\n"))
    assert read_texts(tmp_path / "c.txt.gz").texts == ["a", "b"]


@pytest.mark.parametrize(
    ("labels", "numbers"),
    [
        (["3,5", "2"], [3.5, 2.0]),
        (["-0,25", "+1,5"], [-0.25, 1.5]),
        (["1,000", "2,500"], "row 1: the label '1,000'"),
        (["3.5", "2,5"], "row 2: the label '2,5' .* decimals with a point"),
        (["3,5", "many"], "row 2: the label 'many' is not a finite number$"),
        (["1_000"], "row 1: the label '1_000'"),
        (["1.5", "-100", "2e3"], [1.5, -100, 2000]),
        (["1", "-Infinity"], "row 2: the label '-Infinity' is not a finite number$"),
        (["nan"], "row 1: the label 'nan'"),
        (["1e39"], "row 1: the label '1e39'"),
    ],
)
def test_numbers_and_decimal_commas(labels: list[str], numbers: list[float] | str) -> None:
    table = Table(Path("a.csv"), labels, None, labels)
    if isinstance(numbers, str):
        with pytest.raises(BrimfulError, match=numbers):
            table.numbers()
        return
    with record_warnings() as warnings:
        assert table.numbers().tolist() == numbers
    assert ["a decimal point" in warning for warning in warnings] == [True] * ("," in labels[0])


def test_several_files_are_one_table(tmp_path: Path) -> None:
    for number in (0, 1):
        rows = "".join(f"{number}{row}\t{'xy'[row % 2]}\n" for row in range(3))
        write(tmp_path / f"train-{number}.tsv", f"text\tlabel\n{rows}")
    classification = find_task("classification")
    for named in (tmp_path, tmp_path / "train-*.tsv"):
        table = TaskFiles(classification).read(named)
        assert [*table.texts] == ["00", "01", "02", "10", "11", "12"]
        assert table.where(3) == f"{tmp_path / 'train-1.tsv'}, line 2"
        assert table.take([4, 1]).where(0) == f"{tmp_path / 'train-1.tsv'}, line 3"
    write(tmp_path / "train-2.tsv", "text\ttext_b\tlabel\na\tb\tx\n")
    with pytest.raises(BrimfulError, match=r"train-2\.tsv has other columns or another format"):
        TaskFiles(classification).read(tmp_path)
    with pytest.raises(BrimfulError, match="no file matches"):
        TaskFiles(classification).read(tmp_path / "test-*.tsv")


def test_a_folder_says_what_it_leaves_out(tmp_path: Path) -> None:
    with pytest.raises(BrimfulError, match=r"is a folder without tables \(empty\)"):
        files_of_table(tmp_path)
    for name in ("a.conll", "README.md"):
        write(tmp_path / name, "a\tO\n")
    left_out = r"left out: \.md 1, \.conll 1; a pattern in quotes names files of any suffix"
    with pytest.raises(BrimfulError, match=rf"is a folder without tables \({left_out}"):
        files_of_table(tmp_path)
    table = write(tmp_path / "b.CSV", "text,label\na,x\n")
    with record_warnings() as said:
        assert files_of_table(tmp_path) == [table]
        assert files_of_table(tmp_path / "*.conll") == [tmp_path / "a.conll"]
    assert [bool(re.search(rf"2 files {left_out}", line)) for line in said] == [True]


@pytest.mark.parametrize(
    ("names", "patterns"),
    [
        (["train.csv", "test.csv", "dev.csv"], "--train {0}/train* --test {0}/test* --dev {0}/dev*"),
        (["data/train-00000-of-00001.parquet", "data/validation-00000-of-00001.parquet"],
         "--train {0}/data/train* --dev {0}/data/validation*"),
        (["test/data-00000-of-00001.arrow", "train/data-00000-of-00001.arrow"],
         "--train {0}/train* --test {0}/test*"),
        (["train-0.csv", "train-1.csv", "values.csv", "tests.csv"], None),
    ],
)  # fmt: skip
def test_a_folder_of_parts_is_no_table(names: list[str], patterns: str | None, tmp_path: Path) -> None:
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        write(tmp_path / name, "")
    if patterns is None:
        assert len(files_of_table(tmp_path)) == len(names)
        return
    with pytest.raises(BrimfulError) as error:
        files_of_table(tmp_path)
    assert f"{patterns.format(tmp_path)} reads each by itself" in str(error.value).replace("'", "")
    for pattern in re.findall(r"'(.*?)'", str(error.value)):
        assert len(files_of_table(pattern)) == 1


def test_empty_texts_are_counted(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    table = read_table(write(tmp_path / "a.tsv", "text\tlabel\na\t1\n\t0\nb\t 1 \n \t0\n"), labelled=True)
    assert (table.texts, table.labels) == (["a", "", "b", " "], ["1", "0", "1", "0"])
    assert "2 rows (line 3, 5) have an empty text" in capfd.readouterr().err


def test_lines_are_those_of_the_file(tmp_path: Path) -> None:
    """Lines that hold nothing but delimiters are empty."""
    table = read_table(write(tmp_path / "a.csv", "text;label\na;1\n;\nb;0\n;;\n"), labelled=True)
    assert (table.texts, table.labels, list(table.lines)) == (["a", "b"], ["1", "0"], [2, 4])
    table = read_table(write(tmp_path / "a.csv", 'text,label\n"a\nb",1\n\nc,x\n'), labelled=True)
    assert list(table.lines) == [2, 5]
    with pytest.raises(BrimfulError, match=r"a\.csv, line 5: the label 'x' is not a finite number"):
        table.take([1]).numbers()


def test_a_column_that_parquet_lacks_is_named_with_the_nearest(tmp_path: Path) -> None:
    write_rows(tmp_path / "a.parquet", [{"txt": "a", "label": None, "spans": [{"start": 0}]}])
    assert "no column 'text' (row 1): did you mean 'txt'?" in refused(tmp_path / "a.parquet")
