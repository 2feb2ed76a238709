"""`brimful distil`: who may teach, and what a student learns of models and labels."""

import json
import shutil
from pathlib import Path

import pytest
import torch

from brimful.base.console import record_warnings
from brimful.base.errors import BrimfulError, UsageError
from brimful.base.storage import read_json
from brimful.commands.distil import distil
from brimful.hf.folders import load_model, save_model
from brimful.hf.model_folder import ModelFolder
from brimful.stages.run_tables import find_run_tables
from brimful.tables.layouts import Columns, FileLayout
from brimful.tasks.cached_tables import RunTables
from builders.distillation import CALM, EPOCH, assert_same, save_with_other_tokens


@pytest.fixture(scope="module")
def of_model(teacher: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The student of the model's outputs alone, from the encoder before fine-tuning."""
    out = tmp_path_factory.mktemp("of_model") / "run"
    distil(teacher=str(teacher), student=str(teacher.parent / "encoder"), out=str(out), **CALM)
    return out


def test_a_teacher_of_another_version_says_so(teacher, tmp_path):
    shutil.copytree(teacher, tmp_path / "old")
    with (tmp_path / "old" / "config.yaml").open("a") as config:
        config.write("reinit_top: 0\n")
    with record_warnings() as said, pytest.raises(UsageError) as refused:
        distil(teacher=str(tmp_path / "old"), out=str(tmp_path / "run"))
    why = "old was written by another version of Brimful: unknown key reinit_top"
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
    with record_warnings() as said:
        found = find_run_tables(ModelFolder(tmp_path / "model"))
    assert found == RunTables(layout=FileLayout(columns=Columns(text="body")))
    assert len(said) == (why is not None)
    assert why is None or (str(tmp_path) in said[0] and why in said[0])


def test_a_teacher_whose_encoder_has_moved_says_what_to_do(teacher, tmp_path):
    shutil.copytree(teacher, tmp_path / "moved")
    config = tmp_path / "moved" / "config.yaml"
    config.write_text(config.read_text().replace(str(teacher.parent / "encoder"), "/gone"))
    given = {"teacher": str(tmp_path / "moved"), "out": str(tmp_path / "run"), "dry_run": True}
    with pytest.raises(BrimfulError, match=r"fine-tuned from, but /gone .* or --initialisation teacher"):
        distil(**given, initialisation="pretrained")
    assert distil(**given)["dry_run"]


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


def test_a_student_of_other_tokens_imitates_outputs_alone(teacher, tmp_path, capsys):
    """The layers of a teacher with another tokenizer are left out, and a line says so."""
    save_with_other_tokens(teacher.parent / "encoder", tmp_path / "other")
    more = {"layers": EPOCH, "logits": EPOCH, "precision": "fp32"}
    distil(teacher=str(teacher), student=str(tmp_path / "other"), out=str(tmp_path / "run"), **more)
    assert [path.name for path in (tmp_path / "run/stages/seed-0").iterdir()] == ["logits"]
    assert "does not read the student's tokens" in capsys.readouterr().err
