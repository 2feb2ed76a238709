"""Wherever texts become vectors without training, they are pooled as the encoder was trained."""

from pathlib import Path

import numpy as np
import pytest
import torch

import brimful
from brimful import Encoder
from brimful.base.distributed import World
from brimful.hf.folders import save_model
from brimful.hf.text_reading import write_modules
from brimful.model.inference import text_vectors
from brimful.tables.table import Table
from brimful.tasks.classification import Classification
from brimful.tasks.encoded_tables import encode
from brimful.tasks.judging.baselines import Frozen
from brimful.train.objective import Runtime
from builders.encoders import small, word_tokenizer

TEXTS = ["w1 w2 w3 w4", "w5", "w9 w8 w7", "w5 w1"]


@pytest.fixture(params=["first", "mean", None])
def folder(request, tmp_path: Path) -> Path:
    torch.manual_seed(2)
    encoder = small("bert", vocabulary_size=95)
    encoder.tokenizer = word_tokenizer()
    save_model(tmp_path / "model", encoder)
    if request.param:
        write_modules(tmp_path / "model", encoder.config.hidden_size, request.param, 50)
    return tmp_path / "model"


def test_the_pooling_of_the_folder_is_the_default(folder, tmp_path):
    encoder = Encoder.load(folder)
    first = encoder.pooling == "first"
    wanted = np.stack([hidden[0] if first else hidden.mean(0) for hidden in encoder.encode(TEXTS)])
    np.testing.assert_allclose(encoder.embed(TEXTS), wanted, atol=1e-5)

    (tmp_path / "texts.txt").write_text("\n".join(TEXTS))
    files = {"input": str(tmp_path / "texts.txt"), "output": str(tmp_path / "out.npy")}
    brimful.predict(model=str(folder), **files)
    np.testing.assert_allclose(np.load(files["output"]), wanted, atol=1e-5)

    runtime = Runtime(World(0, 1, torch.device("cpu")), "fp32")
    data = encode(Table(Path("a"), TEXTS, None, None), encoder.tokenizer, 50)
    np.testing.assert_allclose(text_vectors(encoder, data.examples), wanted, atol=1e-5)
    frozen = Frozen(encoder, Classification([]), 50, None, runtime)
    scaled = (wanted - wanted.mean(0)) / wanted.std(0)
    np.testing.assert_allclose(frozen.fit(data.table), scaled, atol=1e-3)


@pytest.mark.parametrize("folder", ["first"], indirect=True)
def test_another_pooling_can_be_asked_for(folder, tmp_path):
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS))
    files = {"input": str(tmp_path / "texts.txt"), "output": str(tmp_path / "out.npy")}
    for pooling in ("mean", "max"):
        brimful.predict(model=str(folder), pooling=pooling, **files)
        wanted = [getattr(hidden, pooling)(0) for hidden in Encoder.load(folder).encode(TEXTS)]
        np.testing.assert_allclose(np.load(files["output"]), wanted, atol=1e-5)
