"""A training on the recording device, as `brimful pretrain` does it: what each update did on the device.

    python scenario.py OPTIONS.json

The options are those of `Options`. The answer, OPTIONS.json with the suffix .out.json, holds the updates (see
`_Watch`), the metrics, and what was compiled. Everything is done by the code of `brimful pretrain`; only
the trainer's step is watched, and all losses are read as 0.
"""

import json
import os
import sys
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch._dynamo.utils import counters

import brimful
from bench.common.recorder import record
from brimful.model.encoder import Encoder
from brimful.train import guard, metrics
from brimful.train.metrics import read_metrics
from brimful.train.trainer import Trainer


@dataclass
class Options:
    """What to train.

    Attributes:
        data, out: the corpus, and the run's folder.
        config: further fields of PretrainConfig, with dots: {"trainer.steps": 12}.
        backend: of attention.
        mode: how a step runs: graphs is what training does on CUDA; compiled is without CUDA graphs.
        sabotage: "item" reads a value of the device after each step, "item in backward" in its backward
            pass.
        dies: the number of the update at whose beginning the process exits with 9.
        resume: continue the run in `out`.
    """

    data: str
    out: str
    config: dict[str, Any] = field(default_factory=dict)
    backend: str = "auto"
    mode: str = "graphs"
    sabotage: str = ""
    dies: int = 0
    resume: bool = False


BESIDE = ("prefetch", "checkpoint")
"""How the names of the threads begin that prepare batches and write checkpoints: they wait for themselves."""


class _Watch:
    """Records what each update does on the device, from its beginning to the next one's.

    What the threads of `BESIDE` do is recorded apart. All others belong to the update: above all autograd has
    a thread of its own for the backward pass.
    """

    def __init__(self) -> None:
        self.began = 0.0
        self.beside: dict[int, str] = {}
        self.updates: list[dict[str, Any]] = []
        self.stacks: Counter[str] = record.watch()
        self.captured: list[record.Entry] = []

    def begin(self, step: int) -> None:
        """An update begins: the entries so far belong to the one before it, or to the start."""
        now = time.perf_counter()  # reading the record takes time, which belongs to the update that begins
        found = record.entries()
        record.reset()
        self.captured += [entry for entry in found if entry.graph]
        done = record.replayed(found, self.captured)
        if self.updates:
            beside: dict[str, Counter[str]] = {name: Counter() for name in BESIDE}
            for entry in found:
                if entry.thread in self.beside:
                    beside[self.beside[entry.thread]][entry.kind] += 1
            # The batches that are copied beside an update are copied for it.
            own = ("sync", "allocate", "free")
            counted = [e for e in found if e.kind not in own or e.thread not in self.beside]
            self.updates[-1] |= {
                "counts": dict(Counter(entry.kind for entry in counted)),
                "beside": beside,
                "devices": sorted({entry.device for entry in found}),
                "device": dict(Counter(entry.kind for entry in done)),
                "copies": [
                    {"to": e.name, "bytes": e.values[0], "pageable": e.values[2], "stream": e.stream}
                    for e in found
                    if e.kind == "copy" and not e.graph
                ],
                "strides": sorted(
                    {s for e in done if e.kind == "product" for s in e.values[5:] if s % 8 and s > 8}
                ),
                "syncs": dict(self.stacks),
                "violations": [e.name for e in found if e.kind == "violation"],
                "graphs_compiled": counters["stats"]["unique_graphs"],
                "ended": now,
            }
        self.stacks.clear()
        self.updates.append({"step": step, "began": now})

    def end(self) -> None:
        self.begin(-1)
        self.updates.pop()

    def name_threads(self) -> None:
        """Note which threads are those of `BESIDE`, from now on."""
        run = threading.Thread.run

        def noted(thread: threading.Thread) -> None:
            native = threading.get_native_id()
            self.beside.pop(native, None)  # a number may come again
            for name in BESIDE:
                if thread.name.startswith(name):
                    self.beside[native] = name
            run(thread)

        threading.Thread.run = noted  # type: ignore[method-assign]


def _values(options: Options) -> dict[str, Any]:
    """The keywords of `brimful.pretrain`."""
    values: dict[str, Any] = {"data": options.data, "out": options.out, "verify_data": False}
    if options.resume:
        values = {"resume": options.out}
    for name, value in ({} if options.resume else options.config).items():
        *groups, last = name.split(".")
        inner = values
        for group in groups:
            inner = inner.setdefault(group, {})
        inner[last] = value
    return values


def _patch(options: Options, watch: _Watch) -> None:
    step, run, prepare, values = Trainer.train_step, Trainer.run, Encoder.prepare, metrics.read_scalars

    def train_step(self: Trainer, update: Any) -> Any:
        watch.begin(self.progress.step)
        if options.dies and self.progress.step + 1 == options.dies:
            self.checkpoints.finish()
            os._exit(9)
        if options.sabotage == "item in backward" and not self.progress.step:
            next(self.encoder.parameters()).register_hook(_read)
        result = step(self, update)
        if options.sabotage == "item":
            result.loss.item()
        watch.updates[-1]["flops"] = result.counts["flops"]
        return result

    def run_to_the_end(self: Trainer, *arguments: Any, **named: Any) -> Any:
        watch.began = time.perf_counter()
        metrics = run(self, *arguments, **named)
        watch.end()
        return metrics

    def prepare_with(self: Encoder, batch: Any, backend: str = "auto") -> Any:
        return prepare(self, batch, options.backend if backend == "auto" else backend)

    def zeros(scalars: list[torch.Tensor]) -> list[float]:
        return [0.0 for _ in values(scalars)]  # waits and copies as ever

    # No kernel writes a loss: its memory holds what was copied there before, perhaps token ids, perhaps NaN.
    guard.read_scalars = metrics.read_scalars = zeros  # type: ignore[assignment]
    Trainer.train_step, Trainer.run = train_step, run_to_the_end  # type: ignore[method-assign]
    Encoder.prepare = prepare_with  # type: ignore[method-assign]


def _read(gradient: torch.Tensor) -> None:
    gradient.sum().item()


def main() -> None:
    path = Path(sys.argv[1])
    options = Options(**json.loads(path.read_text()))
    if options.mode == "compiled":
        compile_ = torch.compile

        def without_graphs(*arguments: Any, **named: Any) -> Any:
            return compile_(*arguments, **{**named, "mode": None})

        torch.compile = without_graphs  # type: ignore[assignment]
    watch = _Watch()
    watch.name_threads()
    _patch(options, watch)
    summary = brimful.pretrain(**_values(options))
    answer = {
        "began": watch.began,
        "updates": watch.updates,
        "summary": summary,
        "metrics": read_metrics(Path(options.out) / "metrics.jsonl"),
        "cudagraph_skips": counters["inductor"]["cudagraph_skips"],
    }
    path.with_suffix(".out.json").write_text(json.dumps(answer, default=str))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # unloading a device that is not there may abort


if __name__ == "__main__":
    main()
