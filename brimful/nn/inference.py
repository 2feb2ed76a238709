"""Packed inference: many examples, no padding, results in the order of the input."""

from collections.abc import Callable, Iterator

import numpy as np
import torch
from torch import Tensor

from brimful.data.batch import PackedBatch
from brimful.data.examples import Examples
from brimful.nn.products import products_of_run

Forward = Callable[[PackedBatch], Tensor]


def run_by_sequence(forward: Forward, examples: Examples, device: torch.device) -> np.ndarray:
    """One vector for each example.

    Args:
        forward: a batch on `device` -> (S, C).
        examples: at least one.

    Returns:
        float32 (n, C), in the order of the examples.
    """
    batches, outputs = zip(*_run(forward, examples, device), strict=True)
    stacked = np.concatenate([out[: b.real_sequences] for b, out in zip(batches, outputs, strict=True)])
    result = np.empty_like(stacked)
    result[np.concatenate([batch.sequence_index for batch in batches])] = stacked
    return result


def run_by_token(forward: Forward, examples: Examples, device: torch.device) -> list[np.ndarray]:
    """One vector for each token of each example.

    Args:
        forward: a batch on `device` -> (T, C).

    Returns:
        Of each example, float32 (tokens, C), in the order of the examples.
    """
    found: dict[int, np.ndarray] = {}
    for batch, output in _run(forward, examples, device):
        assert batch.sequence_index is not None
        ends = np.cumsum(batch.lengths[: batch.real_sequences])
        parts = np.split(output[: batch.real_tokens], ends[:-1])
        # Copies: a view would keep the outputs of its whole batch in memory.
        found |= {i: part.copy() for i, part in zip(batch.sequence_index.tolist(), parts, strict=True)}
    return [found[index] for index in range(len(examples))]


def _run(
    forward: Forward, examples: Examples, device: torch.device
) -> Iterator[tuple[PackedBatch, np.ndarray]]:
    """Batches, in the order of packing, and what `forward` returns for each, float32 on the host."""
    products = products_of_run(device, int(examples.lengths.sum()))
    with torch.inference_mode():
        for batch in examples.batches():
            with products:
                outputs = forward(batch.to(device))
            yield batch, outputs.float().cpu().numpy()
