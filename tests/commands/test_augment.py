"""`brimful augment`: every format with all its columns, the row before its copies, errors as one line."""

import csv
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import brimful
from brimful import BrimfulError
from brimful.tables.table_files import read_table
from builders.augmentation import saved
from builders.tables import write_rows

TEXTS = [
    'The happy cat said "jump", and 3 dogs ran',
    "我喜欢这本书的内容",
    "unhappy birds read quiet stone",
    "the and 42",
    "cat",
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return saved(tmp_path_factory.mktemp("verb") / "encoder")


def write(path: Path, rows: list[dict]) -> Path:
    write_rows(path, rows)
    return path


def read(path: Path) -> list[dict]:
    if path.suffix == ".parquet":
        return pq.read_table(path).to_pylist()
    if path.suffix == ".jsonl":
        return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    with open(path, encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, delimiter="\t" if path.suffix == ".tsv" else ","))


def rows_of(**more) -> list[dict]:
    return [{"id": 100 + i, "text": text, **more, "label": f"l{i % 2}"} for i, text in enumerate(TEXTS)]


@pytest.mark.parametrize("form", ["tsv", "csv", "jsonl", "parquet"])
def test_rows_come_before_their_copies_with_all_columns(folder, tmp_path, form):
    source = write(tmp_path / f"in.{form}", rows_of())
    out = tmp_path / f"out.{form}"
    summary = brimful.augment(input=source, output=out, encoder=folder, copies=6)
    assert summary["rows"] == 5
    assert summary["words"]["masked_lm"]
    assert summary["words"]["neighbours"]
    found = read(out)
    assert summary["written"] == len(found)
    before = read(source)
    groups: dict[str, list[dict]] = {}
    for row in found:
        groups.setdefault(str(row["id"]), []).append(row)
    assert list(groups) == [str(row["id"]) for row in before]
    for original, group in zip(before, groups.values(), strict=True):
        assert group[0] == original
        texts = [row["text"] for row in group]
        assert len(set(texts)) == len(texts) <= 7
        assert all(row == original | {"text": row["text"]} for row in group)
        assert all(list(row) == list(original) for row in group)
    assert [len(group) for group in groups.values()][3] == 1  # nothing to replace
    for text in (row["text"] for row in groups["100"][1:]):
        assert text.startswith("The ")
        assert ", and 3 " in text
        assert text.count('"') == 2
    assert read_table(out, labelled=True).texts == [row["text"] for row in found]


def test_a_copy_of_a_pair_changes_one_text(folder, tmp_path):
    source = write(tmp_path / "in.tsv", rows_of(text_b="bright river and house"))
    brimful.augment(input=source, output=tmp_path / "out.tsv", encoder=folder, copies=4, rate=0.9)
    originals = {row["id"]: row for row in read(source)}
    first = second = 0
    for row in read(tmp_path / "out.tsv"):
        original = originals[row["id"]]
        changed = row["text"] != original["text"], row["text_b"] != original["text_b"]
        assert not all(changed)
        first, second = first + changed[0], second + changed[1]
    assert first > 8
    assert second > 8


def test_the_same_seed_gives_the_same_file(folder, tmp_path):
    source = write(tmp_path / "in.jsonl", rows_of())
    made = []
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        out = tmp_path / f"{name}.jsonl"
        brimful.augment(input=source, output=out, encoder=folder, copies=3, seed=seed)
        made.append(out.read_bytes())
    assert made[0] == made[1] != made[2]


def test_rate_0_and_other_columns(folder, tmp_path):
    rows = [{"sentence": row["text"], "note": row["text"]} for row in rows_of()]
    source, out = write(tmp_path / "in.csv", rows), tmp_path / "out.csv"
    brimful.augment(input=source, output=out, encoder=folder, rate=0.0, columns={"text": "sentence"})
    assert read(out) == read(source)
    brimful.augment(input=source, output=out, encoder=folder, rate=1.0, columns={"text": "sentence"})
    assert {row["note"] for row in read(out)} == set(TEXTS)
    assert len({row["sentence"] for row in read(out)}) > len(TEXTS)


