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
    if library == "onnxruntime":
        printed = names["classify"](TEXTS)
    else:
        capsys.readouterr()
        exec(CODE["OpenVINO" if library == "openvino" else library], names)
        printed = re.findall(
            r"(\w) ([\d.e-]+)$|\('(\w)', ([\d.e-]+)\)", capsys.readouterr().out, re.MULTILINE
        )
        printed = [(found[0] or found[2], float(found[1] or found[3])) for found in printed]
    assert [label for label, _ in printed] == [label for label, _ in expected[: len(printed)]]
    assert [p for _, p in printed] == pytest.approx([p for _, p in expected[: len(printed)]], abs=1e-5)
