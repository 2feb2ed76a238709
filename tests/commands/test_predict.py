"""`brimful predict` on files of any size: every answer stands where its text stands, in every format."""

import csv
import json
import os
import re
import shutil
import subprocess
import sys
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import load_file, save_file

import brimful
from brimful import BrimfulError, Encoder, TaskModel
from brimful.base.storage import temporary_path
from brimful.cli.main import main
from brimful.hf.folders import save_model
from brimful.model.heads import SequenceHead, SpanHead, TokenHead
from brimful.serving import torch_models
from brimful.tables import table_files
from brimful.tasks import task_model
from brimful.tasks.question_answering import QuestionAnswering
from builders.served import nearly
from builders.tables import write_rows
from builders.task_models import new_encoder

LABELS = ["bad", "good", "unsure"]
RANDOM = np.random.default_rng(5)
TEXTS = [" ".join(f"w{i}" for i in RANDOM.integers(0, 90, n)) for n in RANDOM.integers(1, 60, 70)]


@pytest.fixture(scope="module")
def classifier(tmp_path_factory):
    folder, encoder = tmp_path_factory.mktemp("classifier") / "model", new_encoder()
    save_model(folder, encoder, SequenceHead(encoder, 3), LABELS, problem_type="single_label_classification")
    return folder


@pytest.fixture(scope="module")
def tagger(tmp_path_factory):
    folder, encoder = tmp_path_factory.mktemp("tagger") / "model", new_encoder()
    save_model(folder, encoder, TokenHead(encoder, 3), ["O", "B-X", "I-X"])
    return folder


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    folder = tmp_path_factory.mktemp("encoder") / "encoder"
    new_encoder().save(folder)
    return folder


@pytest.fixture
def _slices_of_7(monkeypatch):
    """Files are read in slices of seven texts."""
    monkeypatch.setattr(table_files, "SLICE_TEXTS", 7)
    monkeypatch.setattr(task_model, "TEXTS_AT_ONCE", 7)


def written(folder: Path, suffix: str) -> str:
    """A file of the texts."""
    path = folder / f"texts{suffix}"
    if suffix == ".txt":
        path.write_text("".join(f"{text}\n" for text in TEXTS))
    else:
        write_rows(path, [{"text": text} for text in TEXTS])
    return str(path)


def predicted(model: Path, folder: Path, name: str = "out.jsonl", given: str = ".txt", **options) -> Path:
    """Predict the texts, and return the file."""
    done = brimful.predict(
        model=str(model), input=written(folder, given), output=str(folder / name), **options
    )
    assert (done["texts"], done["output"]) == (len(TEXTS), str(folder / name))
    return folder / name


