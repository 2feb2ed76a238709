"""brimful export: logits agree with transformers and onnxruntime, and nothing else is ever written."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch

from brimful import Encoder, export
from brimful.base.errors import BrimfulError
from brimful.base.storage import read_json
from brimful.data.examples import encode_texts
from brimful.exporting import padded_model
from brimful.exporting.exported_model import Export
from brimful.exporting.gate import check_written
from brimful.exporting.padded_model import PaddedModel
from brimful.hf.folders import load_model, save_model
from brimful.hf.model_folder import ModelFolder
from brimful.model.heads import MaskedLMHead, SequenceHead
from brimful.tasks.task_model import TaskModel, load_task_model
from builders.encoders import small, word_tokenizer

EVERY_ARCHITECTURE = pytest.mark.parametrize("model", ["modern", "bert", "prenorm", "roberta"], indirect=True)


@pytest.fixture
def model(request, tmp_path, seed):
    """A run directory with a random classifier; a BERT unless the test is for other architectures too."""
    torch.manual_seed(seed)
    architecture = getattr(request, "param", "bert")
    encoder = small(architecture, vocabulary_size=95, layers=2, max_length=40)
    encoder.tokenizer = word_tokenizer(architecture)
    save_model(tmp_path / "run" / "model", encoder, SequenceHead(encoder, 3), ["a", "b", "c"], max_length=20)
    return tmp_path / "run"


def sentence_vectors(folder: Path, texts: list[str]) -> np.ndarray:
    library = pytest.importorskip("sentence_transformers", reason="the reference: .[dev] has it")
    return library.SentenceTransformer(str(folder), device="cpu").encode(texts)


def test_a_classifier_of_the_mean_is_exported_for_sentence_transformers(model, tmp_path):
    encoder = load_model(model / "model")[0]
    head = SequenceHead(encoder, 3, pooling="mean")
    torch.nn.init.normal_(head.classifier.bias)
    save_model(model / "model", encoder, head, ["a", "b", "c"], max_length=20)
    with pytest.raises(BrimfulError, match="--format sentence-transformers or --format onnx") as caught:
        export(run=str(model), out=str(tmp_path / "out"), format="hf")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "out").exists()
    result = export(run=str(model), out=str(tmp_path / "out"), format="sentence-transformers")
    assert result["max_abs_logit_difference"] < 1e-5
    files = json.loads((tmp_path / "out" / "export.json").read_text())["files"]
    assert files["2_Dense/model.safetensors"]["bytes"] > 0
    texts = ["w1 w2", "w3", "w4 w5 " * 20]
    ours = outputs_of(load_task_model(model), texts)
    np.testing.assert_array_equal(ours, outputs_of(load_task_model(tmp_path / "out"), texts))
    np.testing.assert_allclose(sentence_vectors(tmp_path / "out", texts), ours, atol=1e-5, rtol=1e-5)


def outputs_of(model: TaskModel, texts: list[str]) -> np.ndarray:
    assert model.encoder.tokenizer is not None
    pad = model.encoder.config.pad_id
    examples = encode_texts(model.encoder.tokenizer, texts, max_length=model.max_length, pad=pad)
    return model.outputs(examples, "fp32")


@EVERY_ARCHITECTURE
@pytest.mark.cases(2)
def test_an_encoder_is_exported_for_sentence_transformers(model, tmp_path):
    """A masked-LM head is left out; a classifier that transformers has a class for has no place there."""
    encoder = Encoder.load(model / "model")
    encoder.pooling = None
    texts = ["w1 w2", "w3", "w4 w5 " * 20]
    for name, head in (("bare", None), ("mlm", MaskedLMHead(encoder))):
        save_model(tmp_path / name, encoder, head, max_length=20)
        given = {"run": str(tmp_path / name), "out": str(tmp_path / "out")}
        assert export(**given, format="sentence-transformers")["max_abs_logit_difference"] < 1e-5
        wanted = encoder.embed(texts, "mean", max_length=20, precision="fp32")
        np.testing.assert_allclose(sentence_vectors(tmp_path / "out", texts), wanted, atol=1e-5, rtol=1e-5)
        assert Encoder.load(tmp_path / "out").pooling == "mean"
    with pytest.raises(BrimfulError, match="no module for this SequenceHead: export it with --format hf"):
        export(run=str(model), out=str(tmp_path / "no"), format="sentence-transformers", dry_run=True)


def example_of(folder: Path, *texts: str) -> str:
    """What the folder's example prints, in a process that cannot import Brimful."""
    code = "import runpy, sys; sys.modules['brimful'] = None; runpy.run_path(sys.argv.pop(1))"
    line = [sys.executable, "-c", code, str(folder / "example.py"), *texts]
    return subprocess.run(line, check=True, capture_output=True, text=True, timeout=300).stdout


