"""bench/infer: its texts, and the batches of the peers (toy sizes)."""

import numpy as np
import pytest
from tokenizers import Tokenizer

from bench.infer.texts import LONG, docstrings, long, skewed
from bench.infer.worker import BATCH, in_batches
from builders.encoders import word_tokenizer


def words(count: int, seed: int) -> list[str]:
    random = np.random.default_rng(seed)
    return [" ".join(f"w{i}" for i in random.integers(0, 90, n)) for n in random.integers(1, 40, count)]


def test_batches_are_sorted_and_vectors_in_order(seed):
    """The `model` gives the mean of the ids, so that each vector tells its text."""
    tokenizer, texts, widths = word_tokenizer(), words(100, seed), []

    def forward(ids: np.ndarray, mask: np.ndarray) -> np.ndarray:
        widths.append(ids.shape)
        return (ids.sum(1) / mask.sum(1))[:, None]

    found = in_batches(tokenizer, texts, 20, forward)
    tokenizer.enable_truncation(20)
    wanted = [np.mean(tokenizer.encode(text).ids) for text in texts]
    np.testing.assert_allclose(found[:, 0], wanted, rtol=1e-6)
    assert [rows for rows, _ in widths] == [BATCH] * 3 + [4]
    assert [width for _, width in widths] == sorted((width for _, width in widths), reverse=True)


@pytest.mark.slow
def test_texts_are_real_and_long_ones_fill_their_tokens():
    few = skewed(docstrings(), 40)
    assert len(set(few)) == 40
    assert few == skewed(docstrings(), 40)
    tokenizer: Tokenizer = word_tokenizer()
    tokenizer.enable_truncation(LONG)
    assert {len(tokenizer.encode(text).ids) for text in long(docstrings(), 5, word_tokenizer())} == {LONG}
