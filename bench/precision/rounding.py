"""Weights in 16 bits without float32 ones beside them: what a step takes, and what becomes of the loss.

Speed: float32 -> 16 bits against the time of the 6 bytes moved for a number at the rate of a large `a += b`
(also of the noise alone), and a step of each rounding under fused AdamW against fused AdamW with float32
weights. In turns, one thread, CPU time; medians, and ratios of medians.

Learning: a student regresses on a teacher of the same shape (32 x 64 x 64 x 1, tanh) in 2,000 updates of
AdamW, rate 3e-3 warmed up and decayed to 0 by a cosine; it starts from 0.7 of the teacher plus noise, so that
what is left late in the decay is fine. Weights and their gradients are in 16 bits, products in float32, so
that only rounding differs; gradients of float16 are scaled by 2^10. The loss is measured with the
stored weights against the teacher without noise, on held-out inputs, over 5 seeds; "noise" is label noise.

    python -m bench.precision.rounding [--rounds 11] [--seeds 5] [--quick] [--out FILE]
"""

import argparse
import math
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bench.common.processes import machine_facts
from brimful.base.storage import write_json
from brimful.precision.narrow import NarrowWeights
from brimful.precision.rounding import _BLOCK, _draw_noise, round_stochastically
from brimful.train.freed_memory import keep_freed_memory

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}
ROUNDINGS = ("nearest", "stochastic", "kahan", "master")
ARMS = ["fp32", *(f"{dtype} {rounding}" for dtype in DTYPES for rounding in ROUNDINGS)]


def adamw(arm: str, weights: list[nn.Parameter], seed: int, **constants: float) -> torch.optim.Optimizer:
    """Fused AdamW, alone for fp32."""
    optimizer = torch.optim.AdamW(weights, fused=True, **constants)  # type: ignore[arg-type]
    return optimizer if arm == "fp32" else NarrowWeights(optimizer, arm.split()[1], seed)  # type: ignore[arg-type]


