"""Cells of labels: each spelling of a list gives the list, and what a column leaves open is said."""

import csv
import json
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from brimful.base.console import record_warnings
from brimful.base.errors import BrimfulError
from brimful.tables.layouts import Columns, FileLayout
from brimful.tasks.multi_label import MultiLabel
from builders.tables import write_rows

NAMES = ["book", "New York", "价格", "it's", 'a "b"', "c\\d", "naïve", "10", "x-y"]
NAMES += ["C++", "A/B", "+", "R&D", "(other)"]


def write(path: Path, cells: list[str], header: tuple[str, str] = ("text", "label")) -> Path:
    with open(path, "w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([header, *([f"t{i}", cell] for i, cell in enumerate(cells))])
    return path


def read(path: Path, **columns: str) -> tuple[list[list[str]], list[str]]:
    layout = FileLayout(columns=Columns(**columns))
    with record_warnings() as said:
        labels = MultiLabel.read(path, labelled=True, layout=layout).labels
    assert labels is not None
    return list(labels), said


@pytest.mark.parametrize("separator", ["|", "; "])
@given(rows=st.lists(st.lists(st.sampled_from(NAMES), unique=True, max_size=6), min_size=1, max_size=6))
def test_names_with_separators_are_a_list(separator: str, rows: list[list[str]], tmp_path_factory):
    path = tmp_path_factory.mktemp("lists") / "a.csv"
    found, said = read(write(path, [separator.join(names) for names in rows]))
    assert found == rows
    assert [line for line in said if "backslashes" not in line] == []


def compact(names: list[str]) -> str:
    return json.dumps(names, ensure_ascii=False, separators=(",", ":"))


@given(rows=st.lists(st.lists(st.text("ab ,;|'\"[]\\é"), max_size=4), min_size=1, max_size=4))
def test_lists_of_any_text_are_those_of_json_and_python(rows: list[list[str]], tmp_path_factory):
    wanted = [list(dict.fromkeys(name.strip() for name in names if name.strip())) for names in rows]
    folder = tmp_path_factory.mktemp("lists")
    for name, spell in (("json.csv", json.dumps), ("compact.csv", compact), ("python.csv", repr)):
        assert read(write(folder / name, [spell(names) for names in rows]))[0] == wanted
    lines = [json.dumps({"text": "t", "label": names}) for names in rows]
    (folder / "a.jsonl").write_text("\n".join(lines), encoding="utf-8")
    assert read(folder / "a.jsonl")[0] == wanted
    table = pa.table({"text": ["t"] * len(rows), "label": pa.array(rows, pa.list_(pa.string()))})
    parquet.write_table(table, folder / "a.parquet")
    assert read(folder / "a.parquet")[0] == wanted


def test_no_label_in_all_spellings(tmp_path: Path):
    cells = ["", "[]", "['']", '[""]', "|", "['a']"]
    assert read(write(tmp_path / "a.csv", cells)) == ([[], [], [], [], [], ["a"]], [])


@pytest.mark.parametrize("missing", ["nan", "NaN", "None", "null", "<NA>"])
def test_missing_values_are_no_label_and_said(missing: str, tmp_path: Path):
    found, said = read(write(tmp_path / "a.csv", ["a|b", missing, missing]))
    assert found == [["a", "b"], [], []]
    assert len(said) == 1
    assert f"2 rows (line 3) have the label {missing!r}" in said[0]
    (tmp_path / "a.jsonl").write_text('{"text": "x", "label": null}\n{"text": "y", "label": NaN}\n')
    found, said = read(tmp_path / "a.jsonl")
    assert found == [[], []]
    assert "2 rows" in said[0]


@pytest.mark.parametrize("cell", ["a, b", "a、b", "a#b", "__label__a __label__b", "<a><b>", "set()", '"[a]"'])
def test_a_cell_that_may_be_one_label_or_several_is_refused(cell: str, tmp_path: Path):
    path = write(tmp_path / "a.csv", ["c", cell])
    with pytest.raises(BrimfulError, match=r"line 3: .* may be one label or several: write a\|b for two"):
        read(path)
    assert read(write(path, ["c", json.dumps([cell])]))[0] == [["c"], [cell]]


def test_vectors_of_0_and_1_are_refused(tmp_path: Path):
    with pytest.raises(BrimfulError, match="all labels are 3 times 0 or 1: write a column for each label"):
        read(write(tmp_path / "a.csv", ["[0, 1, 1]", "[1, 0, 0]"]))
    assert read(write(tmp_path / "a.csv", ["[0, 1]", "[1]"]))[0] == [["0", "1"], ["1"]]


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl", "a.parquet"])
def test_columns_of_0_and_1_are_labels_where_they_are_named(name: str, tmp_path: Path):
    path = tmp_path / name
    cells = [("x", 1, False, 3), ("y", 0, False, 5), ("z", 1, True, 4)]
    write_rows(path, [{"comment": c, "toxic": t, "insult": i, "words": w} for c, t, i, w in cells])
    assert read(path, text="comment", label="toxic, insult") == ([["toxic"], [], ["toxic", "insult"]], [])
    for label, needle in (
        ("toxic,words", r"(line|row) [12]: '?3'? in the column 'words'; expected 0 or 1"),
        ("toxic,rude", r"no column 'rude'; expected 0 or 1"),
        ("label", r"no column 'label' .*; --columns.label a,b names columns of 0 and 1"),
    ):
        with pytest.raises(BrimfulError, match=needle):
            read(path, text="comment", label=label)


@pytest.mark.parametrize("cell", ["[a b, c]", "[a", "{d}", "[0 1]", "['x' 'y']", "{'a': 1}", "[[1]]"])
def test_what_is_no_list_of_names_is_refused_with_its_place(cell: str, tmp_path: Path):
    with pytest.raises(BrimfulError, match=r"line 3: .*(neither JSON nor Python|is not a list of names)"):
        read(write(tmp_path / "a.csv", ["c", cell]))
