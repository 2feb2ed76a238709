"""The masked-LM loss on the CPU: linear_cross_entropy against F.cross_entropy(F.linear(...)).

Forward and backward from hidden states (M, d) and a decoder (V, d) in float32, with bf16 under autocast as in
training, on one thread. The two take turns (A B A B); CPU time, medians. Memory is the most that torch held
above the inputs at any time, gradients included, and the bytes saved for backward. All rows have labels here;
in training about a fifth of M has none, which the plain form cannot skip. Sizes below SMALL
take the plain form themselves, so both sides are the same there.

The floor: 3 matrix products of 2 * M * V * d flops (scores, and the gradients of both factors) at the rate
that large matrix products reach here. With the scores computed again in backward there would be 4.

    python -m bench.kernels cross_entropy [--repeats 4] [--sizes 5]
"""

import argparse
import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import accumulate

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

import brimful.kernels.forms  # noqa: F401  (fast forms register themselves)
from bench.common.memory import saved_bytes
from bench.common.reference import matmul_rate
from bench.kernels.timing import alternated
from brimful.model.cross_entropy import linear_cross_entropy

SIZES = [(150, 8000, 256), (600, 8000, 256), (600, 30000, 256), (600, 30000, 768), (4000, 30000, 256)]
Inputs = tuple[Tensor, Tensor, Tensor, Tensor]
Loss = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]


def plain(hidden: Tensor, weight: Tensor, bias: Tensor, labels: Tensor) -> Tensor:
    """The peer."""
    return F.cross_entropy(F.linear(hidden, weight, bias).float(), labels, reduction="sum")


def forward(loss: Loss, inputs: Inputs, dtype: torch.dtype) -> Tensor:
    """The sum of the losses, under autocast for bf16."""
    with torch.autocast("cpu", torch.bfloat16, enabled=dtype == torch.bfloat16):
        return loss(*inputs)


def step(loss: Loss, inputs: Inputs, dtype: torch.dtype) -> Tensor:
    """Forward, and backward of the mean."""
    for tensor in inputs[:3]:
        tensor.grad = None
    total = forward(loss, inputs, dtype)
    (total / len(inputs[0])).backward()
    return total.detach()


def peak_bytes(loss: Loss, inputs: Inputs, dtype: torch.dtype) -> int:
    """The most bytes held at once, without the inputs."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        step(loss, inputs, dtype)
    events = [event for event in profiled.profiler.kineto_results.events() if event.name() == "[memory]"]
    return max(accumulate(event.nbytes() for event in sorted(events, key=lambda event: event.start_ns())))


def main(arguments: Sequence[str] | None = None) -> None:
    """Print one row for each size and dtype."""
    parser = argparse.ArgumentParser("bench.kernels cross_entropy", description=__doc__.split("\n")[0])
    parser.add_argument("--repeats", type=int, default=4)
    parser.add_argument("--sizes", type=int, default=len(SIZES), help="of the sizes the first N", metavar="N")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    print("    M      V    d  dtype       ours ms  plain ms  plain/ours  ours/floor", end="")
    print("   peak MB: ours  plain   saved MB: ours  plain")
    losses: dict[str, Loss] = {"ours": linear_cross_entropy, "plain": plain}
    for m, v, d in SIZES[: options.sizes]:
        hidden = torch.randn(m, d).requires_grad_()
        weight = (torch.randn(v, d) * d**-0.5).requires_grad_()
        inputs = hidden, weight, torch.zeros(v).requires_grad_(), torch.randint(v, (m,))
        for dtype in (torch.float32, torch.bfloat16):
            sums = [float(step(loss, inputs, dtype)) for loss in losses.values()]
            assert abs(sums[0] / sums[1] - 1) < (1e-5 if dtype == torch.float32 else 1e-3), sums
            work = {name: partial(step, loss, inputs, dtype) for name, loss in losses.items()}
            a, b = (1e3 * statistics.median(each) for each in alternated(work, options.repeats).values())
            floor = 1e3 * 6 * m * v * d / matmul_rate(dtype, time.process_time)
            peaks = [peak_bytes(loss, inputs, dtype) / 1e6 for loss in losses.values()]
            saved = [
                saved_bytes(partial(forward, loss, inputs, dtype), inputs) / 1e6 for loss in losses.values()
            ]
            print(
                f"{m:5} {v:6} {d:4}  {str(dtype).removeprefix('torch.'):8} {a:10.1f} {b:9.1f} {b / a:11.2f}"
                f" {a / floor:11.2f} {peaks[0]:15.0f} {peaks[1]:6.0f} {saved[0]:16.0f} {saved[1]:6.0f}",
                flush=True,
            )
