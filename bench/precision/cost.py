"""What watching and counting add to a compiled training step: `python -m bench.precision.cost`.

A small encoder of PyTorch's own layers with torch's fused AdamW, compiled as one graph, in turns with itself
watched and scaled; CPU time of one thread, so that other work on the machine counts little.
"""

import argparse
import copy
import json
import statistics
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bench.common.processes import machine_facts
from bench.kernels.timing import alternated
from brimful.precision import AutomaticLossScaler, watch_modules


class Encoder(nn.Module):
    """Embedding, post-norm layers, and a product with the vocabulary."""

    def __init__(self, vocabulary: int, width: int, layers: int) -> None:
        super().__init__()
        self.table = nn.Embedding(vocabulary, width)
        self.layers = nn.Sequential(
            *(
                nn.TransformerEncoderLayer(width, width // 64, 4 * width, 0.0, "gelu", batch_first=True)
                for _ in range(layers)
            )
        )
        self.head = nn.Linear(width, vocabulary)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.layers(self.table(tokens))[:, ::8])


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


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the ratios; keep the seconds of each step."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--turns", type=int, default=15)
    parser.add_argument("--bf16", action="store_true")
    sizes = {"width": 256, "layers": 2, "vocabulary": 8192, "rows": 16, "length": 128}
    for name, value in sizes.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = Encoder(options.vocabulary, options.width, options.layers)
    tokens = torch.randint(options.vocabulary, (options.rows, options.length))
    steps = [step_of(copy.deepcopy(model), watched, options.bf16) for watched in (False, True)]
    sides = {name: partial(step, tokens) for name, step in zip(("plain", "watched"), steps, strict=True)}
    seconds = alternated(sides, options.turns, warm_up=2)
    plain, watched = seconds.values()
    ratio = statistics.median(b / a for a, b in zip(plain, watched, strict=True))
    row = {"bf16": options.bf16, **{name: getattr(options, name) for name in sizes}}
    row |= {"tokens": tokens.numel(), "ratio": ratio, "ratio_of_least": min(watched) / min(plain)}
    print(json.dumps(row))
    if options.out:
        record = machine_facts() | {"torch": torch.__version__, "rows": [row | seconds]}
        options.out.write_text(json.dumps(record) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