def read(path: Path) -> list[dict]:
    if path.suffix == ".jsonl":
        return [json.loads(line) for line in path.read_text().splitlines()]
    if path.suffix == ".parquet":
        return pq.read_table(path).to_pylist()
    with open(path, newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t" if path.suffix == ".tsv" else ","))
    return [
        row | {"probability": float(row["probability"]), "scores": json.loads(row["scores"])} for row in rows
    ]


@pytest.mark.usefixtures("_slices_of_7")
@pytest.mark.parametrize(
    ("given", "wanted"), [(".txt", ".jsonl"), (".jsonl", ".tsv"), (".tsv", ".csv"), (".csv", ".parquet")]
)
def test_answers_are_those_of_the_texts_alone_in_every_format(classifier, tmp_path, given, wanted):
    rows = read(predicted(classifier, tmp_path, f"out{wanted}", given, scores=True))
    model = TaskModel.load(classifier)
    assert len(rows) == len(TEXTS)
    for row, text in list(zip(rows, TEXTS, strict=True))[::6]:
        [alone] = model.predict([text], scores=True)
        assert list(row) == ["row", "text", "prediction", "probability", "scores"]
        assert row["text"] == text
        assert row["prediction"] == alone["prediction"] == max(row["scores"], key=row["scores"].get)
        assert row["probability"] == pytest.approx(alone["probability"], abs=2e-6)
        assert row["scores"] == pytest.approx(alone["scores"], abs=1e-6)
        assert sum(row["scores"].values()) == pytest.approx(1)


def test_all_of_a_model_moves_to_the_device(classifier, tmp_path, monkeypatch):
    """The head too. A device that computes nothing stands for a GPU."""

    class EnoughError(Exception):
        pass

    def outputs(self: TaskModel, examples, precision):
        weights = [*self.encoder.parameters(), *self.head.parameters()]
        assert {weight.device for weight in weights} == {torch.device("meta")}
        raise EnoughError

    monkeypatch.setattr(torch_models, "default_device", lambda: torch.device("meta"))
    monkeypatch.setattr(TaskModel, "outputs", outputs)
    with pytest.raises(EnoughError):
        predicted(classifier, tmp_path)


@pytest.mark.usefixtures("_slices_of_7")
def test_an_array_holds_the_scores(classifier, tmp_path):
    array = np.load(predicted(classifier, tmp_path, "out.npy"), allow_pickle=False)
    rows = TaskModel.load(classifier).predict(TEXTS, scores=True)
    assert (array.dtype, array.shape) == (np.float32, (len(TEXTS), 3))
    np.testing.assert_allclose(array, [list(row["scores"].values()) for row in rows], atol=1e-6)


@pytest.mark.usefixtures("_slices_of_7")
@pytest.mark.parametrize(
    ("suffix", "pooling"), [(".npy", "mean"), (".parquet", "first"), (".jsonl", "mean"), (".csv", "first")]
)
def test_an_encoder_writes_the_vectors_of_embed(plain, tmp_path, suffix, pooling):
    output = predicted(plain, tmp_path, f"out{suffix}", pooling=pooling)
    if suffix == ".npy":
        vectors = np.load(output, allow_pickle=False)
        assert vectors.dtype == np.float32
    elif suffix == ".csv":
        with open(output, newline="") as file:
            vectors = np.array([json.loads(row["vector"]) for row in csv.DictReader(file)])
    else:
        vectors = np.array([row["vector"] for row in read(output)])
    np.testing.assert_allclose(vectors, Encoder.load(plain).embed(TEXTS, pooling), atol=1e-5)


@pytest.mark.parametrize("suffix", [".parquet", ".jsonl"])
def test_spans_whose_first_texts_have_none(tagger, tmp_path, monkeypatch, suffix):
    """Parquet needs the type of a list before it can be written; the first parts have only empty lists."""
    monkeypatch.setattr(table_files, "SLICE_TEXTS", 2)
    source = tmp_path / "texts.txt"
    source.write_text("\n" * 5 + "".join(f"{text}\n" for text in TEXTS[:9]) + "\n")
    output = tmp_path / f"out{suffix}"
    brimful.predict(model=str(tagger), input=str(source), output=str(output))
    rows = read(output)
    assert [row["row"] for row in rows] == list(range(1, 16))
    assert [row["prediction"] for row in rows[:5]] == [[]] * 5
    assert any(row["prediction"] for row in rows)
    wanted = TaskModel.load(tagger).predict([""] * 5 + TEXTS[:9] + [""])
    for row, expected in zip(rows, wanted, strict=True):
        assert nearly(row["prediction"], expected["prediction"])


def test_what_a_killed_predict_left_is_removed(classifier, tmp_path):
    left = temporary_path(tmp_path / "out.jsonl")
    left = left.with_name(left.name.replace(f"-{os.getpid()}-", "-0999999999-"))
    left.write_text("half")
    predicted(classifier, tmp_path)
    assert not left.exists()


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("a.jsonl", '{"text": "w1"}\n' * 30 + '{"txet": "w1"}\n', "line 31"),
        ("a.jsonl", '{"text": "w1"}\n' * 30 + '{"text": "a\\ud83d"}\n', r"a\.jsonl, line 31 holds half"),
        ("a.jsonl", '{"text": "w1"}\n' * 7 + '{"text": "w1", "text_b": "w2"}\n' * 7, "line 1 has no text_b"),
        ("a.jsonl", '{"text": "w1", "text_b": "w2"}\n' * 7 + '{"text": "w1"}\n' * 7, "line 8 has no text_b"),
        ("a.txt", "\n" * 40, "holds no text"),
        ("absent.txt", None, "No such file"),
    ],
)
def test_a_wrong_row_is_named_before_anything_is_computed(
    classifier, tmp_path, monkeypatch, name, content, reason
):
    monkeypatch.setattr(table_files, "SLICE_TEXTS", 7)
    monkeypatch.setattr(task_model, "TEXTS_AT_ONCE", 7)
    monkeypatch.setattr(TaskModel, "answers", None)
    if content is not None:
        (tmp_path / name).write_text(content)
    output = tmp_path / "out.jsonl"
    with pytest.raises(BrimfulError, match=reason):
        brimful.predict(model=str(classifier), input=str(tmp_path / name), output=str(output))
    assert not output.exists()


