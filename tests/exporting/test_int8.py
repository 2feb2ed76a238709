"""export --format int8: calibrated on texts, compared with the model, and read by predict and embed."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import numpy_helper
from safetensors.torch import load_file

from brimful import BrimfulError, Encoder, TaskModel, export, predict
from brimful.base.types import InferencePrecision
from brimful.exporting import gate
from brimful.hf.folders import load_pretrained
from brimful.hf.int8_steps import FILE, products
from brimful.hf.model_folder import WEIGHTS
from brimful.hf.tensor_names import to_hf
from brimful.hf.text_encoder import TextEncoder
from brimful.model.int8_rounding import find_obstacle, round_weights
from brimful.model.presets import preset
from builders.encoders import word_tokenizer
from builders.sure_classifier import save_sure_classifier
from builders.task_models import new_encoder

pytestmark = [
    pytest.mark.skipif(find_obstacle() is not None, reason=f"int8 needs {find_obstacle()}"),
    pytest.mark.usefixtures("kernels"),
]
RANDOM = np.random.default_rng(6)
TEXTS = [" ".join(f"w{i}" for i in RANDOM.integers(0, 90, n)) for n in RANDOM.integers(1, 40, 150)]


@pytest.fixture
def folder(tmp_path):
    """What `save_sure_classifier` saves, its encoder, and texts."""
    encoder = new_encoder()
    encoder.save(tmp_path / "encoder")
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS))
    return save_sure_classifier(tmp_path, encoder, TEXTS, 100)


def export_int8(folder: Path, name: str, most_loss: float = 0.05, **more: str) -> dict[str, Any]:
    """Export a model of the folder, by default calibrated on its texts."""
    more = more or {"calibrate": str(folder / "texts.txt")}
    return export(
        run=str(folder / name), out=str(folder / "int8"), format="int8", most_loss=most_loss, **more
    )


def predict_texts(folder: Path, name: str, out: str, precision: InferencePrecision) -> list[float]:
    """Predict the folder's texts with a model, and return the probabilities."""
    path = folder / f"{out}.jsonl"
    texts = str(folder / "texts.txt")
    predict(model=str(folder / name), input=texts, output=str(path), precision=precision)
    return [json.loads(line)["probability"] for line in path.read_text().splitlines()]


def test_a_classifier_predicts_in_int8(folder):
    facts = export_int8(folder, "model", test=str(folder / "test.tsv"))["gate"]
    assert facts["in_int8"] + len(facts["in_bf16"]) == 8
    assert facts["in_int8"] >= 4
    assert facts["before"] == 1.0
    assert 0 <= facts["loss"] <= 0.05
    assert (folder / "int8" / FILE).is_file()
    model, exact = TaskModel.load(folder / "int8"), TaskModel.load(folder / "model")
    in_bf16 = [name for name, linear in products(model.encoder).items() if linear.steps is None]
    assert sorted(in_bf16) == facts["in_bf16"]
    ours = [row["probability"] for row in model.predict(TEXTS)]
    theirs = [row["probability"] for row in exact.predict(TEXTS, precision="fp32")]
    rounded = [row["probability"] for row in model.predict(TEXTS, precision="fp32")]
    assert 0 < np.abs(np.subtract(rounded, theirs)).max() < 0.1
    assert 0 < np.abs(np.subtract(ours, theirs)).max() < 0.2
    assert model.predict(TEXTS[:1])[0]["probability"] == ours[0]
    assert predict_texts(folder, "int8", "auto", "auto") == ours
    assert predict_texts(folder, "int8", "int8", "int8") == ours
    with pytest.raises(BrimfulError, match="is not calibrated for int8"):
        predict_texts(folder, "model", "none", "int8")
    code = [sys.executable, str(folder / "int8" / "example.py"), TEXTS[0]]
    done = subprocess.run(code, capture_output=True, text=True, timeout=300)
    assert repr(model.predict(TEXTS[:1])[0]) in done.stdout, done.stderr
    assert "Products in int8: " in (folder / "int8" / "README.md").read_text()


def test_an_encoder_embeds_in_int8(folder, capsys):
    assert export_int8(folder, "encoder")["gate"]["mean_cosine"] > 0.95
    assert "its metric is unknown" in capsys.readouterr().err
    exact, rounded = (Encoder.load(folder / name) for name in ("encoder", "int8"))
    wanted, ours = exact.embed(TEXTS), rounded.embed(TEXTS)
    assert (wanted != ours).any()
    np.testing.assert_array_equal(rounded.embed(TEXTS[:1])[0], ours[0])
    in_floats = rounded.embed(TEXTS, precision="fp32")
    assert (in_floats * wanted).sum() / np.linalg.norm(in_floats) / np.linalg.norm(wanted) > 0.999


def test_what_loses_too_much_is_not_written(folder):
    with pytest.raises(
        BrimfulError, match=r"--most-loss 0; nothing .*; the smallest format that passes is hf$"
    ):
        export_int8(folder, "model", most_loss=0.0)
    assert not (folder / "int8").exists()