def exported(model: Path, out: Path, kind: str, weights: str) -> None:
    """Export, and see what it says of itself."""
    result = export(run=str(model), out=str(out), format=kind)
    assert result["max_abs_logit_difference"] < 1e-4
    assert result["bytes"] > 0
    assert weights in json.loads((out / "export.json").read_text())["files"]
    assert json.loads((out / "tokenizer_config.json").read_text())["model_max_length"] == 20


@EVERY_ARCHITECTURE
def test_a_hugging_face_folder_agrees_and_keeps_windows_temperature_and_settings(model, tmp_path):
    path = model / "model" / "config.json"
    settings = {"window_overlap": 3, "calibration_temperature": 1.5, "task_settings": {"a": 0.5}}
    path.write_text(json.dumps(read_json(path) | settings))
    exported(model, tmp_path / "out", "hf", "model.safetensors")
    assert settings.items() <= read_json(tmp_path / "out" / "config.json").items()


@pytest.mark.parametrize("module", ["onnx", "onnxscript", "onnxruntime"])
def test_without_onnx_it_says_what_to_install(model, tmp_path, module, monkeypatch):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(BrimfulError, match=rf"^--format onnx needs {module}: .*'\.\[onnx\]' in the clone"):
        export(run=str(model), out=str(tmp_path / "out"), format="onnx")
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_weights_that_one_onnx_file_cannot_hold_are_beside_it(model, tmp_path, monkeypatch):
    monkeypatch.setattr(padded_model, "FILE_BYTES", 1000)
    exported(model, tmp_path / "out", "onnx", "onnx/model.onnx.data")
    assert (tmp_path / "out" / "onnx" / "model.onnx").stat().st_size < 1 << 20
    session = onnxruntime.InferenceSession(str(tmp_path / "out" / "onnx" / "model.onnx"))
    values = {i.name: np.ones((2, 5), dtype=np.int64) for i in session.get_inputs()}
    assert session.run(None, values)[0].shape == (2, 3)


@pytest.mark.slow
@pytest.mark.parametrize("model", ["modern"], indirect=True)
def test_an_encoder_is_one_graph_from_ids_to_vectors_of_length_1(model, tmp_path):
    """A masked-LM head stays out; no shape is listed that a quantiser trips over."""
    encoder = Encoder.load(model / "model")
    save_model(tmp_path / "mlm", encoder, MaskedLMHead(encoder), max_length=20)
    result = export(run=str(tmp_path / "mlm"), out=str(tmp_path / "out"), format="onnx")
    assert result["max_abs_logit_difference"] < 1e-5
    file = tmp_path / "out" / "onnx" / "model.onnx"
    assert not onnx.load(file).graph.value_info
    (output,) = onnxruntime.InferenceSession(str(file)).get_outputs()
    assert (output.name, output.shape[1]) == ("sentence_embedding", 48)
    said = example_of(tmp_path / "out", "w1 w2", "w3 w4 w5")
    assert said.startswith("(2, 48) float32\n")
    vectors = encoder.embed(["w1 w2", "w3 w4 w5"], max_length=20)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    printed = float(said.splitlines()[-1].split()[0].strip("["))  # [0.6517 1.    ]]
    assert printed == pytest.approx(float(vectors[0] @ vectors[1]), abs=1e-3)


@pytest.mark.parametrize("wrong", [float("nan"), 1e-3])
def test_logits_that_differ_anywhere_are_noticed(model, wrong):
    """The difference is in the last sequence only."""
    encoder, head, labels = load_model(model / "model")
    runtime = PaddedModel(encoder, head).eval()

    def off(inputs: dict[str, np.ndarray]) -> np.ndarray:
        given = (torch.from_numpy(inputs[name]) for name in ("input_ids", "attention_mask"))
        with torch.no_grad():
            logits = runtime(*given).numpy()
        logits[-1] += wrong
        return logits

    written = Export(encoder, head, labels, ModelFolder(model / "model"), {}, False, None)
    with pytest.raises(BrimfulError, match=r"the onnx export of .* has outputs that differ by"):
        check_written(written, "onnx", lambda: off)


def test_an_export_over_an_export_in_a_linked_folder(model, tmp_path):
    """The link stays, and a flipped bit is found by whoever reads the model."""
    real = tmp_path / "disk" / "real"
    real.mkdir(parents=True)
    (tmp_path / "link").symlink_to(real)
    export(run=str(model), out=str(tmp_path / "link"))
    whole = {path.name for path in real.iterdir()}
    export(run=str(model), out=str(tmp_path / "link"))
    assert (tmp_path / "link").is_symlink()
    assert {path.name for path in real.iterdir()} == whole
    assert [path.name for path in real.parent.iterdir()] == ["real"]
    load_task_model(tmp_path / "link")
    weights = bytearray((real / "model.safetensors").read_bytes())
    weights[-100] ^= 0x40
    (real / "model.safetensors").write_bytes(weights)
    with pytest.raises(BrimfulError, match=r"model\.safetensors is damaged \(CRC differs\)"):
        load_task_model(tmp_path / "link")
