"""Attention of packed sequences on the CPU: blockwise (ours) against F.scaled_dot_product_attention.

Forward and backward of one layer's attention over rows of realistic lengths, each sequence alone in both.
The two take turns (A B A B); compare the ratio of medians.

The floor: with n = sum of squared lengths, forward makes 2 matrix products of 2 * n * heads * head_dim
flops, backward 5 (one of them to have the probabilities again), so 14 * n * hidden flops at the rate that
large matrix products reach here. At a mean length of 60 and a head size of 64 the products are small, and
half of that rate is what they can reach.

    python -m bench.kernels attention [--threads 1] [--tokens 4096] [--repeats 9]
"""

import argparse
import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import torch
from torch import Tensor

from bench.common.reference import matmul_rate, sdpa
from bench.kernels.timing import alternated
from brimful.kernels.blockwise import blockwise_attention

HEADS, HEAD_DIM = 4, 64
CASES = {"mean 60": (60, 256), "mean 200": (200, 512), "all 512": (1e9, 512), "all 2048": (1e9, 2048)}
"""The mean length and the longest."""


def skewed_lengths(tokens: int, mean: float, longest: int) -> list[int]:
    """Lengths that sum to `tokens`: log-normal, as of sentences and reviews, cut at `longest`."""
    rng = np.random.default_rng(0)
    lengths: list[int] = []
    while (left := tokens - sum(lengths)) > 0:
        length = int(np.clip(rng.lognormal(np.log(mean) - 0.18, 0.6), 4, longest))
        lengths.append(min(length, left))
    return lengths


def passes(attention: Callable[[Tensor, Tensor, Tensor], Tensor], qkv: Tensor, upstream: Tensor) -> None:
    """One forward and backward pass."""
    torch.autograd.grad(attention(*qkv.unbind(1)), qkv, upstream)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print one row for each distribution of lengths and dtype."""
    parser = argparse.ArgumentParser("bench.kernels attention", description=__doc__.split("\n")[0])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--tokens", type=int, default=4096)
    parser.add_argument("--repeats", type=int, default=9)
    options = parser.parse_args(arguments)
    torch.set_num_threads(options.threads)
    print("lengths      dtype     ours ms   sdpa ms   sdpa/ours   ours/floor")
    for name, (mean, longest) in CASES.items():
        lengths = skewed_lengths(options.tokens, mean, longest)
        sizes = torch.tensor(lengths)

        def ours(q: Tensor, k: Tensor, v: Tensor, sizes: Tensor = sizes) -> Tensor:
            return blockwise_attention(q, k, v, sizes, None, HEAD_DIM**-0.5, -1, 0.0)[0]

        for dtype in (torch.float32, torch.bfloat16):
            qkv = torch.randn(options.tokens, 3, HEADS, HEAD_DIM).to(dtype).requires_grad_()
            upstream = torch.randn(options.tokens, HEADS, HEAD_DIM).to(dtype)
            sides = {"ours": ours, "sdpa": partial(sdpa, lengths=lengths)}
            work = {label: partial(passes, side, qkv, upstream) for label, side in sides.items()}
            found = alternated(work, options.repeats, clock=time.perf_counter)
            a, b = (1e3 * statistics.median(found[label]) for label in sides)
            floor = 1e3 * 14 * float((sizes**2).sum()) * HEADS * HEAD_DIM / matmul_rate(dtype)
            kind = str(dtype).removeprefix("torch.")
            print(f"{name:12} {kind:9} {a:7.1f}   {b:7.1f}   {b / a:9.2f}   {a / floor:10.1f}", flush=True)
