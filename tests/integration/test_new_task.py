"""The task that CONTRIBUTING.md shows is short, and every verb knows it once its file is there."""

import importlib.util
import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest

import brimful
from brimful.tasks import registry, task_model
from builders.tables import write_rows
from builders.task_models import new_encoder

MOST_LINES = 80


@pytest.fixture
def task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> type:
    """The task of CONTRIBUTING.md, as if it was in the registry."""
    text = (Path(brimful.__file__).parents[1] / "CONTRIBUTING.md").read_text(encoding="utf-8")
    [code] = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert len(code.splitlines()) <= MOST_LINES
    path = tmp_path / "grades.py"
    path.write_text(code, encoding="utf-8")
    spec = importlib.util.spec_from_file_location("grades", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "grades", module)
    spec.loader.exec_module(module)
    monkeypatch.setattr(registry, "TASKS", registry.TASKS | {"grades": "grades"})
    monkeypatch.setattr(registry, "PROBLEM_TYPES", (*registry.PROBLEM_TYPES, "grades"))
    for place, name in ((registry, "find_task"), (task_model, "find_task"), (registry, "find_form")):
        find = getattr(place, name)
        monkeypatch.setattr(
            place, name, lambda asked, find=find: module.Grades if asked == "grades" else find(asked)
        )
    return module.Grades


@pytest.mark.slow
def test_the_new_task_is_trained_measured_and_predicted(task, tmp_path):
    """The grade is how many of four words are w1."""
    random = np.random.default_rng(0)
    for name, count in (("train", 200), ("test", 60)):
        words = random.random((count, 4)) < 0.5
        texts = [" ".join("w1" if one else "w2" for one in row) for row in words]
        rows = [{"text": t, "label": int(n)} for t, n in zip(texts, words.sum(1), strict=True)]
        write_rows(tmp_path / f"{name}.tsv", rows)
    new_encoder().save(tmp_path / "encoder")
    summary = brimful.finetune(
        encoder=tmp_path / "encoder",
        train=tmp_path / "train.tsv",
        test=tmp_path / "test.tsv",
        out=tmp_path / "run",
        task="grades",
        epochs=10.0,
        learning_rates=(1e-3, 3e-3),
        precision="fp32",
    )
    assert summary["labels"] == list("01234")
    assert summary["primary_metric"] == "distance"
    assert summary["test"]["distance"] < 0.3
    assert summary["dev"]["exact"] > 0.7
    out = tmp_path / "out.jsonl"
    brimful.predict(model=tmp_path / "run", input=tmp_path / "test.tsv", output=out)
    predicted = [json.loads(line)["prediction"] for line in out.read_text().splitlines()]
    told = (tmp_path / "run" / "predictions.jsonl").read_text().splitlines()
    assert predicted == [json.loads(line)["prediction"] for line in told]
    brimful.report(runs=[str(tmp_path / "run")], out=str(tmp_path / "page.html"))
    assert "mean number of grades between" in (tmp_path / "page.html").read_text(encoding="utf-8")
