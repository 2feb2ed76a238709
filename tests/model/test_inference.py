"""Packed inference: every answer stands where its example stands, and is what the example gets alone."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from brimful.base.cpu_threads import use_threads
from brimful.data.example_batches import make_batch
from brimful.data.examples import Examples
from brimful.kernels.inference_layer import LaidOut
from brimful.model import inference
from brimful.model.heads import SequenceHead
from brimful.model.inference import make_batches, run_by_sequence, share_products, text_vectors
from builders.encoders import ARCHITECTURES, small


def examples_of(lengths: list[int], seed: int, max_length: int = 64) -> Examples:
    random = np.random.default_rng(seed)
    return Examples(
        tokens=[random.integers(0, 70, n, dtype=np.int32) for n in lengths],
        segments=[random.integers(0, 2, n).astype(np.uint8) for n in lengths],
        targets={},
        max_length=max_length,
        pad=0,
    )


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_answers_are_in_order_and_those_of_the_examples_alone(seed, architecture):
    encoder = small(architecture, vocabulary_size=70, max_length=64, initializer_range=0.3).eval()
    head = SequenceHead(encoder, 3, dropout=0.1).eval()
    examples = examples_of([1, 64, *np.random.default_rng(seed).integers(1, 65, 60)], seed)

    def forward(batch):
        return head(encoder(batch), batch)

    together = run_by_sequence(forward, examples, torch.device("cpu"))
    assert together.shape == (62, 3)
    assert together.dtype == np.float32
    with torch.inference_mode():
        batches = [make_batch(examples, np.array([index])) for index in range(len(examples))]
        alone = [forward(batch).numpy()[0] for batch in batches]
    np.testing.assert_allclose(together, np.stack(alone), atol=1e-5, rtol=1e-5)
    assert len(np.unique(together.round(4), axis=0)) > 50


@pytest.mark.parametrize("tokens", [1, 64, 100, 4096])
def test_every_example_is_in_one_batch_and_batches_hold_their_tokens(seed, tokens, monkeypatch):
    monkeypatch.setattr(inference, "BATCH_TOKENS", tokens)
    lengths = np.random.default_rng(seed).integers(1, 65, 200).tolist()
    batches = list(make_batches(examples_of(lengths, seed)))
    index = np.concatenate([batch.sequence_index for batch in batches])
    assert sorted(index) == list(range(200))
    for batch in batches:
        assert batch.real_tokens <= max(tokens, 64)
        assert batch.lengths[: batch.real_sequences] == tuple(lengths[i] for i in batch.sequence_index)
    assert len(batches) >= sum(lengths) / max(tokens, 64)


def test_short_examples_fill_what_long_ones_leave(monkeypatch):
    monkeypatch.setattr(inference, "BATCH_TOKENS", 64)
    batches = list(make_batches(examples_of([60] * 10 + [4] * 10, 0)))
    assert [batch.real_tokens for batch in batches] == [64] * 10


def test_a_few_tokens_are_not_filled_up_where_products_have_any_shape(seed, monkeypatch):
    slots = []

    def forward(batch):
        slots.append(len(batch.tokens))
        return torch.zeros(len(batch.offsets) - 1, 1)

    def run(lengths, precision="fp32"):
        run_by_sequence(forward, examples_of(lengths, seed), torch.device("cpu"), precision=precision)

    for lengths in ([37], [64] * 8, [64] * 8 + [1]):
        run(lengths)
    run([37], "bf16")
    monkeypatch.setattr("brimful.kernels.inference_layer.onednn_is_faster", lambda: False)
    for count in (1, 2):
        with use_threads(count), share_products(LaidOut(torch.float32)):
            run([37])
            run([64] * 4 + [1])
    with use_threads(2), share_products(LaidOut(torch.float32, copies=False)):
        run([37])
    assert slots == [37, 512, 640, 64, 37, 257, 64, 257, 37]


def test_the_vector_of_a_text_is_the_mean_over_its_windows(seed):
    encoder = small("bert", vocabulary_size=70).train()
    examples = replace(examples_of([9, 4, 7, 7, 2], seed, 16), texts=np.array([0, 0, 1, 2, 2]))
    each = text_vectors(encoder, replace(examples, texts=None), pooling="first")
    found = text_vectors(encoder, examples, pooling="first")
    assert encoder.training  # as before
    np.testing.assert_allclose(found, [each[:2].mean(0), each[2], each[3:].mean(0)], rtol=1e-6)
    encoder.pooling = "first"
    assert np.array_equal(text_vectors(encoder, examples), found)
    assert text_vectors(encoder, examples_of([], 0)).shape == (0, encoder.config.hidden_size)
