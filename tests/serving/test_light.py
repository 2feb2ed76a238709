"""`brimful predict` without torch: ONNX exports give what the models with torch give."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

import brimful
from brimful import BrimfulError, export
from brimful.hf.folders import save_model
from brimful.hf.model_folder import ModelFolder
from brimful.hf.text_encoder import TextEncoder
from brimful.model.heads import MaskedLMHead
from brimful.serving.open_model import Graph, find_graph
from builders.served import nearly
from builders.task_models import new_encoder, task_model

BLOCKED = """
import sys
class Refused:
    refused = sys.argv.pop(1).split(",")
    def find_spec(self, name, *given):
        if name in self.refused:
            raise ImportError(name)
sys.meta_path.insert(0, Refused())
from brimful.cli.main import main
sys.exit(main(sys.argv[1:]))
"""
RANDOM = np.random.default_rng(3)
TEXTS = ["", *(" ".join(f"w{i}" for i in RANDOM.integers(0, 90, n)) for n in RANDOM.integers(1, 50, 20))]


def without_torch(
    model: Path, source: Path, output: Path, *options: str, and_without: str = "numba"
) -> list[dict]:
    """The rows that the command writes where torch and more cannot be imported."""
    given = ["predict", "--model", str(model), "--input", str(source), "--output", str(output), *options]
    done = subprocess.run(
        [sys.executable, "-c", BLOCKED, f"torch,transformers,scipy.stats,{and_without}", *given],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return [] if output.suffix == ".npy" else [json.loads(line) for line in output.read_text().splitlines()]


def written(folder: Path, task: str) -> Path:
    """A file of texts, or of questions."""
    source = folder / "in.jsonl"
    rows: list[dict[str, str]] = [{"text": text} for text in TEXTS]
    if task == "question-answering":
        rows = [{"id": str(n), "question": "w1 w2", "context": text} for n, text in enumerate(TEXTS[1:])]
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return source


SLOW = ["token-classification", "mean", "multi-label", "regression", "question-answering"]


@pytest.mark.parametrize(
    "task", ["classification", *(pytest.param(task, marks=pytest.mark.slow) for task in SLOW)]
)
def test_an_onnx_export_predicts_what_its_model_does(task, folder_of, tmp_path):
    folder, source = folder_of(task), written(tmp_path, task)
    scored = task not in ("token-classification", "question-answering")
    given = {"input": str(source), "scores": scored}
    brimful.predict(model=str(folder / "model"), output=str(tmp_path / "torch.jsonl"), **given)
    expected = [json.loads(line) for line in (tmp_path / "torch.jsonl").read_text().splitlines()]
    options = ["--scores"] if scored else []
    more = "sklearn" if task == "token-classification" else "numba"  # the best sequence of tags is a loop
    rows = without_torch(folder / "onnx", source, tmp_path / "onnx.jsonl", *options, and_without=more)
    assert len(rows) == len(expected) > 5
    for row, other in zip(rows, expected, strict=True):
        assert nearly(row, other), (row, other)


def test_an_exported_encoder_writes_vectors_of_length_1_where_its_folder_does(tmp_path):
    """Of windows too; folders without such vectors are in tests/hf/test_text_reading.py."""
    encoder = new_encoder()
    modules = {"pooling": "mean", "max_length": 60, "unit": True}
    save_model(tmp_path / "model", encoder, MaskedLMHead(encoder), modules=modules)
    export(run=str(tmp_path / "model"), out=str(tmp_path / "onnx"), format="onnx")
    source = written(tmp_path, "")
    brimful.predict(model=str(tmp_path / "onnx"), input=str(source), output=str(tmp_path / "out.npy"))
    wanted = TextEncoder.load(tmp_path / "model").embed(TEXTS)
    np.testing.assert_allclose(np.load(tmp_path / "out.npy"), wanted, atol=1e-5)
    assert "vectors that are pooled: leave --pooling out" in refusal(tmp_path / "onnx", pooling="mean")
    given = {"input": str(source), "output": str(tmp_path / "windows.npy"), "max_length": 8, "overlap": 2}
    brimful.predict(model=str(tmp_path / "onnx"), **given)
    windows = np.load(tmp_path / "windows.npy")
    assert windows.shape == wanted.shape
    assert np.abs(windows - wanted).max() > 0.01
    np.testing.assert_allclose(np.linalg.norm(windows, axis=1), 1, atol=1e-5)


@pytest.mark.parametrize(
    ("task", "needed"),
    [("classification", []), pytest.param("regression", ["scipy"], marks=pytest.mark.slow)],
    ids=["bert", "modern"],
)
def test_a_task_model_loads_neither_a_compiler_nor_other_tasks(task, needed, tmp_path):
    task_model(task).save(tmp_path / "model")
    code = """
