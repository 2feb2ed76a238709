"""What watching and counting add to a compiled training step: `python -m bench.loss_scaling_cost`.

A small encoder of PyTorch's own layers with torch's fused AdamW, compiled as one graph, in turns with itself
watched and scaled; CPU time of one thread, so that other work on the machine counts little.
"""

import argparse
import copy
import json
import statistics
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bench.common.processes import machine_facts
from brimful.precision import AutomaticLossScaler, watch_modules


class Encoder(nn.Module):
    """Embedding, post-norm layers, and a product with the vocabulary."""

    def __init__(self, vocabulary: int, width: int, layers: int) -> None:
        super().__init__()
        self.table = nn.Embedding(vocabulary, width)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(width, width // 64, 4 * width, 0.0, "gelu", batch_first=True)
            for _ in range(layers)
        )
        self.head = nn.Linear(width, vocabulary)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.table(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.head(x[:, ::8])


def step_of(model: nn.Module, watched: bool, bf16: bool) -> Callable[[Tensor], None]:
    """A training step on a batch of tokens."""
    if watched:
        watch_modules(model)
    compiled = torch.compile(model, fullgraph=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    scaler = AutomaticLossScaler(init_scale=2.0**10) if watched else None

    def step(tokens: Tensor) -> None:
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16) if bf16 else nullcontext():
            logits = compiled(tokens)
        loss = F.cross_entropy(logits.flatten(0, 1).float(), tokens[:, ::8].flatten())
        if scaler is None:
            loss.backward()
            optimizer.step()
        else:
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()

    return step


def measure(turns: int, bf16: bool, width: int, layers: int, vocabulary: int, rows: int, length: int) -> dict:
    """Seconds of each step without and with, and the median of the ratios of neighbours."""
    torch.manual_seed(0)
    model = Encoder(vocabulary, width, layers)
    steps = [step_of(copy.deepcopy(model), watched, bf16) for watched in (False, True)]
    tokens = torch.randint(vocabulary, (rows, length))
    for step in steps * 2:
        step(tokens)
    seconds: list[list[float]] = [[], []]
    for _ in range(turns):
        for step, times in zip(steps, seconds, strict=True):
            start = time.process_time()
            step(tokens)
            times.append(time.process_time() - start)
    ratios = [watched / plain for plain, watched in zip(*seconds, strict=True)]
    return {
        "bf16": bf16,
        "width": width,
        "layers": layers,
        "vocabulary": vocabulary,
        "tokens": rows * length,
        "plain": seconds[0],
        "watched": seconds[1],
        "ratio": statistics.median(ratios),
        "ratio_of_least": min(seconds[1]) / min(seconds[0]),
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--turns", type=int, default=15)
    parser.add_argument("--bf16", action="store_true")
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--vocabulary", type=int, default=8192)
    parser.add_argument("--rows", type=int, default=16)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--out", type=Path)
    arguments = vars(parser.parse_args())
    out = arguments.pop("out")
    torch.set_num_threads(1)
    result = measure(**arguments)
    print(json.dumps({name: value for name, value in result.items() if not isinstance(value, list)}))
    if out:
        record = machine_facts() | {"torch": torch.__version__, "rows": [result]}
        out.write_text(json.dumps(record) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
