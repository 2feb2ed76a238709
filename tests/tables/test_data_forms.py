"""The documented forms of spans and classes: the example file of each (docs/examples) gives the same."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import ipc, parquet

from brimful.base.console import record_warnings
from brimful.base.errors import BrimfulError
from brimful.tables.layouts import OWN_LAYOUT, Columns, FileLayout
from brimful.tables.table import Table
from brimful.tables.table_files import read_table
from brimful.tables.tagged_files import read_tagged
from brimful.tasks.multi_label import MultiLabel

FORMS = Path(__file__).parents[2] / "docs/examples"
TEXTS = ["Anna Berg joined Nordbank in Oslo.", "Nordbank raised its rates."]
TEXTS += ["王小明住在北京。", "Nobody answered."]
SPANS = [
    [("Anna Berg", "PER"), ("Nordbank", "ORG"), ("Oslo", "LOC")],
    [("Nordbank", "ORG")],
    [("王小明", "PER"), ("北京", "LOC")],
    [],
]
REVIEWS = ["Warm, clean and quiet", "The bath was dirty"]
CHOICE = {"type": "choices", "from_name": "mood", "value": {"choices": ["x"]}}
TAG_NAMES = ["O", "B-PER", "I-PER", "B-ORG", "I-ORG", "B-LOC", "I-LOC"]


def columns(**names: str) -> FileLayout:
    return replace(OWN_LAYOUT, columns=Columns(**names))


def read(
    reader: Callable[..., Table], path: Path, layout: FileLayout = OWN_LAYOUT
) -> tuple[Table, list[str]]:
    with record_warnings() as said:
        table = reader(path, labelled=True, layout=layout)
    return table, said


def texts_of_spans(table: Table) -> list[list[tuple[str, str]]]:
    assert table.labels is not None
    rows = zip(table.texts, table.labels, strict=True)
    return [[(text[span.start : span.end], span.label) for span in spans] for text, spans in rows]


@pytest.mark.parametrize("name", sorted(path.name for path in FORMS.glob("spans-*.json*")))
def test_spans(name: str):
    table, said = read(read_tagged, FORMS / name)
    if name == "spans-datasets.jsonl":  # words with spaces between them
        assert table.texts[0] == "Anna Berg joined Nordbank in Oslo ."
    else:
        assert list(table.texts) == TEXTS
    assert texts_of_spans(table) == SPANS
    if name == "spans-prodigy.jsonl":
        assert said.pop().endswith("1 text that the annotator rejected or passed over are left out (line 5)")
    assert said == []
    unlabelled = read_tagged(FORMS / name, labelled=False)
    assert list(unlabelled.texts)[:4] == list(table.texts)


@pytest.mark.parametrize("form", ["parquet", "arrow"])
def test_tags_of_datasets_have_the_names_that_the_file_keeps(form: str, tmp_path: Path):
    rows = [json.loads(line) for line in (FORMS / "spans-datasets.jsonl").read_text("utf-8").splitlines()]
    numbers = [row | {"ner_tags": [TAG_NAMES.index(tag) for tag in row["ner_tags"]]} for row in rows]
    feature = {"feature": {"names": TAG_NAMES, "_type": "ClassLabel"}, "_type": "Sequence"}
    path = write_columns(tmp_path / f"a.{form}", numbers, {"ner_tags": feature})
    table, said = read(read_tagged, path)
    assert (texts_of_spans(table), said) == (SPANS, [])
    path = write_columns(tmp_path / f"a.{form}", numbers, {})
    with pytest.raises(BrimfulError, match="row 1: its tags are numbers, and the file does not name them"):
        read(read_tagged, path)


def write_columns(path: Path, rows: list[dict[str, Any]], features: dict[str, Any]) -> Path:
    """A file as `to_parquet` and `save_to_disk` of Hugging Face datasets write it."""
    metadata = {"huggingface": json.dumps({"info": {"features": features}})}
    table = pa.Table.from_pylist(rows).replace_schema_metadata(metadata)
    if path.suffix == ".parquet":
        parquet.write_table(table, path)
    else:
        with ipc.new_stream(path, table.schema) as writer:
            writer.write_table(table)
    return path


def test_conll():
    table, said = read(read_tagged, FORMS / "tags.conll")
    assert texts_of_spans(table) == SPANS[:2]
    assert len(said) == 1
    assert "1 line without a word are left out as comments (line 3: '# from a press release')" in said[0]


@pytest.mark.parametrize(
    ("name", "label", "warning"),
    [
        ("classes.csv", "label", ""),
        ("classes-doccano.jsonl", "label", ""),
        ("classes-prodigy.jsonl", "label", "1 text that the annotator rejected"),
        ("classes-prodigy-choice.jsonl", "label", "1 text that the annotator rejected"),
        ("classes-label-studio.json", "label", ""),
        ("classes-label-studio.json", "sentiment", ""),
        ("classes-label-studio-min.json", "sentiment", ""),
    ],
)
def test_classes(name: str, label: str, warning: str):
    table, said = read(read_table, FORMS / name, columns(label=label))
    assert (list(table.texts), table.labels) == (REVIEWS, ["good", "bad"])
    assert [warning in line for line in said] == [True] * bool(warning)
    several, _ = read(MultiLabel.read, FORMS / name, columns(label=label))
    assert several.labels == [["good"], ["bad"]]


def test_spans_under_another_key_are_refused(tmp_path: Path):
    records = json.loads((FORMS / "spans-label-studio-min.json").read_text("utf-8"))
    for record in records:
        record["ner"] = record.pop("label", [])
    path = tmp_path / "a.json"
    path.write_text(json.dumps(records), encoding="utf-8")
    for label in ("label", "nre"):
        with pytest.raises(BrimfulError, match=r"has its spans under another key: --columns\.label ner"):
            read_tagged(path, labelled=True, layout=columns(label=label))
    assert texts_of_spans(read_tagged(path, labelled=True, layout=columns(label="ner"))) == SPANS


@pytest.mark.parametrize("form", ["parquet", "arrow"])
def test_classes_of_datasets(form: str, tmp_path: Path):
    feature = {"names": ["bad", "good"], "_type": "ClassLabel"}
    rows = [{"text": REVIEWS[0], "label": 1}, {"text": REVIEWS[1], "label": 0}]
    table, said = read(read_table, write_columns(tmp_path / f"a.{form}", rows, {"label": feature}))
    assert (table.labels, said) == (["good", "bad"], [])
    path = write_columns(tmp_path / f"b.{form}", [*rows, {"text": "?", "label": -1}], {"label": feature})
    with pytest.raises(BrimfulError, match="row 3: the label is empty"):
        read(read_table, path)
    path = write_columns(tmp_path / f"c.{form}", [{"text": "?", "label": 2}], {"label": feature})
    with pytest.raises(BrimfulError, match="row 1: 2 is not one of the 2 classes"):
        read(read_table, path)


@pytest.mark.parametrize(
    ("name", "label", "wanted"),
    [
        ("labels.csv", "label", [["room", "noise"], ["bath"], ["bill", "desk"], []]),
        ("labels-columns.csv", "room,noise,bath", [["room", "noise"], ["bath"], []]),
        ("labels-label-studio-min.json", "topics", [["room", "noise"], ["bath"]]),
    ],
)
def test_several_labels(name: str, label: str, wanted: list[list[str]]):
    table, said = read(MultiLabel.read, FORMS / name, columns(label=label))
    assert (table.labels, said) == (wanted, [])


def test_answers_about_one_label_are_classes_where_the_user_says_so(tmp_path: Path):
    answers = ["accept", "reject", "ignore", "reject"]
    rows = [{"text": f"t{i}", "label": "spam", "answer": answer} for i, answer in enumerate(answers)]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, rows)))
    table, said = read(read_table, tmp_path / "a.jsonl")
    assert (list(table.texts), table.labels) == (["t0"], ["spam"])
    assert "3 texts that the annotator rejected" in said[0]
    assert "--columns.label answer" in said[0]
    table, said = read(read_table, tmp_path / "a.jsonl", columns(label="answer"))
    assert (list(table.texts), table.labels) == (["t0", "t1", "t3"], ["accept", "reject", "reject"])
    assert "1 text that the annotator rejected" in said[0]


def task(*annotations: Any) -> dict[str, Any]:
    """A task of Label Studio."""
    return {"data": {"text": "ab"}, "annotations": list(annotations)}


STARS = {"type": "rating", "from_name": "stars"}
REFUSED: list[tuple[Callable[..., Table], dict[str, Any], str]] = [
    (read_tagged, {"text": "ab", "spans": [], "label": []}, "line 1 has spans and label: --columns.label"),
    (read_tagged, {"text": "ab", "label": {"PER": {"a": [[0, 0]]}}}, "line 1 .*--layout clue/cluener"),
    (read_tagged, {"text": "ab"}, 'line 1 has no spans; a text without any has "spans": \\[\\]'),
    (read_tagged, {"text": "abc", "spans": [[0, 2, " "]]}, r"the label of the span \[0, 2, \" \"\] is empty"),
    (read_tagged, {"content": "ab", "annotation": []}, "record 1 has no text: records are text with spans"),
    (read_tagged, {"text": "ab", "entities": [{"begin": 0, "end": 1}]}, r"is not \[start, end, label\]"),
    (read_tagged, {"text": "ab", "spans": [["0", 1, "X"]]}, r"is not \[start, end, label\]"),
    (read_tagged, {"tokens": ["a"], "spans": []}, "line 1 has tokens and no tags"),
    (read_tagged, {"tokens": ["a"], "ner_tags": ["O", "O"]}, "line 1 has 1 tokens and 2 tags"),
    (read_tagged, task(), "line 1 has no annotation"),
    (read_tagged, task(3), "line 1 is not a task as Label Studio exports it"),
    (read_table, {"text": "a", "label": []}, "line 1: the label is empty: leave such rows out"),
    (read_table, {"text": "a", "label": "['x']"}, "only labels of --task multi-label are lists"),
    (read_table, task({"result": [STARS]}), "line 1 has no choices; it has rating"),
    (read_table, task({"was_cancelled": True}), "line 1 has no annotation"),
    (read_table, task({"result": [{"type": "choices"}]}), "line 1 is not a task"),
    (
        read_table,
        task({"result": [CHOICE, CHOICE | {"from_name": "x"}]}),
        "line 1 has choices of mood, x: --c",
    ),
]


@pytest.mark.parametrize(("reader", "row", "message"), REFUSED)
def test_other_forms_are_refused(reader, row: dict[str, Any], message: str, tmp_path: Path):
    (tmp_path / "a.jsonl").write_text(f"{json.dumps(row)}\n" * (2 if reader is read_table else 1))
    with pytest.raises(BrimfulError, match=message) as error:
        read(reader, tmp_path / "a.jsonl")
    assert "\n" not in str(error.value)


def test_texts_for_a_model_of_spans(tmp_path: Path):
    (tmp_path / "a.csv").write_text('id,text\n1,"Anna, and Bo"\n')
    assert list(read_tagged(tmp_path / "a.csv", labelled=False).texts) == ["Anna, and Bo"]
    rows = '{"tokens": [], "ner_tags": []}\n{"tokens": ["a"], "ner_tags": ["B-X"]}\n'
    (tmp_path / "a.jsonl").write_text(rows)
    assert list(read_tagged(tmp_path / "a.jsonl", labelled=True).texts) == ["", "a"]
    with pytest.raises(BrimfulError, match=r"a\.csv.*\.parquet"):
        read_tagged(tmp_path / "a.csv", labelled=True)


def test_of_several_annotations_the_first_is_read(tmp_path: Path):
    tasks = json.loads((FORMS / "spans-label-studio.json").read_text("utf-8"))
    done = tasks[0]["annotations"][0]
    empty = done | {"result": []}
    tasks[0]["annotations"] = [empty | {"was_cancelled": True}, empty, done | {"ground_truth": True}]
    (tmp_path / "a.json").write_text(json.dumps(tasks), encoding="utf-8")
    table, said = read(read_tagged, tmp_path / "a.json")
    assert texts_of_spans(table) == SPANS
    assert "1 text have several annotations (record 1), of which the first is read" in said[0]
