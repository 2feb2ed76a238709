"""What docs/export.md shows is run: an export without Brimful, in onnxruntime, OpenVINO and transformers."""

import re
from pathlib import Path
from typing import Any

import pytest

from brimful.commands.export import export
from builders.task_models import task_model

PAGE = (Path(__file__).parents[2] / "docs/export.md").read_text(encoding="utf-8")
CODE = dict(re.findall(r"^## With (\w+)\n.*?^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL))
TEXTS = re.findall(r'"(.+?)"', re.findall(r"\[(.+?)\]\)\)$", CODE["onnxruntime"], re.MULTILINE)[0])


@pytest.fixture(scope="module")
def exports(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[tuple[str, float]]]:
    """A folder with the exports of the page, and what the model says of the page's texts."""
    folder = tmp_path_factory.mktemp("exports")
    model = task_model("classification")
    model.save(folder / "model")
    export(run=str(folder / "model"), out=str(folder / "deploy"))
    export(run=str(folder / "model"), out=str(folder / "deploy-onnx"), format="onnx")
    return folder, [(row["prediction"], row["probability"]) for row in model.predict(TEXTS)]


def test_each_snippet_has_25_lines() -> None:
    assert all(sum(map(bool, code.splitlines())) <= 25 for code in CODE.values())


@pytest.mark.parametrize("library", ["onnxruntime", "openvino", "transformers"])
def test_a_snippet_says_what_the_model_says(library, exports, monkeypatch, capsys):
    pytest.importorskip(library)
    folder, expected = exports
    monkeypatch.chdir(folder)
    names: dict[str, Any] = {}
    exec(CODE["onnxruntime"], names)
    if library == "openvino":
        exec(CODE["OpenVINO"], names)
    elif library == "transformers":
        exec(CODE["transformers"])
    lines = capsys.readouterr().out.splitlines()
    printed = re.findall(r"(\w)'?,? (0\.\d+)", lines[0] if library == "onnxruntime" else "\n".join(lines[1:]))
    assert [label for label, _ in printed] == [label for label, _ in expected[: len(printed)]]
    probabilities = [float(probability) for _, probability in printed]
    assert probabilities == pytest.approx([p for _, p in expected[: len(printed)]], abs=1e-5)
    assert len(printed) >= 1