@pytest.mark.usefixtures("_slices_of_7")
def test_questions_at_the_end_are_checked_before_anything_is_computed(tmp_path, monkeypatch):
    encoder = new_encoder()
    TaskModel(QuestionAnswering(), encoder, SpanHead(encoder), 32, 8).save(tmp_path / "model")
    monkeypatch.setattr(TaskModel, "answers", None)
    rows = [{"id": str(row), "question": "w1", "context": "w2 w3"} for row in range(20)]
    source = tmp_path / "a.jsonl"
    write_rows(source, [*rows, {"question": "w1 " * 30, "context": "w2 " * 40}])
    with pytest.raises(BrimfulError, match="line 21: the first text has 30 tokens"):
        brimful.predict(model=str(tmp_path / "model"), input=str(source), output=str(tmp_path / "out.jsonl"))


def test_what_cannot_be_is_refused(classifier, tagger, plain, tmp_path):
    source = written(tmp_path, ".txt")
    for model, options, reason in [
        (tagger, {"scores": True}, "no scores of whole texts"),
        (tagger, {"output": "x.npy"}, "no scores of whole texts"),
        (plain, {"scores": True}, "an encoder"),
        (classifier, {"output": "x.txt"}, "must end in"),
        (classifier, {"input": "a/../own.jsonl", "output": "own.jsonl"}, "is the input; name another file"),
        (classifier, {"overlap": 200}, "overlap"),
        (classifier, {"max_length": 129}, "max_length"),
        (classifier, {"pooling": "mean"}, "--pooling is for encoders"),
    ]:
        with pytest.raises(BrimfulError, match=reason):
            brimful.predict(**{"model": str(model), "input": source, "output": "out.jsonl"} | options)


@pytest.mark.parametrize("value", [torch.nan, 3e38])
def test_a_model_of_weights_that_are_not_finite_or_overflow_is_named(classifier, plain, tmp_path, value):
    for folder, name in (classifier, "bert.pooler.dense.bias"), (plain, "embeddings.LayerNorm.weight"):
        damaged = tmp_path / folder.name
        shutil.copytree(folder, damaged)
        tensors = load_file(damaged / "model.safetensors")
        tensors[name][::2] = value
        if name.endswith("dense.bias"):  # tanh makes 1 of what is too large
            tensors["classifier.weight"][:] = value
        save_file(tensors, damaged / "model.safetensors")
        said = f"{damaged}: the model's outputs are NaN or infinite"
        if value != 3e38:
            said = rf"{damaged}/model.safetensors: the tensor {name} holds NaN or infinite numbers"
        with pytest.raises(BrimfulError, match=said):
            predicted(damaged, tmp_path)
    encoder = Encoder.load(tmp_path / plain.name)
    for read in (encoder.embed, encoder.encode):
        with pytest.raises(BrimfulError, match="the model's outputs are NaN or infinite"):
            read(["w1 w2", "w3"])


def test_a_warning_says_that_texts_are_cut(classifier, plain, monkeypatch, capfd):
    monkeypatch.setattr(table_files, "SLICE_TEXTS", 2)
    model = replace(TaskModel.load(classifier), max_length=16)
    texts = ["w1", "w2 " * 20, "w3", "w4 " * 14, "w5 " * 15]
    model.predict(texts)
    assert "texts of more than 16 tokens are cut there; replace(model, overlap=32)" in capfd.readouterr().err
    replace(model, overlap=4).predict(texts)
    encoder = Encoder.load(plain)
    encoder.embed(texts)
    assert not capfd.readouterr().err
    encoder.embed(texts, max_length=16)
    assert "texts of more than 16 tokens are cut there; raise max_length" in capfd.readouterr().err
    encoder.encode([*texts, "w6 " * 200])
    assert "texts of more than 128 tokens are cut there; the encoder" in capfd.readouterr().err


@pytest.mark.usefixtures("library")
def test_a_warning_counts_empty_texts_in_memory(classifier, plain):
    model, encoder = TaskModel.load(classifier), Encoder.load(plain)
    for call in (model.predict, encoder.embed, encoder.encode):
        with pytest.warns(brimful.BrimfulWarning, match=r"^2 texts \(texts\[1\], \.\.\.\) are empty$"):
            assert len(call(text for text in ["w1", "", " \n", "w2"])) == 4
        with pytest.warns(brimful.BrimfulWarning, match=r"^1 text \(texts\[0\]\) is empty$"):
            call(["", "w1"])


