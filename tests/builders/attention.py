"""Attention by its formula."""

import torch
from torch import Tensor

from brimful.data.batch import PackedBatch


def formula(qkv: Tensor, batch: PackedBatch, window: int | None) -> Tensor:
    """softmax(QK^T / sqrt(d)) V under a dense mask."""
    q, k, v = (tensor.transpose(0, 1) for tensor in qkv.unbind(1))
    return (dense_probabilities(q, k, batch, window, q.shape[-1] ** -0.5) @ v).transpose(0, 1)


def dense_probabilities(q: Tensor, k: Tensor, batch: PackedBatch, window: int | None, scale: float) -> Tensor:
    """Probabilities (heads, T, T) of queries and keys (heads, T, head_dim)."""
    sequence = batch.sequence_of_token
    visible = sequence[:, None] == sequence
    if window is not None:
        place = torch.arange(len(sequence))
        visible &= (place[:, None] - place).abs() <= window // 2
    return (q @ k.transpose(1, 2) * scale).masked_fill(~visible, -torch.inf).softmax(-1)
