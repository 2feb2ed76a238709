"""What benches compare with: attention by torch, one sequence at a time, and the rate of a matrix product."""

import time
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor


def sdpa(q: Tensor, k: Tensor, v: Tensor, lengths: list[int]) -> Tensor:
    """The peer: heads first, split by length, SDPA of each sequence, joined."""
    parts = zip(*(tensor.transpose(0, 1).split(lengths, 1) for tensor in (q, k, v)), strict=True)
    outputs = [F.scaled_dot_product_attention(a[None], b[None], c[None])[0] for a, b, c in parts]
    return torch.cat(outputs, 1).transpose(0, 1)


def matmul_rate(dtype: torch.dtype, clock: Callable[[], float] = time.perf_counter) -> float:
    """Flops a second, by `clock`, of a large matrix product."""
    a = torch.randn(1024, 1024).to(dtype)
    times = []
    for _ in range(8):
        started = clock()
        a @ a
        times.append(clock() - started)
    return 2 * 1024**3 / min(times)
