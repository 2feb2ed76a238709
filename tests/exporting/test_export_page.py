"""What docs/export.md shows is run: an export without Brimful, in onnxruntime, OpenVINO and transformers."""

import re
from pathlib import Path

import pytest

from brimful.commands.export import export
from builders.task_models import task_model

PAGE = (Path(__file__).parents[2] / "docs/export.md").read_text(encoding="utf-8")
CODE = dict(re.findall(r"^## With (\w+)\n.*?^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL))
LAST_TEXTS = {"onnxruntime": "这本书很好", "OpenVINO": "not worth the money", "transformers": "这本书很好"}
"""The text whose label a snippet prints last."""


@pytest.fixture(scope="module")
def exports(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the exports of the page."""
    folder = tmp_path_factory.mktemp("exports")
    task_model("classification").save(folder / "model")
    export(run=str(folder / "model"), out=str(folder / "deploy"))
    export(run=str(folder / "model"), out=str(folder / "deploy-onnx"), format="onnx")
    return folder


@pytest.mark.parametrize("library", LAST_TEXTS)
def test_a_snippet_of_25_lines_says_what_the_model_says(library, exports, monkeypatch, capsys):
    assert sum(map(bool, CODE[library].splitlines())) <= 25
    pytest.importorskip(library.lower())
    monkeypatch.chdir(exports)
    before = CODE["onnxruntime"] if library == "OpenVINO" else ""
    exec(before + CODE[library], {})
    label, probability = re.findall(r"([abc])'?,? (0\.\d+)", capsys.readouterr().out)[-1]
    (row,) = task_model("classification").predict([LAST_TEXTS[library]])
    tolerance = 1e-2 if library == "OpenVINO" else 1e-5  # it may compute in bfloat16
    assert label == row["prediction"]
    assert float(probability) == pytest.approx(row["probability"], abs=tolerance)
