"""`brimful distil`: who may teach, and what a student learns of models, files of scores and labels."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from brimful import Encoder
from brimful.base.console import recorded_warnings
from brimful.base.errors import BrimfulError, UsageError
from brimful.base.storage import read_json
from brimful.commands.distil import distil
from brimful.commands.distil_encoder import distil_encoder
from brimful.commands.predict import predict
from brimful.hf.folders import load_model, save_model
from brimful.hf.model_folder import ModelFolder
from brimful.stages.distil_encoder import EncoderTeacher
from brimful.stages.distil_options import DistilConfig
from brimful.stages.run_tables import tables_of_run
from brimful.stages.teachers import read_scores
from brimful.tables.layouts import Columns, FileLayout
from brimful.tables.table import Table
from brimful.tasks.classification import Classification
from brimful.tasks.encoded import encode
from brimful.tasks.model import load_task_model
from brimful.tasks.task_files import RunTables
from builders.distillation import CALM, EPOCH, ROWS, assert_same
from builders.encoders import small, word_tokenizer
from builders.training import RUNTIME


@pytest.fixture(scope="module")
def of_model(teacher: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The student of the model's outputs alone, from the encoder before fine-tuning."""
    out = tmp_path_factory.mktemp("of_model") / "run"
    distil(teacher=str(teacher), student=str(teacher.parent / "encoder"), out=str(out), **CALM)
    return out


def test_what_is_no_teacher_says_so(teacher, tmp_path):
    with pytest.raises(BrimfulError, match="holds no model"):
        distil(teacher=str(tmp_path), out=str(tmp_path / "run"))
    with pytest.raises(UsageError, match=r"not a run of `brimful finetune`.*give --train and --test"):
        distil(teacher=str(teacher / "model"), out=str(tmp_path / "run"))
    with pytest.raises(
        UsageError, match=r"^distil needs --teacher or --teacher-scores and --out, or --resume RUN$"
    ):
        distil(out=str(tmp_path / "run"))
    with pytest.raises(UsageError, match=r"^distil needs --teacher or .*--out, or --resume RUN$"):
        distil(teacher=str(teacher))
    with pytest.raises(UsageError, match=r"^without a model as --teacher, .* give --train and --test$"):
        distil(teacher_scores="s.jsonl", test="rows.tsv", out=str(tmp_path / "run"))
    with pytest.raises(UsageError, match="distilling an encoder needs texts"):
        distil_encoder(teacher=str(teacher.parent / "encoder"), out=str(tmp_path / "run"))
    with pytest.raises(BrimfulError, match="encoder is an encoder without a task: `brimful distil-encoder`"):
        distil(teacher=str(teacher.parent / "encoder"), out=str(tmp_path / "run"))
    with pytest.raises(UsageError, match=r"^distil-encoder needs --teacher and --out"):
        distil_encoder(out=str(tmp_path / "run"))


def test_a_teacher_of_another_version_says_so(teacher, tmp_path):
    shutil.copytree(teacher, tmp_path / "old")
    with (tmp_path / "old" / "config.yaml").open("a") as config:
        config.write("reinit_top: 0\n")
    with recorded_warnings() as said, pytest.raises(UsageError) as refused:
        distil(teacher=str(tmp_path / "old"), out=str(tmp_path / "run"))
    why = "old was written by another version of Brimful: unknown key reinit_top"
    assert why in str(refused.value)
    assert str(refused.value).endswith("give --train and --test")
    assert f"{why}: its tables and metric are not used" in said[0]


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"encoder": "e", "train": "t.tsv", "label_curve": []}, "unknown key label_curve"),
        ({"encoder": "e", "train": "t.tsv", "trainer": {"wandb": ""}}, "unknown key trainer.wandb"),
        ({"teacher": "t", "logits": {"loss": "soft"}}, "unknown key logits.loss"),
        ({"teacher": ["t"], "logits": {}}, "key teacher"),
        ({"data": "d"}, None),
    ],
)
def test_the_columns_of_a_run_of_another_version_are_known(options, why, tmp_path):
    (tmp_path / "summary.json").write_text("{}")
    (tmp_path / "config.yaml").write_text(json.dumps({**options, "columns": {"text": "body"}}))
    with recorded_warnings() as said:
        found = tables_of_run(ModelFolder(tmp_path / "model"))
    assert found == RunTables(layout=FileLayout(columns=Columns(text="body")))
    assert len(said) == (why is not None)
    assert why is None or (str(tmp_path) in said[0] and why in said[0])


