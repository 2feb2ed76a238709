"""Packed inference: many texts, no padding, outputs in the order of the input."""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from brimful.data.batch import PackedBatch
from brimful.data.examples import Examples
from brimful.data.ragged import Ragged
from brimful.nn.inference import run_by_sequence, run_by_token
from brimful.precision.policy import Precision, autocast

Forward = Callable[[PackedBatch], Tensor]


def predict(
    forward: Forward,
    examples: Examples,
    *,
    device: torch.device,
    precision: Precision = "fp32",
    finite: bool = True,
) -> np.ndarray:
    """Outputs of `forward` for every example.

    Args:
        forward: a batch on `device` -> (S, C), one row for each sequence slot.
        precision: resolved, never "auto".
        finite: whether NaN and infinity are refused. Training judges models without.

    Returns:
        float32 (n, C), in the order of the examples.

    Raises:
        NotFiniteError: a number is NaN or infinite.
    """
    return run_by_sequence(_under(precision, forward, device), examples, device, finite=finite)


def predict_tokens(
    forward: Forward,
    examples: Examples,
    *,
    device: torch.device,
    precision: Precision = "fp32",
    finite: bool = True,
) -> Ragged:
    """As `predict`, with outputs (T, C) of `forward`: float32 (tokens, C) of each example."""
    outputs = run_by_token(_under(precision, forward, device), examples, device, finite=finite)
    return Ragged.of(outputs, np.float32, outputs[0].shape[1:])


def _under(precision: Precision, forward: Forward, device: torch.device) -> Forward:
    def run(batch: PackedBatch) -> Tensor:
        with autocast(precision, device):
            return forward(batch)

    return run