def test_the_other_format_of_eight_bits_is_named_where_it_passes(folder, monkeypatch):
    monkeypatch.setattr(gate, "PRODUCT_ERROR_LIMIT", 0.0)
    with pytest.raises(
        BrimfulError, match=r"loses more than 0%; .* the smallest format that passes is onnx-int8$"
    ):
        export_int8(folder, "model", most_loss=0.5)


def test_the_written_integers_are_the_weights_within_half_a_step(folder):
    """The reference reads the files by itself, and computes in float64."""
    export_int8(folder, "model")
    exact = load_file(folder / "model" / "model.safetensors")
    written = load_file(folder / "int8" / WEIGHTS[-1])
    loaded = TaskModel.load(folder / "int8")
    in_memory = to_hf(loaded.encoder, loaded.encoder.config)
    matrices = [name for name, tensor in written.items() if tensor.dtype == torch.int8]
    # Words, positions and types; query, key, value and three more of a layer.
    assert len(matrices) == 3 + 2 * 6
    for name in matrices:
        steps = written[f"{name}.rows"].double()[:, None]
        columns = written.get(f"{name}.columns")
        if columns is not None:
            steps = steps * columns.double()
        weights = written[name].double() * steps
        assert ((weights - exact[name].double()).abs() <= 0.501 * steps).all()
        np.testing.assert_allclose(in_memory[name.removeprefix("bert.")].double(), weights, rtol=3e-7)
    for name, tensor in exact.items():
        assert name in matrices or torch.equal(tensor, written[name])
    # Inference in int8 rounds what was loaded to the integers of the file.
    for index, layer in enumerate(loaded.encoder.layers):
        if layer.up.steps is not None:
            integers, _ = round_weights(layer.up.weight.detach(), layer.up.steps)
            assert torch.equal(integers, written[f"bert.encoder.layer.{index}.intermediate.dense.weight"])


def test_a_mini_in_eight_bits_is_a_third_of_its_size(tmp_path):
    """Bytes of whole folders, tokenizer included; the vocabulary has 8,000 pieces."""
    torch.manual_seed(3)
    encoder = TextEncoder(preset("mini", vocabulary_size=8000, max_length=128))
    encoder.tokenizer = word_tokenizer(words=7995)
    encoder.save(tmp_path / "encoder")
    words = np.random.default_rng(1).integers(0, 7995, (120, 12))
    (tmp_path / "texts.txt").write_text("".join(f"{' '.join(f'w{i}' for i in row)}\n" for row in words))
    sizes = {}
    for form in ("hf", "int8", "onnx-int8"):
        more = {} if form == "hf" else {"calibrate": str(tmp_path / "texts.txt")}
        done = export(run=str(tmp_path / "encoder"), out=str(tmp_path / form), format=form, **more)
        assert "gate" not in done or done["gate"]["loss"] <= 0.005
        files = [path for path in (tmp_path / form).rglob("*") if path.is_file()]
        sizes[form] = sum(path.stat().st_size for path in files)
    assert sizes["int8"] <= 0.30 * sizes["hf"]
    assert sizes["onnx-int8"] <= 0.30 * sizes["hf"]
    graph = onnx.load(tmp_path / "onnx-int8" / "onnx" / "model_quantized.onnx").graph
    shapes = {each.name: numpy_helper.to_array(each) for each in graph.initializer}
    [rows] = [array for array in shapes.values() if array.shape[:1] == (8000,) and array.dtype == np.int8]
    [scales] = [
        array for array in shapes.values() if array.shape[:1] == (8000,) and array.dtype == np.float32
    ]
    difference = rows * scales.reshape(-1, 1).astype(np.float64) - encoder.word_embeddings.detach().numpy()
    assert (np.abs(difference) <= 0.501 * scales.reshape(-1, 1)).all()


def test_a_planted_outlier_stays_in_bf16(folder):
    """One neuron's output is a thousand times larger, with weights a thousand times smaller."""
    encoder = Encoder.load(folder / "encoder")
    layer = encoder.layers[0]
    with torch.no_grad():
        layer.up.weight[3] *= 1000
        layer.up.bias[3] = 300.0
        layer.down.weight[:, 3] /= 1000
    encoder.save(folder / "planted")
    assert "layers.0.down" in export_int8(folder, "planted")["gate"]["in_bf16"]


def test_what_is_saved_or_trained_again_has_no_steps(folder, capsys):
    export_int8(folder, "encoder")
    capsys.readouterr()
    Encoder.load(folder / "int8").save(folder / "again")
    assert "saved in float32; `brimful export --format int8`" in capsys.readouterr().err
    assert not (folder / "again" / FILE).exists()
    assert all(linear.steps is None for linear in products(load_pretrained(folder / "int8")[0]).values())
    export(run=str(folder / "int8"), out=str(folder / "hf"), format="hf")
    assert not (folder / "hf" / FILE).exists()
