"""export --format int8: calibrated on texts, compared with the model, and read by predict and embed."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from brimful import BrimfulError, Encoder, TaskModel, export, predict
from brimful.base.types import InferencePrecision
from brimful.hf.folders import load_pretrained
from brimful.hf.int8_steps import FILE, products
from brimful.model.int8_rounding import find_obstacle
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
    gate = export_int8(folder, "model", test=str(folder / "test.tsv"))["gate"]
    assert gate["in_int8"] + len(gate["in_bf16"]) == 8
    assert gate["in_int8"] >= 4
    assert gate["before"] == 1.0
    assert 0 <= gate["loss"] <= 0.05
    assert (folder / "int8" / FILE).is_file()
    model, exact = TaskModel.load(folder / "int8"), TaskModel.load(folder / "model")
    in_bf16 = [name for name, linear in products(model.encoder).items() if linear.steps is None]
    assert sorted(in_bf16) == gate["in_bf16"]
    ours = [row["probability"] for row in model.predict(TEXTS)]
    theirs = [row["probability"] for row in exact.predict(TEXTS, precision="fp32")]
    rounded = [row["probability"] for row in model.predict(TEXTS, precision="fp32")]
    np.testing.assert_allclose(rounded, theirs, atol=1e-5)
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
    np.testing.assert_allclose(rounded.embed(TEXTS, precision="fp32"), wanted, atol=1e-5)


def test_what_loses_too_much_is_not_written(folder):
    with pytest.raises(BrimfulError, match="--most-loss 0;"):
        export_int8(folder, "encoder", most_loss=0.0)
    assert not (folder / "int8").exists()


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