def test_vectors_are_those_of_the_teacher_with_its_prompt(tmp_path: Path) -> None:
    encoder = small("bert", layers=1, max_length=40)
    encoder.tokenizer = word_tokenizer()
    modules = {"pooling": "max", "max_length": 12, "prompt": "w7 w8 "}
    save_model(tmp_path / "teacher", encoder, modules=modules)
    teacher = EncoderTeacher.load(str(tmp_path / "teacher"))
    student = Encoder.load(tmp_path / "teacher")
    assert not teacher.reads_as(student, 12)
    texts = ["w1", "w2 w3", " ".join(f"w{n}" for n in range(20))]
    data = encode(Table(Path("texts"), texts, None, None), student.tokenizer, 40)
    found = teacher.vectors(data, False, RUNTIME)
    np.testing.assert_allclose(found, student.embed(texts, precision="fp32"), atol=1e-6)
    assert np.abs(found - student.embed([f"w9 {text}" for text in texts], precision="fp32")).max() > 1e-3


def test_a_teacher_whose_encoder_has_moved_says_what_to_do(teacher, tmp_path):
    shutil.copytree(teacher, tmp_path / "moved")
    config = tmp_path / "moved" / "config.yaml"
    config.write_text(config.read_text().replace(str(teacher.parent / "encoder"), "/gone"))
    given = {"teacher": str(tmp_path / "moved"), "out": str(tmp_path / "run"), "dry_run": True}
    with pytest.raises(BrimfulError, match=r"fine-tuned from, but /gone .* or --initialisation teacher"):
        distil(**given, initialisation="pretrained")
    assert distil(**given)["dry_run"]


def test_teachers_of_another_task_and_pairs_among_single_texts_are_refused(teacher, tmp_path):
    out = str(tmp_path / "run")
    with pytest.raises(BrimfulError, match=r"is a model of classification, not of regression"):
        distil(teacher=str(teacher), task="regression", out=out)
    (tmp_path / "pairs.tsv").write_text("text\ttext_b\na\tb\n")
    with pytest.raises(BrimfulError, match=r"pairs.tsv has pairs of texts, .*rows.tsv single ones"):
        distil(teacher=str(teacher), unlabelled=[str(tmp_path / "pairs.tsv")], out=out)
    with pytest.raises(BrimfulError, match="--student has a shape and weights"):
        DistilConfig(student="s", initialisation="random")


def test_a_teacher_whose_labels_have_another_order_teaches_the_same(teacher, of_model, tmp_path):
    encoder, head, _ = load_model(teacher / "model")
    with torch.no_grad():
        for tensor in (head.classifier.weight, head.classifier.bias):
            tensor.copy_(tensor.flip(0))
    save_model(tmp_path / "swapped", encoder, head, ["yes", "no"], max_length=16)
    tables = {name: str(teacher.parent / "rows.tsv") for name in ("train", "test")}
    student = str(teacher.parent / "encoder")
    given = {"teacher": str(tmp_path / "swapped"), "student": student, "out": str(tmp_path / "run")}
    summary = distil(**given, **tables, **CALM)
    assert_same(tmp_path / "run", of_model, 1e-6)
    assert summary["teacher"]["accuracy"] == read_json(of_model / "summary.json")["teacher"]["accuracy"]
    save_model(tmp_path / "nameless", encoder, head, ["LABEL_0", "LABEL_1"], max_length=16)
    with pytest.raises(BrimfulError, match=r"has the labels LABEL_0, LABEL_1, the training table no, yes"):
        distil(**given | {"teacher": str(tmp_path / "nameless"), "out": str(tmp_path / "other")}, **tables)


def test_one_model_gives_its_logits_as_they_are(teacher, tmp_path):
    """Also where the student reads other tokens: no temperature calibrates them."""
    encoder = Encoder.load(teacher.parent / "encoder")
    state = json.loads(encoder.tokenizer.to_str())
    state["pre_tokenizer"] = None
    encoder.tokenizer = type(encoder.tokenizer).from_str(json.dumps(state))
    encoder.save(tmp_path / "other")
    shutil.copytree(teacher, tmp_path / "calibrated")
    config = tmp_path / "calibrated" / "model" / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"calibration_temperature": 4.0}))
    assert load_task_model(tmp_path / "calibrated").temperature == 4.0
    given = {"student": str(tmp_path / "other"), **CALM}
    distil(teacher=str(teacher), out=str(tmp_path / "a"), **given)
    distil(teacher=str(tmp_path / "calibrated"), out=str(tmp_path / "b"), **given)
    assert_same(tmp_path / "a", tmp_path / "b", 1e-6)


