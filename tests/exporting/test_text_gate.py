"""The gate on real texts: what eight bits cost is measured, and too much is refused."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from brimful import BrimfulError, TaskModel, export
from brimful.base.machine import processor_name
from brimful.data.examples import Examples
from brimful.exporting.exported_model import Export, RealTexts, find_texts
from brimful.exporting.gate import compare, describe_instructions, require_little_loss
from brimful.exporting.padded_batches import BATCH_SLOTS, PADDING_SLOTS, padded_batches, padded_outputs
from brimful.hf.folders import load_model
from brimful.hf.model_folder import ModelFolder
from brimful.hf.text_reading import TextReading
from brimful.model.heads import TokenHead
from brimful.tables.layouts import Columns, FileLayout
from brimful.tables.table_files import read_file
from brimful.tasks.cached_tables import RunTables
from brimful.tasks.task_model import load_task_model
from brimful.tasks.token_classification import TokenClassification
from builders.sure_classifier import save_sure_classifier
from builders.task_models import new_encoder

RANDOM = np.random.default_rng(5)
TEXTS = [" ".join(f"w{i}" for i in RANDOM.integers(0, 90, n)) for n in RANDOM.integers(1, 40, 120)]


def classifier(folder: Path) -> Path:
    """What `save_sure_classifier` saves."""
    return save_sure_classifier(folder, new_encoder("prenorm"), TEXTS, 80)


def task_export(folder: Path) -> Export:
    """A task's model on its way into a folder."""
    encoder, head, labels = load_model(folder)
    return Export(encoder, head, labels, ModelFolder(folder), {}, False, None)