@pytest.mark.usefixtures("library")
def test_a_program_that_predicts_is_warned_once_in_its_own_line(classifier):
    model = replace(TaskModel.load(classifier), max_length=16)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("default")
        for number in range(1, 4):
            model.predict(["w1", "w2 " * 20 * number] * number)
    assert [(one.category, one.filename) for one in said] == [(brimful.BrimfulWarning, __file__)]


@pytest.mark.usefixtures("_slices_of_7")
def test_texts_of_any_number_in_memory(classifier):
    model = TaskModel.load(classifier)
    assert model.predict([]) == []
    for columns in ([TEXTS[:16]], [TEXTS[:9], TEXTS[9:18]]):
        together = model.predict(*(iter(column) for column in columns))
        alone = [model.predict(*([text] for text in row))[0] for row in zip(*columns, strict=True)]
        assert [row["prediction"] for row in together] == [row["prediction"] for row in alone]
    encoder = brimful.Encoder.load(classifier)
    for wrong in ("w1", b"w1", {"text": "w1"}):
        for reads in (model.predict, encoder.embed):
            with pytest.raises(BrimfulError, match=f"list of strings, not a {type(wrong).__name__}"):
                reads(wrong)
    with pytest.raises(BrimfulError, match="2 texts cannot be paired with 1"):
        model.predict(["w1", "w2"], ["w3"])


def test_the_end_is_a_sentence_and_names_the_columns_of_an_array(classifier, tmp_path, capsys):
    labels, array = tmp_path / "labels.tsv", tmp_path / "scores.npy"
    line = ["predict", "--model", str(classifier), "--input", written(tmp_path, ".txt"), "--output"]
    assert main([*line, str(labels), "--dry-run"]) == 0
    assert "70 texts" in capsys.readouterr().out
    assert main([*line, str(labels), "--abstain-below", "0.99", "--precision", "fp32"]) == 0
    assert re.match(rf"70 texts .* fp32\), \d+ of them .* {labels}\n", capsys.readouterr().out)
    assert main([*line, str(array), "--precision", "bf16"]) == 0
    assert re.search(rf"bf16\) .*scores.npy, columns {', '.join(LABELS)}\n", capsys.readouterr().out)
    assert main([*line, str(array), "--precision", "fp32", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert (result["precision"], result["columns"]) == ("fp32", LABELS)


def test_stdin_and_stdout_are_streams_of_rows_alone(classifier, tmp_path):
    texts = Path(written(tmp_path, ".txt")).read_bytes()
    command = [sys.executable, "-m", "brimful", "predict", "--model", str(classifier), "--precision", "fp32"]

    def pipe(output: str, *more: str, lines: bytes = texts, given: str = "-"):
        words = [*command, "--input", given, "--output", output, *more]
        return subprocess.run(words, input=lines, capture_output=True, check=False, timeout=300)

    for output in ("-", "-.tsv"):
        done = pipe(output)
        file = predicted(classifier, tmp_path, f"out{output[1:] or '.jsonl'}", precision="fp32")
        assert (done.returncode, done.stdout) == (0, file.read_bytes())
        assert re.search(rf"70 texts in .* -> {output}\n", done.stderr.decode())
    table = b"words\n" + texts
    assert pipe("-", "--columns.text", "words", lines=table, given="-.tsv").stdout == pipe("-").stdout
    for options, lines, said in [
        (("-",), b"", "stdin.txt holds no text"),
        (("-", "--json"), texts, "--json and --output - both write to stdout"),
        (("-.npy",), texts, "--output -.npy: the name must end in .jsonl, .tsv, .csv"),
    ]:
        done = pipe(*options, lines=lines)
        assert (done.returncode in (1, 2), done.stdout) == (True, b"")
        assert said in done.stderr.decode().splitlines()[-1]
    # The reader leaves after the first row; more rows than a pipe holds follow.
    (tmp_path / "many.txt").write_text("w1\n" * 5000)
    words = [*command, "--input", str(tmp_path / "many.txt"), "--output", "-"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert json.loads(process.stdout.readline())["row"] == 1
        process.stdout.close()
        assert b"Error" not in process.stderr.read()
    assert process.returncode == 141
