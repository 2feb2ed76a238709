"""A model's folder, opened once: what it is, and what its JSON files say."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from brimful.base.errors import BrimfulError
from brimful.hf import model_folder
from brimful.hf.folders import HEADS
from brimful.hf.model_folder import PROBLEMS, ModelFolder
from brimful.model.heads import SequenceHead, SpanHead, TokenHead


def write(folder: Path, **values: Any) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(values))
    return folder


@pytest.mark.parametrize(("kind", "found"), [("encoder", "encoder"), ("model", "model"), ("start", "start")])
def test_a_run_opens_at_its_preferred_folder(tmp_path: Path, kind: str, found: str) -> None:
    for name in ("encoder", "model", "start"):
        write(tmp_path / name)
    assert ModelFolder.open(tmp_path, kind).path == tmp_path / found


def test_a_run_with_another_folder_alone_opens_there(tmp_path: Path) -> None:
    write(tmp_path / "model")
    folder = ModelFolder.open(str(tmp_path), "encoder")
    assert folder.path == tmp_path / "model"
    assert str(folder) == str(tmp_path / "model")
    assert ModelFolder.open(folder, "encoder") is folder


def test_no_model_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(BrimfulError, match="holds no model: expected"):
        ModelFolder.open(tmp_path, "model")
    with pytest.raises(BrimfulError, match="holds no model: there is no such folder"):
        ModelFolder.open(tmp_path / "none", "model")
    (tmp_path / "text").mkdir()
    (tmp_path / "text" / "MANIFEST.json").write_text("{}")
    with pytest.raises(BrimfulError, match="it is prepared text; brimful pretrain --data"):
        ModelFolder.open(tmp_path / "text", "model")
    (tmp_path / "config.yaml").write_text("seed: 0\n")
    with pytest.raises(BrimfulError, match="the run is not finished; continue it with --resume"):
        ModelFolder.open(tmp_path, "model")


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
def test_what_a_folder_is(tmp_path: Path, values: dict[str, Any], task: bool) -> None:
    assert ModelFolder(write(tmp_path, **values)).has_task == task


def test_each_file_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []

    def counted(path: Path) -> dict[str, Any]:
        read.append(path.name)
        return json.loads(path.read_text())

    monkeypatch.setattr(model_folder, "read_object", counted)
    folder = ModelFolder.open(write(tmp_path, architectures=["BertModel"]), "model")
    for _ in range(2):
        assert not folder.has_task
        assert folder.class_name == "BertModel"
        assert folder.pooling is None
    assert read == ["config.json"]


def test_heads_of_tasks_have_their_names_here_too() -> None:
    assert {HEADS[head] for head in (SequenceHead, TokenHead, SpanHead)} == PROBLEMS.keys()


def test_it_loads_no_torch() -> None:
    code = "import brimful.hf.model_folder, sys; print('torch' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert found.stdout == "False\n"
