"""The masked-LM loss on the CPU: linear_cross_entropy against F.cross_entropy(F.linear(...)).

Forward and backward from hidden states (M, d) and a decoder (V, d) in float32, with bf16 under autocast as in
training, on one thread. The two take turns (A B A B); CPU time, medians. Memory is the most that torch held
above the inputs at any time, gradients included, and the bytes saved for backward. All rows have labels here;
in training about a fifth of M has none, which the plain form cannot skip. Sizes below SMALL
take the plain form themselves, so both sides are the same there.

The floor: 3 matrix products of 2 * M * V * d flops (scores, and the gradients of both factors) at the rate
that large matrix products reach here. With the scores computed again in backward there would be 4.

    python -m bench.linear_cross_entropy [--repeats 4]
"""

import argparse
import statistics
import time
from collections.abc import Callable
from itertools import accumulate

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks
from torch.profiler import ProfilerActivity, profile

from bench.common.reference import matmul_rate
from brimful.model.cross_entropy import linear_cross_entropy

SIZES = [(150, 8000, 256), (600, 8000, 256), (600, 30000, 256), (600, 30000, 768), (4000, 30000, 256)]
Inputs = tuple[Tensor, Tensor, Tensor, Tensor]
Loss = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]


def plain(hidden: Tensor, weight: Tensor, bias: Tensor, labels: Tensor) -> Tensor:
    """The peer."""
    return F.cross_entropy(F.linear(hidden, weight, bias).float(), labels, reduction="sum")


def step(loss: Loss, inputs: Inputs, dtype: torch.dtype) -> Tensor:
    """Forward under autocast, and backward of the mean."""
    for tensor in inputs[:3]:
        tensor.grad = None
    with torch.autocast("cpu", torch.bfloat16, enabled=dtype == torch.bfloat16):
        total = loss(*inputs)
    (total / len(inputs[0])).backward()
    return total.detach()


def memory(loss: Loss, inputs: Inputs, dtype: torch.dtype) -> tuple[int, int]:
    """The most bytes held at once, and the bytes saved for backward; the inputs are neither."""
    saved = {}

    def keep(tensor: Tensor) -> Tensor:
        saved[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    for tensor in inputs[:3]:
        tensor.grad = None
    hooks = saved_tensors_hooks(keep, lambda tensor: tensor)
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled, hooks:
        step(loss, inputs, dtype)
    events = [event for event in profiled.profiler.kineto_results.events() if event.name() == "[memory]"]
    changes = [event.nbytes() for event in sorted(events, key=lambda event: event.start_ns())]
    for tensor in inputs:
        saved.pop(tensor.untyped_storage().data_ptr(), None)
    return max(accumulate(changes)), sum(saved.values())


def main() -> None:
    """Print one row for each size and dtype."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--repeats", type=int, default=4)
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(
        "    M      V    d  dtype       ours ms  plain ms  plain/ours  ours/floor   peak MB: ours  plain",
        end="",
    )
    print("   saved MB: ours  plain")
    for m, v, d in SIZES:
        hidden = torch.randn(m, d).requires_grad_()
        weight = (torch.randn(v, d) * d**-0.5).requires_grad_()
        bias = torch.zeros(v).requires_grad_()
        labels = torch.randint(v, (m,))
        inputs = hidden, weight, bias, labels
        for dtype in (torch.float32, torch.bfloat16):
            losses = {"ours": linear_cross_entropy, "plain": plain}
            sums = [float(step(loss, inputs, dtype)) for loss in losses.values()]  # the first round warms up
            assert abs(sums[0] / sums[1] - 1) < (1e-5 if dtype == torch.float32 else 1e-3), sums
            times: dict[str, list[float]] = {name: [] for name in losses}
            for _ in range(options.repeats):
                for name, loss in losses.items():
                    started = time.process_time()
                    step(loss, inputs, dtype)
                    times[name].append(time.process_time() - started)
            a, b = (1e3 * statistics.median(found) for found in times.values())
            floor = 1e3 * 6 * m * v * d / matmul_rate(dtype, time.process_time)
            (peak_a, saved_a), (peak_b, saved_b) = (memory(loss, inputs, dtype) for loss in losses.values())
            print(
                f"{m:5} {v:6} {d:4}  {str(dtype).removeprefix('torch.'):8} {a:10.1f} {b:9.1f} {b / a:11.2f}"
                f" {a / floor:11.2f} {peak_a / 1e6:15.0f} {peak_b / 1e6:6.0f} {saved_a / 1e6:16.0f}"
                f" {saved_b / 1e6:6.0f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