def test_the_loss_of_rounding_is_known(tmp_path):
    folder = classifier(tmp_path / "good")
    options = {"format": "onnx-int8", "test": str(folder / "test.tsv"), "most_loss": 0.05}
    result = export(run=str(folder / "model"), out=str(tmp_path / "out"), **options)
    gate = result["gate"]
    assert result["max_abs_logit_difference"] < 1e-4  # of the graph before
    assert (gate["metric"], gate["before"], gate["texts"], gate["file"]) == ("accuracy", 1.0, 80, "test.tsv")
    assert 0.95 <= gate["after"] == gate["equal_predictions"]
    assert gate["loss"] == pytest.approx(1 - gate["after"])
    assert 0 < gate["max_score_difference"] < 0.2
    assert gate["instructions"] == describe_instructions()
    assert (gate["task"], gate["processor"]) == ("classification", processor_name())
    assert min(gate["texts_per_second"], gate["p50_ms"], gate["cores"]) > 0
    assert (tmp_path / "out" / "onnx" / "model_quantized.onnx").is_file()
    assert not (tmp_path / "out" / "traced").exists()
    card = (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    assert "Accuracy goes from 1.0000 to " in card
    assert gate["instructions"] in card
    code = "import runpy, sys; sys.modules['brimful'] = None; runpy.run_path(sys.argv.pop(1))"
    line = [sys.executable, "-c", code, str(tmp_path / "out" / "example.py"), *TEXTS[:2]]
    said = subprocess.run(line, check=True, capture_output=True, text=True).stdout.splitlines()
    assert [each.split("\t")[2] for each in said] == TEXTS[:2]


def test_spans_are_compared(tmp_path):
    """Of the model, and of the same with one label's scores damaged."""
    encoder = new_encoder()
    labels = ["O", "B-X", "I-X", "B-Y", "I-Y"]
    model = TaskModel(TokenClassification(labels), encoder, TokenHead(encoder, 5), 32)
    rows = model.predict(TEXTS)
    lines = [
        json.dumps({"text": text, "spans": row["prediction"]}) for text, row in zip(TEXTS, rows, strict=True)
    ]
    (tmp_path / "t.jsonl").write_text("\n".join(lines))
    table = read_file(model.task, tmp_path / "t.jsonl", labelled=True)
    data = model.task.encode(table, encoder.tokenizer, 32, None, labelled=True)
    texts = RealTexts(tmp_path / "t.jsonl", data, labelled=True)

    exact = model.outputs(data.examples, "fp32")
    off = exact.map_parts(lambda scores: scores - np.array([0, 100, 100, 0, 0]))

    same, damaged = compare(model, texts, exact, exact), compare(model, texts, exact, off)
    assert (same["loss"], same["max_score_difference"], same["equal_predictions"]) == (0, 0, 1)
    assert (damaged["before"], damaged["metric"]) == (1, "f1")
    assert 0 < damaged["after"] < 1
    assert damaged["loss"] == pytest.approx(1 - damaged["after"])
    said = r"X: F1 goes from 1\.0000 to 0\.\d+ .* --most-loss 0\.05; nothing was written"
    with pytest.raises(BrimfulError, match=said):
        require_little_loss(damaged, 0.05, "X")


def test_without_labels_the_metric_is_unknown(tmp_path, capsys):
    model = load_task_model(classifier(tmp_path) / "model")
    texts = RealTexts(tmp_path / "some.txt", model.encode(model.task.from_texts(TEXTS, None)), labelled=False)

    exact = model.outputs(texts.data.examples, "fp32")
    facts = compare(model, texts, exact, -exact)
    assert "metric" not in facts
    with pytest.raises(BrimfulError, match="share of equal predictions is 0"):
        require_little_loss(facts, 0.005, "onnx-int8 of run")
    require_little_loss(compare(model, texts, exact, exact), 0.005, "onnx-int8 of run")
    assert "its metric is unknown" in capsys.readouterr().err
    vectors = compare(None, texts, exact, exact)
    assert vectors["mean_cosine"] == pytest.approx(1)


def test_formats_that_round_need_texts(tmp_path):
    model = classifier(tmp_path) / "model"
    with pytest.raises(BrimfulError, match="name some with --test TABLE") as caught:
        export(run=str(model), out=str(tmp_path / "out"), format="onnx-int8", dry_run=True)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("named", ["test", "calibrate"])
@pytest.mark.parametrize("form", ["hf", "sentence-transformers"])
def test_weights_are_compared_on_texts_where_transformers_is(form, named, tmp_path, monkeypatch):
    folder = classifier(tmp_path)
    monkeypatch.setitem(sys.modules, "transformers", None)
    options = {"run": str(folder / "model"), "out": str(tmp_path / "out"), "format": form}
    if form == "sentence-transformers":
        new_encoder().save(tmp_path / "encoder")
        options["run"] = str(tmp_path / "encoder")
    with pytest.raises(
        BrimfulError, match=rf"--format {form} on texts .* pip install '\.\[hf\]' in the clone"
    ):
        export(**options, **{named: str(folder / "test.tsv")})
    assert not (tmp_path / "out").exists()


@given(st.lists(st.one_of(st.integers(1, 12), st.integers(1, 600)), min_size=1, max_size=80))
def test_every_example_is_in_one_batch_of_examples_of_similar_length(lengths):
    tokens = [np.full(length, number + 1, dtype=np.int32) for number, length in enumerate(lengths)]
    types = [np.zeros(length, dtype=np.uint8) for length in lengths]
    seen: list[int] = []
    examples = Examples(tokens, types, {}, 600, pad=0)
    for index, inputs in padded_batches(examples):
        ids, mask = inputs["input_ids"], inputs["attention_mask"]
        assert mask.sum(1).tolist() == [lengths[number] for number in index]
        for row, number in zip(ids, index, strict=True):
            assert row[: lengths[number]].tolist() == [number + 1] * lengths[number]
        assert ids.size <= BATCH_SLOTS or len(index) == 1
        assert (mask == 0).sum() <= max(PADDING_SLOTS, ids.size // 4)
        seen += index
    assert sorted(seen) == list(range(len(lengths)))
    outputs = padded_outputs(lambda inputs: inputs["input_ids"][:, :1] + np.arange(2), examples, [1, 0])
    assert outputs.tolist() == [[number + 2, number + 1] for number in range(len(lengths))]


def test_texts_come_from_the_user_else_from_the_run(tmp_path):
    """Without a test, what calibrates is not compared on, if there is enough of it."""
    encoder = new_encoder()
    many = tmp_path / "many.txt"
    many.write_text("\n".join(f"w{i % 90} w{i // 90}" for i in range(700)))
    bare = Export(encoder, None, None, ModelFolder(tmp_path), {}, False, TextReading(32))
    found = find_texts(bare, None, str(many), RunTables())
    assert found is not None
    compared, calibration = (set(each.data.table.texts) for each in found)
    assert (len(compared), len(calibration), len(compared & calibration)) == (400, 300, 0)
    assert find_texts(bare, None, None, RunTables()) is None

    folder = classifier(tmp_path)
    task = task_export(folder / "model")
    (folder / "own.tsv").write_text("what\tclass\nw1 w2\ta\nw3\tb\n")
    layout = FileLayout(columns=Columns(text="what", label="class"))
    run = RunTables(test=folder / "own.tsv", layout=layout)
    found = find_texts(task, None, None, run)
    assert found is not None
    assert found[0].labelled
    assert [*found[0].data.table.texts] == [*found[1].data.table.texts] == ["w1 w2", "w3"]


def test_rows_that_the_run_held_out_are_compared_on_and_calibrate_nothing(tmp_path):
    task = task_export(classifier(tmp_path) / "model")
    test = np.array([1, 5, 70])
    run = RunTables(train=tmp_path / "test.tsv", held_out={"test": test, "dev": np.array([2])})
    every = task.read(tmp_path / "test.tsv", run.layout, labelled=True).data.table.texts
    found = find_texts(task, None, None, run)
    assert found is not None
    compared, calibration = found
    assert compared.labelled
    assert compared.file.name == "test.tsv, its test rows"
    assert list(compared.data.table.texts) == [every[row] for row in test]
    rest = [text for row, text in enumerate(every) if row not in (1, 2, 5, 70)]
    assert list(calibration.data.table.texts) == rest
    found = find_texts(task, str(tmp_path / "test.tsv"), None, run)
    assert found is not None
    assert [len(each.data) for each in found] == [80, 76]
