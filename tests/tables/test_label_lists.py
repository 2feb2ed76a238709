"""Cells of labels: each spelling of a list gives the list, and what a column leaves open is said."""

import csv
import gzip
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from brimful.base.console import recorded_warnings
from brimful.base.errors import BrimfulError
from brimful.tables.layouts import Columns, FileLayout
from brimful.tasks.multi_label import MultiLabel, label_sets

NAMES = ["book", "paper", "New York", "价格", "it's", 'a "b"', "c\\d", "naïve", "10", "x-y"]


def write(path: Path, cells: list[str], header: tuple[str, str] = ("text", "label")) -> Path:
    with open(path, "w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([header, *([f"t{i}", cell] for i, cell in enumerate(cells))])
    return path


def read(path: Path) -> tuple[list[list[str]], list[str]]:
    with recorded_warnings() as said:
        labels = MultiLabel.read(path, labelled=True).labels
    assert labels is not None
    return list(labels), said


SPELLINGS = {
    "json": lambda names: json.dumps(names),
    "json, compact": lambda names: json.dumps(names, ensure_ascii=False, separators=(",", ":")),
    "list": repr,
    "tuple": lambda names: repr(tuple(names)),
    "set": lambda names: repr(set(names)),
    "frozenset": lambda names: repr(frozenset(names)),
    "numpy str": lambda names: str(np.array(names, dtype=object)),
    "numpy repr": lambda names: repr(np.array(names, dtype=object)),
    "numpy text": lambda names: repr(np.array(names)),
    "numpy scalars": lambda names: repr([np.str_(name) for name in names]),
    "bar": "|".join,
    "object": lambda names: json.dumps({name: int(name in names) for name in NAMES}),
}


@pytest.mark.parametrize("spelling", SPELLINGS)
@given(rows=st.lists(st.lists(st.sampled_from(NAMES), unique=True, max_size=6), min_size=1, max_size=6))
def test_every_spelling_of_a_list_is_the_list(spelling: str, rows: list[list[str]], tmp_path_factory):
    path = tmp_path_factory.mktemp("lists") / "a.csv"
    found, said = read(write(path, [SPELLINGS[spelling](names) for names in rows]))
    assert [sorted(names) for names in found] == [sorted(names) for names in rows]
    assert [line for line in said if "backslashes" not in line] == []


@given(rows=st.lists(st.lists(st.text("ab ,;|'\"[]\\é"), max_size=4), min_size=1, max_size=4))
def test_lists_of_any_text_are_those_of_json_and_python(rows: list[list[str]], tmp_path_factory):
    wanted = [list(dict.fromkeys(name.strip() for name in names if name.strip())) for names in rows]
    folder = tmp_path_factory.mktemp("lists")
    for name, spell in (("json.csv", json.dumps), ("python.csv", repr)):
        assert read(write(folder / name, [spell(names) for names in rows]))[0] == wanted
    lines = [json.dumps({"text": "t", "label": names}) for names in rows]
    (folder / "a.jsonl").write_text("\n".join(lines), encoding="utf-8")
    assert read(folder / "a.jsonl")[0] == wanted
    table = pa.table({"text": ["t"] * len(rows), "label": pa.array(rows, pa.list_(pa.string()))})
    parquet.write_table(table, folder / "a.parquet")
    assert read(folder / "a.parquet")[0] == wanted


@pytest.mark.parametrize(
    "empty", ["", "[]", "()", "{}", "set()", "frozenset()", "['']", '[""]', "array([], dtype=object)"]
)
def test_no_label_in_all_spellings(empty: str, tmp_path: Path):
    assert read(write(tmp_path / "a.csv", [empty, "['a']"])) == ([[], ["a"]], [])


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


@pytest.mark.parametrize("separator", [";", ",", ", ", "、", "，", "；"])
def test_other_separators_are_read_where_names_recur_and_said(separator: str, tmp_path: Path):
    rows = [["a", "b c"], ["b c"], ["a"], ["d", "a"]]
    found, said = read(write(tmp_path / "a.csv", [separator.join(names) for names in rows]))
    assert found == rows
    assert len(said) == 1
    assert "2 labels with" in said[0]
    assert "are read as lists" in said[0]


def test_a_comma_in_names_that_never_recur_is_part_of_them(tmp_path: Path):
    cells = ["Health, care and medicine", "Sports", "Arts, books"]
    path = write(tmp_path / "a.csv", cells)
    found, said = read(path)
    assert found == [[cell] for cell in cells]
    assert "2 labels with ',', such as 'Health, care and medicine', are read as one label each" in said[0]
    # A table too small to tell is read with the labels that the task has.
    task = MultiLabel(["Arts", "Health", "Sports", "books", "care and medicine"])
    bits = task.targets(MultiLabel.read(path, labelled=True))["labels"]
    assert label_sets(bits, 5).astype(int).tolist() == [
        [0, 1, 0, 0, 1], [0, 0, 1, 0, 0], [1, 0, 0, 1, 0]
    ]  # fmt: skip


def test_vectors_of_0_and_1_are_read_by_place_and_said(tmp_path: Path):
    for cells in (
        ["[0, 1, 1]", "[1, 0, 0]"],
        ["[0 1 1]", "[1 0 0]"],
        ["[0. 1. 1.]", "[1. 0. 0.]"],
        ["0 1 1", "1 0 0"],
    ):
        found, said = read(write(tmp_path / "a.csv", cells))
        assert found == [["1", "2"], ["0"]]
        assert "all 2 rows hold 3 times 0 or 1" in said[-1]
    assert read(write(tmp_path / "a.csv", ["[0, 1]", "[1]"]))[0] == [["0", "1"], ["1"]]


def test_columns_of_0_and_1_are_labels(tmp_path: Path):
    content = "id,comment,toxic,insult,words\n7,x,1,0,3\n8,y,0,0,5\n9,z,1,1,4\n"
    (tmp_path / "a.csv").write_text(content)
    layout = FileLayout(columns=Columns(text="comment"))
    with recorded_warnings() as said:
        table = MultiLabel.read(tmp_path / "a.csv", labelled=True, layout=layout)
    assert list(table.texts) == ["x", "y", "z"]
    assert table.labels == [["toxic"], [], ["toxic", "insult"]]
    assert len(said) == 1
    assert "its 2 columns of 0 and 1 are read as labels (toxic,insult)" in said[0]
    named = FileLayout(columns=Columns(text="comment", label="toxic, insult"))
    with recorded_warnings() as said:
        table = MultiLabel.read(tmp_path / "a.csv", labelled=True, layout=named)
    assert table.labels == [["toxic"], [], ["toxic", "insult"]]
    assert said == []
    wrong = FileLayout(columns=Columns(text="comment", label="toxic,words"))
    with pytest.raises(BrimfulError, match="line 2: '3' in the column 'words' is neither 0 nor 1"):
        MultiLabel.read(tmp_path / "a.csv", labelled=True, layout=wrong)
    with pytest.raises(BrimfulError, match="no column 'opinion'"):
        MultiLabel.read(
            write(tmp_path / "b.csv", ["p", "q"]),
            labelled=True,
            layout=FileLayout(columns=Columns(label="opinion")),
        )
    rows = [{"text": "x", "a": True, "b": False}, {"text": "y", "a": False, "b": True}]
    parquet.write_table(pa.Table.from_pylist(rows), tmp_path / "a.parquet")
    assert read(tmp_path / "a.parquet")[0] == [["a"], ["b"]]


def test_names_in_brackets_without_quotes_are_lists_and_said(tmp_path: Path):
    found, said = read(write(tmp_path / "a.csv", ["[a b, c]", "{d}", "(other)"]))
    assert found == [["a b", "c"], ["d"], ["(other)"]]
    assert "2 rows (line 2) have names in brackets without quotes" in said[0]


def test_what_is_no_list_of_names_is_refused_with_its_place(tmp_path: Path):
    for label in ([["a"]], {"a": 0.7}, [{"x": 1}]):
        (tmp_path / "a.jsonl").write_text(json.dumps({"text": "x", "label": label}))
        with pytest.raises(BrimfulError, match=r"line 1: the label .* is no list of names"):
            MultiLabel.read(tmp_path / "a.jsonl", labelled=True)


@pytest.mark.parametrize(
    "spell",
    [
        "/".join,
        "+".join,
        "\t".join,
        " ".join,
        lambda names: " ".join(f"__label__{name}" for name in names),
        lambda names: "".join(f"<{name}>" for name in names),
        lambda names: json.dumps(json.dumps(names)),
    ],
)
def test_seldom_spellings_of_lists(spell, tmp_path: Path):
    rows = [["a"], ["a", "b"], [], ["b", "c"], ["c"]]
    assert read(write(tmp_path / "a.csv", [spell(names) for names in rows]))[0] == rows


@pytest.mark.parametrize(
    "cells", [["C", "C++", "C"], ["New York", "New Jersey", "York"], ["A/B", "A/C", "B/C"], ["+", "-"]]
)
def test_marks_within_names_stay(cells: list[str], tmp_path: Path):
    assert read(write(tmp_path / "a.csv", cells)) == ([[cell] for cell in cells], [])


@pytest.mark.parametrize("name", ["a.csv.gz", "a.json"])
def test_columns_of_bits_in_files_of_other_forms(name: str, tmp_path: Path):
    path = tmp_path / name
    rows = [{"text": "x", "a": 1, "b": 0}, {"text": "y", "a": 1, "b": 1}]
    if name.endswith(".gz"):
        path.write_bytes(gzip.compress(b"text,a,b\nx,1,0\ny,1,1\n"))
    else:
        path.write_text(json.dumps(rows), encoding="utf-8")
    found, said = read(path)
    assert found == [["a"], ["a", "b"]]
    assert len(said) == 1
