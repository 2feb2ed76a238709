"""brimful export: logits agree with transformers and onnxruntime, and nothing else is ever written."""

import json
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch
from tokenizers import Tokenizer

from brimful import Encoder
from brimful.commands import export as exporting
from brimful.commands.export import export, max_difference, sample_sequences
from brimful.commands.pretrain import pretrain
from brimful.corpus.tokenize.training import train
from brimful.errors import BrimfulError
from brimful.nn.heads import MaskedLMHead, PretrainingHead, SequenceHead, SpanHead, TokenHead
from brimful.nn.interop import save_model
from brimful.nn.layers import EncoderConfig

TEXTS = ["the room was clean and quiet", "这本书很好看", "not worth the money", "价格太高"] * 10


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return train(TEXTS, 80)


@pytest.fixture(params=["modern", "bert", "prenorm", "roberta"])
def model(request, tokenizer: Tokenizer, tmp_path: Path, seed: int) -> Path:
    """A run directory with a random classifier."""
    torch.manual_seed(seed)
    shape = {"hidden_size": 32, "layers": 2, "heads": 2, "intermediate_size": 48, "max_length": 40}
    kind = {"architecture": request.param}
    if request.param == "roberta":
        kind = {"architecture": "bert", "variant": "roberta", "segments": 1}
    config = EncoderConfig(vocabulary_size=tokenizer.get_vocab_size(), **kind, **shape)
    encoder = Encoder(config)
    encoder.tokenizer = tokenizer
    save_model(tmp_path / "run" / "model", encoder, SequenceHead(encoder, 3), ["a", "b", "c"], max_length=20)
    return tmp_path / "run"


def exported(model: Path, out: Path, kind: str, weights: str) -> None:
    """Export, and see what it says of itself."""
    result = export(run=str(model), out=str(out), format=kind)
    assert result["max_abs_logit_difference"] < 1e-4
    assert result["bytes"] > 0
    assert weights in json.loads((out / "export.json").read_text())["files"]
    assert json.loads((out / "tokenizer_config.json").read_text())["model_max_length"] == 20


def test_a_hugging_face_folder_agrees_and_replaces_an_earlier_one(model: Path, tmp_path: Path) -> None:
    for _ in range(2):
        exported(model, tmp_path / "out", "hf", "model.safetensors")


@pytest.mark.cases(2)
def test_onnx_agrees_and_takes_any_batch_and_length(model: Path, tmp_path: Path) -> None:
    exported(model, tmp_path / "out", "hf", "model.safetensors")
    exported(model, tmp_path / "out", "onnx", "model.onnx")
    assert not (tmp_path / "out" / "model.safetensors").exists()
    session = onnxruntime.InferenceSession(str(tmp_path / "out" / "model.onnx"))
    for shape in ((1, 1), (1, 40), (5, 7)):
        values = {i.name: np.ones(shape, dtype=np.int64) for i in session.get_inputs()}
        assert session.run(None, values)[0].shape == (shape[0], 3)


@pytest.mark.cases(1)
def test_a_masked_lm_and_a_bare_encoder_are_exported(model: Path, tmp_path: Path) -> None:
    encoder = Encoder.load(model / "model")
    for name, head in (("mlm", MaskedLMHead(encoder)), ("bare", None)):
        save_model(tmp_path / name, encoder, head)
        for kind in ("hf", "onnx"):
            result = export(run=str(tmp_path / name), out=str(tmp_path / f"{name}-{kind}"), format=kind)
            assert result["max_abs_logit_difference"] < 1e-4


def test_other_heads_are_exported(model: Path, tmp_path: Path) -> None:
    """To Hugging Face folders; for ONNX the padded model is compared in test_heads, its tracing above."""
    encoder = Encoder.load(model / "model")
    for head in (PretrainingHead(encoder), TokenHead(encoder, 3), SpanHead(encoder)):
        name = type(head).__name__
        save_model(tmp_path / name, encoder, head)
        result = export(run=str(tmp_path / name), out=str(tmp_path / f"{name}-hf"))
        assert result["max_abs_logit_difference"] < 1e-4


@pytest.mark.parametrize("model", ["modern"], indirect=True)
@pytest.mark.parametrize("wrong", [float("nan"), pytest.param(1e-3, marks=pytest.mark.slow)])
def test_logits_that_differ_anywhere_are_noticed_and_nothing_is_written(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrong: float
) -> None:
    """The difference is in the last sequence only."""
    right = exporting.onnx_forward

    def off(path: Path):
        forward = right(path)

        def call(ids: np.ndarray, mask: np.ndarray) -> np.ndarray:
            logits = forward(ids, mask)
            logits[-1] += wrong
            return logits

        return call

    monkeypatch.setattr(exporting, "onnx_forward", off)
    with pytest.raises(BrimfulError, match="nothing was written"):
        export(run=str(model), out=str(tmp_path / "out"), format="onnx")
    assert not (tmp_path / "out").exists()


def test_what_is_no_export_is_not_replaced(model: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("keep")
    with pytest.raises(BrimfulError, match="not an earlier export"):
        export(run=str(model), out=str(tmp_path / "mine"))
    with pytest.raises(BrimfulError, match="holds no model"):
        export(run=str(tmp_path / "mine"), out=str(tmp_path / "out"))
    assert export(run=str(model), out=str(tmp_path / "dry"), dry_run=True)["dry_run"]
    assert not (tmp_path / "dry").exists()


def test_samples_cover_short_and_long(model: Path) -> None:
    encoder = Encoder.load(model / "model")
    lengths = [len(sequence) for sequence in sample_sequences(encoder)]
    assert min(lengths) == 2
    assert max(lengths) == encoder.config.max_length
    assert max_difference(encoder, None, lambda ids, mask: np.full((*ids.shape, 32), np.inf)) == np.inf


@pytest.mark.parametrize("architecture", ["bert", "prenorm"])
def test_what_pretrain_made_is_exported(corpus_dir: Path, tmp_path: Path, architecture: str) -> None:
    run = pretrain(
        data=str(corpus_dir),
        out=str(tmp_path / "run"),
        model="tiny",
        architecture=architecture,
        packing={"max_length": 64},
        trainer={"steps": 3, "checkpoint_every": 3},
        validation_tokens=500,
    )
    assert run["steps"] == 3
    result = export(run=str(tmp_path / "run" / "encoder"), out=str(tmp_path / "out"))
    assert result["max_abs_logit_difference"] < 1e-4
    assert Encoder.load(tmp_path / "out").config.architecture == architecture