def test_a_student_of_other_tokens_imitates_outputs_alone(teacher, tmp_path, capsys):
    """The layers of a teacher with another tokenizer are left out, and a line says so."""
    encoder = Encoder.load(teacher.parent / "encoder")
    state = json.loads(encoder.tokenizer.to_str())
    state["pre_tokenizer"] = None
    encoder.tokenizer = type(encoder.tokenizer).from_str(json.dumps(state))
    encoder.save(tmp_path / "other")
    more = {"layers": EPOCH, "logits": EPOCH, "precision": "fp32"}
    distil(teacher=str(teacher), student=str(tmp_path / "other"), out=str(tmp_path / "run"), **more)
    assert [path.name for path in (tmp_path / "run/stages/seed-0").iterdir()] == ["logits"]
    assert "does not read the student's tokens: its outputs alone" in capsys.readouterr().err


@pytest.mark.parametrize("suffix", [".jsonl", ".tsv", ".csv", ".parquet"])
def test_a_file_of_scores_teaches_as_the_model_does(teacher, of_model, tmp_path, suffix):
    """The logarithms of the probabilities are the logits but for a constant, so the student is the same up to
    the digits of the file."""
    tables = {name: str(teacher.parent / "rows.tsv") for name in ("train", "test")}
    file, student = tmp_path / f"scores{suffix}", str(teacher.parent / "encoder")
    predict(model=str(teacher), input=tables["train"], output=str(file), scores=True)
    scores = {"teacher_scores": str(file), "student": student, **tables, "max_length": 16}
    summary = distil(out=str(tmp_path / "run"), **scores, **CALM)
    assert_same(tmp_path / "run", of_model, 2e-4)
    expected = read_json(of_model / "summary.json")
    assert summary["teacher"]["accuracy"] == expected["teacher"]["accuracy"]
    assert not (tmp_path / "run" / "stages" / "seed-0" / "layers").exists()


def test_a_column_for_each_label_in_any_order(teacher, of_model, tmp_path):
    tables = {name: str(teacher.parent / "rows.tsv") for name in ("train", "test")}
    file = tmp_path / "scores.tsv"
    rows = load_task_model(teacher).predict([text for text, _ in ROWS], scores=True)
    lines = ["text\tyes\tother\tno"]
    for (text, _), row in zip(ROWS, rows, strict=True):
        lines.append(f"{text}\t{row['scores']['yes']}\t0\t{row['scores']['no']}")
    file.write_text("\n".join([lines[0], *reversed(lines[1:])]) + "\n")
    student = str(teacher.parent / "encoder")
    distil(
        out=str(tmp_path / "run"),
        teacher_scores=str(file),
        student=student,
        max_length=16,
        **tables,
        **CALM,
    )
    assert_same(tmp_path / "run", of_model, 2e-4)


def test_scores_teach_in_place_of_the_teachers_outputs(teacher, tmp_path):
    """A student of a teacher's layers learns what the file says."""
    lines = [json.dumps({"text": text, "scores": {"yes": 0.5, "no": 0.5}}) for text, _ in ROWS]
    (tmp_path / "s.jsonl").write_text("\n".join(lines))
    long = CALM | {"logits": {"epochs": 60.0, "learning_rate": 3e-3}}
    distil(teacher=str(teacher), teacher_scores=str(tmp_path / "s.jsonl"), out=str(tmp_path / "run"), **long)
    answers = load_task_model(tmp_path / "run").predict([text for text, _ in ROWS], scores=True)
    assert all(abs(row["scores"]["yes"] - 0.5) < 0.05 for row in answers)


