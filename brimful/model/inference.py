"""Packed inference: many examples, no padding, results in the order of the input."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np
import torch
from torch import Tensor

from brimful.base.errors import BrimfulError, NotFiniteError
from brimful.base.types import InferencePrecision
from brimful.data.batch import PackedBatch
from brimful.data.example_batches import rounded_batch
from brimful.data.examples import Examples
from brimful.model.encoder import Encoder
from brimful.model.fast_forms import SWITCH, has_fast_forms, open_fast_context
from brimful.model.heads import pool
from brimful.model.int8_rounding import is_wide
from brimful.model.shape import TextPooling
from brimful.precision.policy import autocast, resolve

TOKENS = 4096
"""Tokens in a batch: enough for fast matrix products, few enough for the cache."""
BATCHED_AT_ONCE = 1 << 18
"""Neighbouring examples that share batches: those of a file that is mapped are not read from all over it."""
Forward = Callable[[PackedBatch], Tensor]
_outer_products: ContextVar[AbstractContextManager[Any] | None] = ContextVar("products", default=None)


@contextmanager
def share_products(products: AbstractContextManager[Any]) -> Iterator[None]:
    """Inside, runs of inference of any length compute with these products, and share the copies of weights
    that they make: for models whose weights do not change."""
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
) -> np.ndarray:
    """A vector of each text, on the encoder's device: its hidden states, pooled; of windows, the mean.

    Args:
        pooling: by default as the encoder was trained, where that is known, else the mean.
        unit: whether vectors are scaled to length 1.
        precision: hidden states are pooled in float32.

    Returns:
        float32 (texts, hidden), in the order of the texts.

    Raises:
        NotFiniteError: a number is NaN or infinite.
    """
    how = pooling or encoder.pooling or "mean"
    if not len(examples):
        return np.zeros((0, encoder.config.hidden_size), dtype=np.float32)
    with evaluation_mode(encoder):
        vectors = run_by_sequence(
            lambda batch: pool(encoder(batch).float(), batch, how),
            examples,
            encoder.device,
            precision=precision,
        )
    vectors = examples.mean_over_windows(vectors)
    return scale_to_length_1(vectors) if unit else vectors


def scale_to_length_1(vectors: np.ndarray) -> np.ndarray:
    """Vectors (n, width), each scaled to length 1; zeros stay zeros."""
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), np.float32(1e-12))


@contextmanager
def evaluation_mode(encoder: Encoder) -> Iterator[None]:
    """Evaluation mode, which turns dropout off, for a while."""
    if not encoder.training:
        yield
        return
    encoder.eval()
    try:
        yield
    finally:
        encoder.train()


def run_by_sequence(
    forward: Forward,
    examples: Examples,
    device: torch.device,
    *,
    precision: InferencePrecision = "fp32",
    finite: bool = True,
) -> np.ndarray:
    """One vector for each example.

    Args:
        forward: a batch on `device` -> (S, C).
        examples: at least one.
        precision: of the computation; auto: see `resolve`.
        finite: whether NaN and infinity are refused. Training judges models without.

    Returns:
        float32 (n, C), in the order of the examples.

    Raises:
        NotFiniteError: a number is NaN or infinite.
    """
    result = np.empty(0, dtype=np.float32)
    for batch, output in _run(forward, examples, device, precision):
        real = output[: batch.real_sequences]
        if finite and not np.isfinite(real).all():
            raise NotFiniteError
        if not len(result):
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
) -> list[np.ndarray]:
    """One vector for each token of each example.

    Args:
        forward: a batch on `device` -> (T, C).
        precision, finite: as in `run_by_sequence`.

    Returns:
        Of each example, float32 (tokens, C), in the order of the examples.

    Raises:
        NotFiniteError: a number is NaN or infinite.
    """
    found: dict[int, np.ndarray] = {}
    for batch, output in _run(forward, examples, device, precision):
        assert batch.sequence_index is not None
        if finite and not np.isfinite(output[: batch.real_tokens]).all():
            raise NotFiniteError
        ends = np.cumsum(batch.lengths[: batch.real_sequences])
        parts = np.split(output[: batch.real_tokens], ends[:-1])
        # Copies: a view would keep the outputs of its whole batch in memory.
        found |= {i: part.copy() for i, part in zip(batch.sequence_index.tolist(), parts, strict=True)}
    return [found[index] for index in range(len(examples))]


def make_batches(
    examples: Examples, fills: Callable[[int], bool] = lambda tokens: True, *, tokens: int = TOKENS
) -> Iterator[PackedBatch]:
    """Every example once, in micro-batches of at most `tokens` tokens (or one longer example).

    The longest come first, so that most of a batch are equally long; the shortest fill what these leave.

    Args:
        fills: see `rounded_batch`.
    """
    for start in range(0, len(examples), BATCHED_AT_ONCE):
        lengths = examples.lengths[start : start + BATCHED_AT_ONCE]
        order = np.argsort(-lengths, kind="stable")
        sums = np.concatenate([[0], np.cumsum(lengths[order])])
        first, end = 0, len(order)
        while first < end:
            long = int(np.searchsorted(sums, sums[first] + tokens, "right")) - 1
            long = min(max(long, first + 1), end)
            room = tokens - (sums[long] - sums[first])
            short = min(max(long, int(np.searchsorted(sums, sums[end] - room))), end)
            chosen = np.concatenate([order[first:long], order[short:end]])
            yield rounded_batch(examples, start + chosen, fills)
            first, end = long, short


def _run(
    forward: Forward, examples: Examples, device: torch.device, precision: InferencePrecision
) -> Iterator[tuple[PackedBatch, np.ndarray]]:
    """Batches, in the order of packing, and what `forward` returns for each, float32 on the host."""
    tokens = int(examples.lengths.sum())
    precision = resolve(precision, device)
    products = _outer_products.get() or open_fast_context("products", device, tokens, precision)
    any_shape = precision == "fp32" and device.type == "cpu"  # torch's products are MKL's then
    fills = getattr(products, "fills", lambda tokens: not any_shape)
    if precision == "int8" and not has_fast_forms():
        raise BrimfulError(f"int8 needs {SWITCH}=on")
    between: InferencePrecision = "fp32" if precision == "int8" and is_wide() else precision
    with torch.inference_mode():
        for batch in make_batches(examples, fills):
            with products, autocast(between, device):
                outputs = forward(batch.to(device))
            yield batch, outputs.float().cpu().numpy()
