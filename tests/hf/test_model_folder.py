"""A model's folder, opened once: what it is, and what its JSON files say."""

import json
from pathlib import Path
from typing import Any

import pytest

from brimful.base.errors import BrimfulError
from brimful.hf.model_folder import ModelFolder


def write(folder: Path, **values: Any) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(values))
    return folder


@pytest.mark.parametrize("kind", ["encoder", "model", "start"])
def test_a_run_opens_at_its_preferred_folder_and_else_where_a_model_is(tmp_path, kind):
    for name in ("encoder", "model", "start"):
        write(tmp_path / "run" / name)
    assert ModelFolder.open(tmp_path / "run", kind).path == tmp_path / "run" / kind
    folder = ModelFolder.open(write(tmp_path / "other" / "model").parent, "encoder")
    assert str(folder) == str(tmp_path / "other" / "model")
    assert ModelFolder.open(folder, "encoder") is folder


def test_no_model_is_one_line(tmp_path):
    for name, file in (("empty", "x"), ("text", "MANIFEST.json"), ("run", "config.yaml")):
        (tmp_path / name).mkdir()
        (tmp_path / name / file).write_text("{}")
    for name, remedy in (
        ("empty", "expected config.json"),
        ("absent", "no such folder"),
        ("text", "brimful pretrain --data"),
        ("run", "--resume"),
    ):
        with pytest.raises(BrimfulError, match=f"{name} holds no model: .*{remedy}"):
            ModelFolder.open(tmp_path / name, "model")


def test_a_name_of_the_hub_is_answered_with_the_command_that_fetches_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").mkdir()
    for name, folder in (("google-bert/bert-base-chinese", "bert-base-chinese"), ("bert-base", "bert-base")):
        with pytest.raises(BrimfulError, match=f"hf download {name} --local-dir {folder}$"):
            ModelFolder.open(name, "encoder")
    for name in ("runs/bert", "/google-bert/bert-base-chinese", "runs2/a/bert"):  # slips in paths
        with pytest.raises(BrimfulError, match=r"there is no such folder$"):
            ModelFolder.open(name, "encoder")


@pytest.mark.parametrize(
    ("values", "task"),
    [
        ({"architectures": ["BertForSequenceClassification"]}, True),
        ({"architectures": ["ModernBertForTokenClassification"]}, True),
        ({"architectures": ["BertForQuestionAnswering"]}, True),
        ({"architectures": ["BertForMaskedLM"]}, False),
        ({"architectures": ["BertModel"], "problem_type": "regression"}, False),
        ({}, False),
    ],
)
def test_what_a_folder_is(tmp_path, values, task):
    assert ModelFolder(write(tmp_path, **values)).has_task == task