def medians(work: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Return the median CPU seconds of each call, in turns; two more rounds make states and memory."""
    seconds: dict[str, list[float]] = {name: [] for name in work}
    for _ in range(2 + rounds):
        for name, call in work.items():
            started = time.process_time()
            call()
            seconds[name].append(time.process_time() - started)
    return {name: statistics.median(each[2:]) for name, each in seconds.items()}


def rounding_speed(count: int, rounds: int) -> dict[str, float]:
    """Nanoseconds for each number."""
    source, other = 0.02 * torch.randn(count), torch.randn(count)
    nearest = torch.empty(count, dtype=torch.bfloat16)
    key = torch.tensor([5])
    work: dict[str, Callable[[], object]] = {
        "a += b": lambda: other.add_(source),
        "bf16 nearest": lambda: nearest.copy_(source),
        "noise alone": lambda: [_draw_noise(key, _BLOCK, 16) for _ in range(count // _BLOCK)],
        **{
            f"{name} stochastic": lambda dtype=dtype: round_stochastically(source, dtype, 5)  # type: ignore[misc]
            for name, dtype in DTYPES.items()
        },
    }
    median = medians(work, rounds)
    found = {name: 1e9 * each / count for name, each in median.items()}
    return found | {"floor": found["a += b"] * 6 / 12}


def step_speed(shapes: list[tuple[int, ...]], rounds: int) -> dict[str, dict[str, float]]:
    """Milliseconds of a step of each arm, and bytes of weight and states for each parameter."""
    work: dict[str, Callable[[], object]] = {}
    kept: dict[str, Callable[[], int]] = {}
    for arm in ARMS:
        dtype = DTYPES.get(arm.split()[0], torch.float32)
        weights = [nn.Parameter(0.02 * torch.randn(shape).to(dtype)) for shape in shapes]
        for weight in weights:
            weight.grad = 1e-3 * torch.randn_like(weight)
        optimizer = adamw(arm, weights, 0, lr=1e-4)

        def all_bytes(weights: list[nn.Parameter] = weights, of: torch.optim.Optimizer = optimizer) -> int:
            states = [value for state in of.state.values() for value in state.values()]
            return sum(tensor.nbytes for tensor in [*weights, *states])

        work[arm], kept[arm] = optimizer.step, all_bytes
    median = medians(work, rounds)
    size = sum(math.prod(shape) for shape in shapes)
    return {
        arm: {
            "milliseconds": 1e3 * median[arm],
            "over_adamw": median[arm] / median["fp32"],
            "bytes_per_parameter": kept[arm]() / size,
        }
        for arm in ARMS
    }


def forward(x: Tensor, weights: list[Tensor]) -> Tensor:
    """A network without biases; products in float32."""
    *inner, last = weights
    for weight in inner:
        x = torch.tanh(F.linear(x, weight.float()))
    return F.linear(x, last.float()).squeeze(1)


def learn(arm: str, seed: int, noise: float, updates: int) -> float:
    """The final loss, relative to the variance of the teacher."""
    generator = torch.Generator().manual_seed(seed)
    shapes = [(64, 32), (64, 64), (1, 64)]
    teacher = [1.5 * torch.randn(shape, generator=generator) / shape[1] ** 0.5 for shape in shapes]
    start = [0.7 * t + 0.5 * torch.randn(t.shape, generator=generator) / t.shape[1] ** 0.5 for t in teacher]
    dtype = DTYPES.get(arm.split()[0], torch.float32)
    weights = [nn.Parameter(weight.to(dtype)) for weight in start]
    optimizer = adamw(arm, weights, seed, lr=0.0, weight_decay=0.0)
    scale = torch.tensor(2.0**10)
    if arm.startswith("fp16"):
        optimizer.grad_scale, optimizer.found_inf = scale, torch.zeros(())  # type: ignore[attr-defined]
    for update in range(updates):
        warm = min(1.0, (update + 1) / 100)
        rate = 3e-3 * warm * 0.5 * (1 + math.cos(math.pi * update / updates))
        optimizer.param_groups[0]["lr"] = rate
        x = torch.randn(128, 32, generator=generator)
        y = forward(x, teacher) + noise * torch.randn(128, generator=generator)
        loss = F.mse_loss(forward(x, weights), y)  # type: ignore[arg-type]
        (loss * scale if arm.startswith("fp16") else loss).backward()
        optimizer.step()
        optimizer.zero_grad()
    with torch.no_grad():
        x = torch.randn(8192, 32, generator=generator)
        y = forward(x, teacher)
        return (F.mse_loss(forward(x, weights), y) / y.var()).item()  # type: ignore[arg-type]


def main() -> None:
    """Measure, print and keep the record."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="toy sizes: does it run?")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    keep_freed_memory()  # as the trainer does
    torch.manual_seed(0)
    count, layers, updates = (1 << 18, 1, 20) if options.quick else (80 * _BLOCK, 5, 2000)

    rounding = rounding_speed(count, options.rounds)
    print("ns for each number: " + ", ".join(f"{name} {each:.2f}" for name, each in rounding.items()))
    shapes: list[tuple[int, ...]] = [(4096, 384)]
    shapes += [(1152, 384), (384, 384), (1536, 384), (384, 1536), (384,), (384,), (1536,), (384,)] * layers
    steps = step_speed(shapes, options.rounds)
    losses = {
        noise: {arm: [learn(arm, seed, noise, updates) for seed in range(options.seeds)] for arm in ARMS}
        for noise in (0.0, 0.3)
    }
    for arm, row in steps.items():
        relative = ", ".join(f"{statistics.mean(each[arm]):.2e}" for each in losses.values())
        print(f"{arm:16} {row['milliseconds']:.1f} ms, losses without and with noise {relative}")
    if options.out:
        facts = machine_facts("brimful/precision", "brimful/optim") | {"torch": torch.__version__}
        facts |= {"parameters": sum(math.prod(shape) for shape in shapes), "nanoseconds": rounding}
        facts |= {"steps": steps, "losses": {str(noise): each for noise, each in losses.items()}}
        write_json(options.out, facts | {"threads": 1, "updates": updates})


if __name__ == "__main__":
    main()
