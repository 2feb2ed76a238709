"""Steps of the optimizers against torch's fused AdamW: BERT of 12 x 384 with its masked-LM head, 33.4 M.

All have weights of their own and the same gradients, and take turns (A B C A B C); medians, and the ratio to
AdamW's. With one thread CPU time is what counts, otherwise the clock on the wall.

The floor is what cannot be left out: numbers read and written for each parameter, at the rate of a large
`a += b` in this process (AdamW 4 + 3; LAMB 3 more, since the length of its update is known at the end of a
matrix only), and Muon's 30 * n^2 * m flops for an n x m matrix at
the rate of large matrix products (left out on a GPU), beside AdamW's floor for the rest.
LAMB's goal is 2.5 times AdamW's time.

    python -m bench.kernels optim [--threads 1] [--rounds 15] [--device cuda] [--out FILE]
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch import nn

import brimful.kernels.forms  # noqa: F401  (fast forms register themselves)
from bench.common.processes import machine_facts
from bench.common.reference import matmul_rate
from bench.kernels.timing import alternated
from brimful.base.cpu_steps import keep_freed_memory
from brimful.model.encoder import Encoder
from brimful.model.heads import MaskedLMHead
from brimful.model.shape import EncoderConfig
from brimful.optim.build import build_optimizers
from brimful.optim.config import OptimizerConfig

SHAPE = {"hidden_size": 384, "layers": 12, "heads": 12, "intermediate_size": 1536, "vocabulary_size": 30_522}
QUICK = SHAPE | {"hidden_size": 32, "layers": 2, "heads": 2, "intermediate_size": 64, "vocabulary_size": 64}
CONFIGS = {
    "adamw": OptimizerConfig(),
    "lamb": OptimizerConfig(name="lamb", beta2=0.999, epsilon=1e-6),
    "muon": OptimizerConfig(name="muon"),
    "muon, bf16": OptimizerConfig(name="muon"),
}


class Side:
    """An optimizer with a model of its own."""

    def __init__(self, name: str, shape: dict[str, int], device: torch.device) -> None:
        torch.manual_seed(0)
        encoder = Encoder(EncoderConfig(architecture="bert", **shape))
        modules = nn.ModuleDict({"encoder": encoder, "head": MaskedLMHead(encoder)}).to(device)
        self.parameters = dict(modules.named_parameters())
        self.blocks = {f"encoder.{key}": count for key, count in encoder.fused_blocks().items()}
        for parameter in self.parameters.values():
            parameter.grad = 1e-3 * torch.randn_like(parameter)
        self.dtype = torch.bfloat16 if name.endswith("bf16") else torch.float32
        self.optimizers = build_optimizers(CONFIGS[name], self.parameters, self.blocks, self.dtype)

    def step(self) -> None:
        """What is measured."""
        for optimizer in self.optimizers:
            optimizer.step()

    def state_bytes(self) -> float:
        """Bytes kept for each parameter, beside weight and gradient."""
        states = [state.values() for o in self.optimizers for state in o.state.values()]
        return sum(t.numel() * t.element_size() for each in states for t in each) / self.size

    @property
    def size(self) -> int:
        """Number of parameters."""
        return sum(parameter.numel() for parameter in self.parameters.values())

    def floor(
        self, name: str, bytes_per_second: float, flops_per_second: Callable[[torch.dtype], float]
    ) -> float:
        """Seconds of a step; see the head of this file."""
        moves = 10 if name == "lamb" else 7
        size, flops = self.size, 0
        if name.startswith("muon"):
            for key, blocks in self.blocks.items():
                rows, columns = self.parameters[key].shape
                n, m = sorted((rows // blocks, columns))
                flops += 30 * blocks * n * n * m
                size -= rows * columns
        return moves * 4 * size / bytes_per_second + (flops and flops / flops_per_second(self.dtype))


def settled(device: torch.device, clock: Callable[[], float]) -> Callable[[], float]:
    """A clock that waits until the device is done."""

    def now() -> float:
        if device.type == "cuda":
            torch.cuda.synchronize()
        return clock()

    return now


def main(arguments: Sequence[str] | None = None) -> None:
    """Print one row for each optimizer."""
    parser = argparse.ArgumentParser("bench.kernels optim", description=__doc__.split("\n")[0])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--quick", action="store_true", help="toy sizes: does it run?")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args(arguments)
    torch.set_num_threads(options.threads)
    keep_freed_memory()  # as the trainer does
    device = torch.device(options.device)
    one_thread = options.threads == 1 and device.type == "cpu"
    clock = time.process_time if one_thread else time.perf_counter

    sides = {name: Side(name, QUICK if options.quick else SHAPE, device) for name in CONFIGS}
    size = sides["adamw"].size
    one, other = torch.ones(2, size, device=device)
    work: dict[str, Callable[[], object]] = {name: side.step for name, side in sides.items()}
    work["add"] = lambda: one.add_(other)
    seconds = alternated(work, options.rounds, warm_up=2, clock=settled(device, clock))
    median = {name: statistics.median(each) for name, each in seconds.items()}
    bandwidth = 3 * 4 * size / median["add"]

    def rate(dtype: torch.dtype) -> float:
        return matmul_rate(dtype, clock) if device.type == "cpu" else float("inf")

    print(f"{size / 1e6:.1f} M parameters, {options.threads} threads, {bandwidth / 1e9:.1f} GB/s")
    titles = ("ms", "least", "most", "/ adamw", "floor ms", "/ floor", "state B")
    print(f"{'':12}" + "".join(f"{title:>9}" for title in titles))
    rows = []
    for name, side in sides.items():
        floor = side.floor(name, bandwidth, rate)
        row = {
            "optimizer": name,
            "milliseconds": [1e3 * each for each in seconds[name]],
            "over_adamw": median[name] / median["adamw"],
            "floor_milliseconds": 1e3 * floor,
            "over_floor": median[name] / floor,
            "state_bytes_per_parameter": side.state_bytes(),
        }
        rows.append(row)
        times = median[name], min(seconds[name]), max(seconds[name])
        print(f"{name:12}" + "".join(f"{1e3 * each:9.1f}" for each in times), end="")
        print(f"{row['over_adamw']:9.2f}{1e3 * floor:9.1f}{row['over_floor']:9.2f}", end="")
        print(f"{row['state_bytes_per_parameter']:9.1f}")
    if options.out:
        facts = machine_facts() | {"torch": torch.__version__, "threads": options.threads, "parameters": size}
        facts |= {"device": options.device, "bytes_per_second": bandwidth, "rows": rows}
        options.out.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