@pytest.mark.slow
def test_hard_labels_are_learned_beside_the_teacher(teacher, tmp_path):
    """A teacher that knows nothing, and labels of great weight."""
    tables = {name: str(teacher.parent / "rows.tsv") for name in ("train", "test")}
    lines = [json.dumps({"text": text, "scores": {"yes": 0.5, "no": 0.5}}) for text, _ in ROWS]
    (tmp_path / "flat.jsonl").write_text("\n".join(lines))
    (tmp_path / "more.txt").write_text("good and nice\n")
    logits = {"epochs": 60.0, "learning_rate": 3e-3, "labels": 10.0}
    given = {"teacher_scores": str(tmp_path / "flat.jsonl"), "student": str(teacher.parent / "encoder")}
    summary = distil(out=str(tmp_path / "run"), **given, **tables, max_length=16, **CALM | {"logits": logits})
    assert summary["student"]["accuracy"] == 1.0
    given |= {"unlabelled": [str(tmp_path / "more.txt")]}
    with pytest.raises(
        BrimfulError, match=r"flat.jsonl has no scores of 'good and nice' \(.*more.txt, row 1\)"
    ):
        distil(out=str(tmp_path / "other"), **given, **tables)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        (
            "a.jsonl",
            '{"text": "good fine nice", "scores": {"yes": 0.5, "no": 0.5}}',
            "has no scores of 'bad awful poor' .*rows.tsv, line 3.; 3 of the 4 texts have none",
        ),
        ("a.jsonl", '{"text": "a", "scores": {"yes": 0.5}}', "line 1 has no score of 'no'"),
        (
            "a.jsonl",
            '{"text": "a", "scores": {"yes": 2.5, "no": -1.5}}',
            "are no probabilities, which add up",
        ),
        ("a.jsonl", '{"text": "a", "scores": {"yes": 0.5, "no": 0.4}}', "are no probabilities, which add up"),
        ("a.jsonl", '{"text": "a", "scores": {"yes": 1.001, "no": -0.001}}', "are no probabilities"),
        ("a.jsonl", '{"text": "a", "scores": {"yes": NaN, "no": 0.4}}', "are not all finite numbers"),
        (
            "a.jsonl",
            '{"text": "a", "scores": [0.5, 0.5]}',
            "line 1 has no scores: it needs scores, an object",
        ),
        ("a.jsonl", '{"texts": "a"}', "has no 'text'"),
        ("a.tsv", "text\tscores\na\t{yes", "is not JSON"),
        ("a.tsv", "text\tyes\na\t1\n", "a.tsv, line 2 has no score of 'no'"),
        ("a.txt", "a", "scores are .tsv, .csv, .jsonl, .parquet files"),
        ("b.jsonl", None, "cannot read"),
    ],
)
def test_files_that_are_no_scores_are_refused(teacher, tmp_path, name, content, said):
    tables = {name: str(teacher.parent / "rows.tsv") for name in ("train", "test")}
    if content is not None:
        (tmp_path / name).write_text(content)
    with pytest.raises(BrimfulError, match=said):
        distil(
            teacher_scores=str(tmp_path / name),
            student=str(teacher.parent / "encoder"),
            out=str(tmp_path / "run"),
            **tables,
        )
    assert not (tmp_path / "run").exists()


def test_a_dry_run_refuses_what_the_run_would(teacher, tmp_path):
    rows, encoder = str(teacher.parent / "rows.tsv"), str(teacher.parent / "encoder")
    given = {"train": rows, "test": rows, "student": encoder, "out": str(tmp_path / "run"), "dry_run": True}
    (tmp_path / "s.jsonl").write_text('{"text": "a", "scores": {"yes": 0.5, "no": 0.5}}')
    with pytest.raises(BrimfulError, match=r"s.jsonl has no scores of 'good fine nice'"):
        distil(**given, teacher_scores=str(tmp_path / "s.jsonl"))


def test_the_scores_of_a_repeated_text_are_averaged_and_a_file_of_other_texts_is_refused(tmp_path):
    task = Classification(["a", "b"])
    table = Table(tmp_path / "t.tsv", ["x", "y"], None, None)
    rows = [("x", 0.2), ("y", 0.5), ("x", 0.6)]
    lines = [json.dumps({"text": text, "scores": {"a": p, "b": 1 - p}}) for text, p in rows]
    (tmp_path / "s.jsonl").write_text("\n".join(lines))
    found, _ = read_scores(tmp_path / "s.jsonl", task, [table], table)
    np.testing.assert_allclose(found, [[0.4, 0.6], [0.5, 0.5]], atol=1e-6)
    other = Table(tmp_path / "u.tsv", ["z"], None, None)
    with pytest.raises(BrimfulError, match=r"s.jsonl has no scores of 'z' \(.*u.tsv"):
        read_scores(tmp_path / "s.jsonl", task, [other], other)
