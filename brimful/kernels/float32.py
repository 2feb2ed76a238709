"""What stands between products in float32, or in int8 where bfloat16 is slow: functions of bfloat16.py.

Inputs and results are as there, but for their dtype.
"""

import torch.nn.functional as F
from torch import Tensor, nn

from brimful.kernels.bfloat16 import integers, rotate

__all__ = ["add", "add_and_norm", "gate", "integers", "norm", "norm_of_sum", "rotate"]


def norm(x: Tensor, layer: nn.LayerNorm) -> Tensor:
    return layer(x)


def norm_of_sum(x: Tensor, added: Tensor, layer: nn.LayerNorm) -> Tensor:
    return layer(x + added)


def add_and_norm(x: Tensor, added: Tensor, layer: nn.LayerNorm) -> tuple[Tensor, Tensor]:
    total = x + added
    return total, layer(total)


def add(x: Tensor, added: Tensor) -> Tensor:
    return x + added


def gate(up: Tensor) -> Tensor:
    value, other = up.chunk(2, dim=-1)
    return F.gelu(value).mul_(other)
