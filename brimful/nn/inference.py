"""Packed inference: many examples, no padding, results in the order of the input."""

from collections.abc import Callable, Iterator

import numpy as np
import torch
from torch import Tensor

from brimful.data.batch import PackedBatch
from brimful.data.example_stream import batches
from brimful.data.examples import Examples
from brimful.errors import NotFiniteError
from brimful.nn.products import products_of_run

Forward = Callable[[PackedBatch], Tensor]


def run_by_sequence(
    forward: Forward, examples: Examples, device: torch.device, *, finite: bool = True
) -> np.ndarray:
    """One vector for each example.

    Args:
        forward: a batch on `device` -> (S, C).
        examples: at least one.
        finite: whether NaN and infinity are refused. Training judges models without.

    Returns:
        float32 (n, C), in the order of the examples.

    Raises:
        NotFiniteError: a number is NaN or infinite.
    """
    result = np.empty(0, dtype=np.float32)
    for batch, output in _run(forward, examples, device):
        real = output[: batch.real_sequences]
        if finite and not np.isfinite(real).all():
            raise not_finite()
        if not len(result):
            result = np.empty((len(examples), *real.shape[1:]), dtype=real.dtype)
        result[batch.sequence_index] = real
    return result


def run_by_token(
    forward: Forward, examples: Examples, device: torch.device, *, finite: bool = True
) -> list[np.ndarray]:
    """One vector for each token of each example.

    Args:
        forward: a batch on `device` -> (T, C).
        finite: as in `run_by_sequence`.

    Returns:
        Of each example, float32 (tokens, C), in the order of the examples.

    Raises:
        NotFiniteError: a number is NaN or infinite.
    """
    found: dict[int, np.ndarray] = {}
    for batch, output in _run(forward, examples, device):
        assert batch.sequence_index is not None
        if finite and not np.isfinite(output[: batch.real_tokens]).all():
            raise not_finite()
        ends = np.cumsum(batch.lengths[: batch.real_sequences])
        parts = np.split(output[: batch.real_tokens], ends[:-1])
        # Copies: a view would keep the outputs of its whole batch in memory.
        found |= {i: part.copy() for i, part in zip(batch.sequence_index.tolist(), parts, strict=True)}
    return [found[index] for index in range(len(examples))]


def not_finite() -> NotFiniteError:
    """The error of outputs that are NaN or infinite. It knows no folder: see `interop.naming_weights`."""
    return NotFiniteError(
        "the model's outputs are NaN or infinite: its weights are damaged, or too large for the precision"
    )


def _run(
    forward: Forward, examples: Examples, device: torch.device
) -> Iterator[tuple[PackedBatch, np.ndarray]]:
    """Batches, in the order of packing, and what `forward` returns for each, float32 on the host."""
    products = products_of_run(device, int(examples.lengths.sum()))
    with torch.inference_mode():
        for batch in batches(examples):
            with products:
                outputs = forward(batch.to(device))
            yield batch, outputs.float().cpu().numpy()