def test_values_of_parquet_keep_their_types_and_classes_their_names(folder, tmp_path):
    source, out = tmp_path / "in.parquet", tmp_path / "out.parquet"
    feature = {"names": ["bad", "good"], "_type": "ClassLabel"}
    features = {"label": feature, "also": {"feature": feature, "_type": "List"}}
    metadata = {"huggingface": json.dumps({"info": {"features": features}})}
    numbers = pa.array(range(len(TEXTS))).cast(pa.int16())
    columns = {"text": TEXTS, "text_b": numbers, "mark": pa.array([1] * len(TEXTS), pa.int8())}
    table = pa.table({**columns, "label": [1] * len(TEXTS), "also": [[0, 1]] * len(TEXTS)})
    pq.write_table(table.replace_schema_metadata(metadata), source)
    brimful.augment(input=source, output=out, encoder=folder, copies=2)
    found = pq.read_table(out)
    assert found.schema.field("mark").type == pa.int8()
    assert set(found["text_b"].to_pylist()) == set(map(str, numbers.to_pylist()))
    assert set(found["label"].to_pylist()) == {"good"}
    assert found["also"].to_pylist()[0] == ["bad", "good"]


def test_a_layout_names_the_columns(folder, tmp_path):
    """CoLA has no header; the output has one, and is read with the same layout."""
    source, out = tmp_path / "in.tsv", tmp_path / "out.tsv"
    source.write_text("gj04\t1\t\thappy cat\ngj04\t0\t*\tangry dog\n", encoding="utf-8")
    brimful.augment(input=source, output=out, encoder=folder, layout="glue/cola", copies=2, rate=1.0)
    rows = read(out)
    assert rows[0] == {"source": "gj04", "label": "1", "mark": "", "sentence": "happy cat"}
    assert {row["label"] for row in rows} == {"0", "1"}


@pytest.mark.parametrize(
    "content",
    [
        "sentence\tlabel\nhappy\nangry dog\t0\n",  # the first line is short
        "sentence\nhappy\n\nangry dog\n",
    ],
)
def test_a_layout_of_lines_keeps_every_column_and_empty_texts(folder, tmp_path, content):
    source, out = tmp_path / "in.tsv", tmp_path / "out.tsv"
    source.write_text(content, encoding="utf-8")
    brimful.augment(input=source, output=out, encoder=folder, layout="glue/sst-2", copies=1, rate=0.0)
    width = content.split("\n")[0].count("\t")
    wanted = [line + "\t" * (width - line.count("\t")) for line in content.splitlines()]
    assert out.read_text(encoding="utf-8").splitlines() == wanted


def test_a_dry_run_writes_nothing_and_without_a_head_words_get_neighbours(tmp_path, capsys):
    source = write(tmp_path / "in.jsonl", rows_of())
    options = {
        "input": source,
        "output": tmp_path / "a.jsonl",
        "encoder": saved(tmp_path / "bare", head=False),
    }
    assert brimful.augment(**options, dry_run=True) == {"dry_run": True, "rows": 5, "distinct_texts": 5}
    assert not (tmp_path / "a.jsonl").exists()
    summary = brimful.augment(**options)
    assert summary["words"]["masked_lm"] == 0 < summary["words"]["neighbours"]
    assert "no masked-LM head" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    ("rows", "options", "message"),
    [
        ([{"text": "cat"}], {"output": "out.csv"}, "must end in .jsonl, as the input does"),
        ([{"text": "cat"}], {"output": "in.jsonl"}, "is the input"),
        ([{"sentence": "cat"}], {}, "line 1 has no column 'text'"),
        ([{"text": None}], {}, "line 1: text is empty"),
        ([{"text": ["cat"]}], {}, r"'text' is \['cat'\], not a text"),
        ([{"text": "cat", "spans": []}], {}, "has spans, which would not fit"),
        ([{"text": "the 42"}], {}, "has no word with candidates"),
        ([{"text": "cat"}], {"encoder": "none"}, "none holds no model"),
        ([{"text": "cat"}], {"lexicon": "none.txt"}, "cannot read the lexicon none.txt"),
        ([{"text": "cat"}], {"copies": 0}, "copies is 0"),
        ([{"text": "cat"}], {"rate": -1.0}, "rate is -1"),
        ([{"text": "cat"}], {"layout": "squad"}, "cannot be augmented as a file"),
    ],
)
def test_errors_are_one_line(folder, tmp_path, monkeypatch, rows, options, message):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "in.jsonl", rows)
    values = {"input": "in.jsonl", "output": "out.jsonl", "encoder": str(folder)} | options
    with pytest.raises(BrimfulError, match=message) as error:
        brimful.augment(**values)
    assert "\n" not in str(error.value)
    assert not (tmp_path / "out.jsonl").exists()
