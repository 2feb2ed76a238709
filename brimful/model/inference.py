"""Packed inference: many examples, no padding, results in the order of the input."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np
import torch
from numpy import ndarray
from torch import Tensor

from brimful.base.errors import BrimfulError, NotFiniteError
from brimful.base.types import InferencePrecision
from brimful.data.batch import PackedBatch
from brimful.data.example_batches import make_rounded_batch
from brimful.data.examples import Examples
from brimful.model.encoder import Encoder
from brimful.model.fast_forms import SWITCH, has_fast_forms, open_fast_context
from brimful.model.heads import pool
from brimful.model.int8_rounding import is_wide
from brimful.model.shape import TextPooling
from brimful.precision.policy import autocast, resolve

BATCH_TOKENS = 4096
"""The most tokens in a batch: enough for fast matrix products, few enough for the cache."""
SORTED_EXAMPLES = 1 << 18
"""The number of neighbouring examples that are sorted by length together, so that a mapped file is read from
its beginning to its end."""
Forward = Callable[[PackedBatch], Tensor]
_outer_products: ContextVar[AbstractContextManager[Any] | None] = ContextVar("products", default=None)


@contextmanager
def share_products(products: AbstractContextManager[Any]) -> Iterator[None]:
    """Inside this context all runs share these products' copies of the weights, which must not change."""
    token = _outer_products.set(products)
    try:
        yield
    finally:
        _outer_products.reset(token)


def text_vectors(
    encoder: Encoder,
    examples: Examples,
    *,
    pooling: TextPooling | None = None,
    unit: bool = False,
    precision: InferencePrecision = "fp32",
) -> ndarray:
    """Return a vector of each text: its hidden states, pooled; the mean of the windows of a long text.

    Args:
        pooling: by default the pooling that the encoder was trained with, where that is known, else the mean.
        unit: whether vectors are scaled to length 1.
        precision: of the encoder; hidden states are pooled in float32.

    Returns:
        float32 (texts, hidden), in the order of the texts.

    Raises:
        NotFiniteError: a number is NaN or infinite.
    """
    if not len(examples):
        return np.zeros((0, encoder.config.hidden_size), dtype=np.float32)
    chosen = pooling or encoder.pooling or "mean"

    def pool_hidden_states(batch: PackedBatch) -> Tensor:
        return pool(encoder(batch).float(), batch, chosen)  # (S, hidden)

    with evaluation_mode(encoder):
        vectors = run_by_sequence(pool_hidden_states, examples, encoder.device, precision=precision)
    vectors = examples.mean_over_windows(vectors)
    return scale_to_length_1(vectors) if unit else vectors


def scale_to_length_1(vectors: ndarray) -> ndarray:
    """Return vectors (n, width), each scaled to length 1; zeros stay zeros."""
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), np.float32(1e-12))


@contextmanager
def evaluation_mode(encoder: Encoder) -> Iterator[None]:
    """Inside this context the encoder is in evaluation mode, which turns dropout off."""
    was_training = encoder.training
    if was_training:
        encoder.eval()
    try:
        yield
    finally:
        if was_training:
            encoder.train()


def run_by_sequence(
    forward: Forward,
    examples: Examples,
    device: torch.device,
    *,
    precision: InferencePrecision = "fp32",
    finite: bool = True,
) -> ndarray:
    """Return one vector for each example.

    Args:
        forward: computes (S, C) from a batch on `device`.
        examples: at least one.
        precision: of the computation; auto: see `resolve`.
        finite: whether NaN and infinity are refused. Training also judges models that have diverged.

    Returns:
        float32 (n, C), in the order of the examples.

    Raises:
        NotFiniteError: a number is NaN or infinite.
    """
    result = np.empty(0, dtype=np.float32)
    for batch, output in _run(forward, examples, device, precision):
        real = output[: batch.real_sequences]  # the other rows stand for empty sequence slots
        if finite and not np.isfinite(real).all():
            raise NotFiniteError
        if not len(result):  # the first batch shows C
            result = np.empty((len(examples), *real.shape[1:]), dtype=real.dtype)
        result[batch.sequence_index] = real
    return result


