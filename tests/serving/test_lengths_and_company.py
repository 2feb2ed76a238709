"""A text's answer is its own: alone, among texts of any length, in any order, on any number of threads."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
import torch

from brimful import Encoder, TaskModel
from brimful.model.heads import SequenceHead
from brimful.tasks.classification import Classification
from builders.encoders import small, word_tokenizer


@pytest.fixture
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("two_threads")
@pytest.mark.parametrize("architecture", ["bert", "prenorm", "modern"])
def test_texts_of_1_to_3000_characters_in_any_company(architecture: str, seed: int) -> None:
    torch.manual_seed(seed)
    random = np.random.default_rng(seed)
    shape = replace(small(architecture, vocabulary_size=95, layers=2).config, max_length=512)
    encoder = Encoder(shape)
    encoder.tokenizer = word_tokenizer(architecture)
    model = TaskModel(Classification(["a", "b", "c"]), encoder, SequenceHead(encoder, 3), 512)
    sizes = [1, 3000, *np.exp(random.uniform(0, np.log(3000), 20)).astype(int)]
    texts = [" ".join(f"w{i}" for i in random.integers(0, 90, 1000))[:size] for size in sizes]

    def probabilities(some: list[str]) -> np.ndarray:
        rows = model.predict(some, precision="fp32", scores=True)
        return np.array([list(row["scores"].values()) for row in rows])

    together = probabilities(texts)
    alone = np.concatenate([probabilities([text]) for text in texts])
    np.testing.assert_allclose(together, alone, rtol=0, atol=1e-6)
    order = random.permutation(len(texts))
    np.testing.assert_allclose(probabilities([texts[i] for i in order]), together[order], rtol=0, atol=1e-6)
    torch.set_num_threads(1)
    np.testing.assert_allclose(probabilities(texts), together, rtol=0, atol=1e-6)
    assert np.ptp(together[:, 0]) > 1e-3
