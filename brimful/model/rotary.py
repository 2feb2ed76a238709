"""Rotary positions (Su et al. 2021, "RoFormer", section 3.2)."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from brimful.model.door import choose


class Rotary(nn.Module):
    """Tables of cosines and sines of rotary positions."""

    cosine: Tensor
    sine: Tensor

    def __init__(self, head_dim: int, max_length: int, theta: float) -> None:
        super().__init__()
        frequency = 1.0 / theta ** (torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim)
        angle = torch.arange(max_length, dtype=torch.float32)[:, None] * frequency
        self.register_buffer("cosine", angle.cos(), persistent=False)
        self.register_buffer("sine", angle.sin(), persistent=False)

    def forward(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """positions int32 (T,) -> cosines and sines (T, 1, head_dim / 2)."""
        cosine, sine = F.embedding(positions, self.cosine), F.embedding(positions, self.sine)
        return cosine[:, None], sine[:, None]


def rotate(qkv: Tensor, rotation: tuple[Tensor, Tensor]) -> tuple[Tensor, ...]:
    """Queries, keys and values, with each pair (x[i], x[i + head_dim / 2]) of queries and keys rotated by its
    position's angle.

    Args:
        qkv: (T, 3, heads, head_dim).
        rotation: what `Rotary` gives for the positions.

    Returns:
        Three of (T, heads, head_dim), in the dtype of `qkv`.
    """
    if (fast := choose("rotate", qkv)) is not None:
        return fast(qkv, *rotation)
    q, k, v = qkv.unbind(1)
    return rotated(q, *rotation), rotated(k, *rotation), v


def rotated(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """x (T, heads, head_dim), rotated by angles whose cosines and sines are (T, 1, head_dim / 2)."""
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * cosine - b * sine, b * cosine + a * sine), dim=-1).to(x.dtype)
