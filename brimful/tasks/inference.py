"""Packed inference: many texts, no padding, outputs in the order of the input."""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from brimful.data.batch import PackedBatch
from brimful.data.examples import Examples
from brimful.nn.inference import run_by_sequence
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

    def run(batch: PackedBatch) -> Tensor:
        with autocast(precision, device):
            return forward(batch)

    return run_by_sequence(run, examples, device)
