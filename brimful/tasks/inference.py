"""Packed inference: many texts, no padding, outputs in the order of the input."""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from brimful.data.batch import PackedBatch
from brimful.data.examples import Examples
from brimful.precision.policy import Precision, autocast


def predict(
    forward: Callable[[PackedBatch], Tensor],
    examples: Examples,
    *,
    device: torch.device,
    precision: Precision = "fp32",
) -> np.ndarray:
    """Outputs of `forward` for every example.

    Args:
        forward: a batch on `device` -> (S, C), one row for each sequence slot.
        precision: resolved, never "auto".

    Returns:
        float32 (n, C), in the order of the examples.
    """
    outputs: list[np.ndarray] = []
    order: list[np.ndarray] = []
    with torch.inference_mode():
        for batch in examples.batches():
            with autocast(precision, device):
                values = forward(batch.to(device))
            outputs.append(values[: batch.real_sequences].float().cpu().numpy())
            assert batch.sequence_index is not None
            order.append(batch.sequence_index)
    stacked = np.concatenate(outputs)
    result = np.empty_like(stacked)
    result[np.concatenate(order)] = stacked
    return result