import sys
from brimful.cli.main import main
code = main(sys.argv[1:])
heavy = {"torch._dynamo", "sympy", "numba", "scipy", "sklearn", "pyarrow", "rich"}
print(sorted(heavy & set(sys.modules)), code)
"""
    given = ["--model", str(tmp_path / "model"), "--input", str(written(tmp_path, "")), "--precision", "fp32"]
    command = [sys.executable, "-c", code, "predict", *given, "--output", str(tmp_path / "out.jsonl")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == f"{needed} 0"


@pytest.fixture
def exported(folder_of, tmp_path):
    shutil.copytree(folder_of("classification"), tmp_path / "exported")
    return tmp_path / "exported" / "onnx"


def refusal(model: Path, **options: object) -> str:
    source = written(model.parent, "")
    with pytest.raises(BrimfulError) as error:
        brimful.predict(
            model=str(model), input=str(source), output=str(model.parent / "out.jsonl"), **options
        )
    assert "\n" not in str(error.value)
    return str(error.value)


def test_what_is_wrong_with_an_onnx_folder_is_one_line(exported, monkeypatch):
    assert "--pooling is for encoders" in refusal(exported, pooling="mean")
    assert "max_length is 1000: it must be from 3" in refusal(exported, max_length=1000)
    assert "overlap is 40" in refusal(exported, overlap=40)
    file = exported / "onnx" / "model.onnx"
    content = file.read_bytes()
    file.write_bytes(content[:-100])
    assert "model.onnx" in refusal(exported)  # it is not the file that export.json names
    (exported / "export.json").unlink()
    file.write_bytes(b"no graph")
    assert f"onnxruntime cannot read {file}: " in refusal(exported)
    file.write_bytes(content)
    with monkeypatch.context() as patch:
        patch.setattr(Graph, "run", lambda graph, given: np.full((len(given["input_ids"]), 3), np.inf))
        said = f"{exported}: the model's outputs are NaN or infinite: its weights are damaged"
        assert refusal(exported) == said
        patch.setattr(Graph, "run", lambda graph, given: np.zeros((len(given["input_ids"]), 5)))
        assert "its outputs have 5 numbers, not 3" in refusal(exported)
    monkeypatch.setattr("brimful.base.environment.find_spec", lambda name: None)
    assert "needs onnxruntime: pip install '.[onnx]' in the clone" in refusal(exported)


def test_a_graph_with_embeddings_of_fewer_pieces_is_one_line(exported):
    (exported / "export.json").unlink()
    graph = onnx.load(exported / "onnx" / "model.onnx")
    (words,) = (each for each in graph.graph.initializer if each.name == "encoder.embedding.weight")
    words.CopyFrom(onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(words)[:30], words.name))
    onnx.save(graph, exported / "onnx" / "model.onnx")
    assert "is not the graph of" in refusal(exported)


def test_a_folder_with_weights_beside_its_graph_is_read_with_torch(exported):
    assert find_graph(ModelFolder(exported)) == exported / "onnx" / "model.onnx"
    shutil.copy(exported.parent / "model" / "model.safetensors", exported)
    assert find_graph(ModelFolder(exported)) is None