def run_by_token(
    forward: Forward,
    examples: Examples,
    device: torch.device,
    *,
    precision: InferencePrecision = "fp32",
    finite: bool = True,
) -> list[ndarray]:
    """Return one vector for each token of each example.

    Args:
        forward: computes (T, C) from a batch on `device`.
        precision, finite: as in `run_by_sequence`.

    Returns:
        float32 (tokens, C) for each example, in the order of the examples.

    Raises:
        NotFiniteError: a number is NaN or infinite.
    """
    results = {}
    for batch, output in _run(forward, examples, device, precision):
        assert batch.sequence_index is not None
        real = output[: batch.real_tokens]
        if finite and not np.isfinite(real).all():
            raise NotFiniteError
        ends = np.cumsum(batch.lengths[: batch.real_sequences])
        for index, part in zip(batch.sequence_index.tolist(), np.split(real, ends[:-1]), strict=True):
            results[index] = part.copy()  # a view would keep the outputs of its whole batch in memory
    return [results[index] for index in range(len(examples))]


def make_batches(
    examples: Examples, fills: Callable[[int], bool] = lambda tokens: True
) -> Iterator[PackedBatch]:
    """Yield every example once, in micro-batches of at most `BATCH_TOKENS` tokens (or one longer example).

    The longest examples come first, so that lengths in a batch are similar; the shortest ones fill it up.

    Args:
        fills: see `make_rounded_batch`.
    """
    for start in range(0, len(examples), SORTED_EXAMPLES):
        lengths = examples.lengths[start : start + SORTED_EXAMPLES]
        order = np.argsort(-lengths, kind="stable")
        tokens_before = np.concatenate([[0], np.cumsum(lengths[order])])
        # `first` goes up from the longest example, `end` down from the shortest, until they meet.
        first, end = 0, len(order)
        while first < end:
            long_end = int(np.searchsorted(tokens_before, tokens_before[first] + BATCH_TOKENS, "right")) - 1
            long_end = min(max(long_end, first + 1), end)  # at least one example, even if it is too long
            free = BATCH_TOKENS - (tokens_before[long_end] - tokens_before[first])
            short_start = int(np.searchsorted(tokens_before, tokens_before[end] - free))
            short_start = min(max(long_end, short_start), end)
            chosen = np.concatenate([order[first:long_end], order[short_start:end]])
            yield make_rounded_batch(examples, start + chosen, fills)
            first, end = long_end, short_start


def _run(
    forward: Forward, examples: Examples, device: torch.device, precision: InferencePrecision
) -> Iterator[tuple[PackedBatch, ndarray]]:
    """Yield batches in the order of packing, each with what `forward` returns for it, float32 on the host."""
    precision = resolve(precision, device)
    if precision == "int8" and not has_fast_forms():
        raise BrimfulError(f"int8 needs {SWITCH}=on")
    run_tokens = int(examples.lengths.sum())
    products = _outer_products.get() or open_fast_context("products", device, run_tokens, precision)
    # oneDNN compiles for each shape, so it gets few. In float32 torch's products are MKL's, which does not.
    any_shape = precision == "fp32" and device.type == "cpu"
    fills = getattr(products, "fills", lambda tokens: not any_shape)
    between = "fp32" if precision == "int8" and is_wide() else precision
    with torch.inference_mode():
        for batch in make_batches(examples, fills):
            with products, autocast(between, device):
                outputs = forward(batch.to(device))
            # numpy has no bfloat16.
            yield batch, outputs.float().cpu().numpy()


def list_texts(texts: Iterable[str]) -> list[str]:
    """Return texts in memory as a list.

    Raises:
        BrimfulError: they are a single text, or a mapping.
    """
    if isinstance(texts, str | bytes | Mapping):
        raise BrimfulError(f"texts must be a list of strings, not a {type(texts).__name__}")
    return list(texts)
