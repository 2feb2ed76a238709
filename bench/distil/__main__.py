"""A step of layer distillation: packed rows, against a TinyBERT-style padded step.

A step is the teacher's forward pass, and the student's forward and backward pass with TinyBERT's losses of
scores and hidden states, in fp32 with random weights. The teacher has the shape of BERT-base, the student
4 layers of 312.

    brimful     LayerDistillation on a packed batch, as `brimful distil` takes a micro-batch
    tinybert    bench/distil/peer.py: texts padded to the full length
    dynamic     the same, padded to the longest of the batch

Two batches: 32 texts at length 128, a quarter of the slots real; 8 texts at 384, 48 % real.

    python -m bench.distil [--lengths 128 384] [--rounds 7] [--threads 2] [--quick] [--out FILE.json]
"""

import argparse
import os
import statistics
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch

from bench.common.record import Record
from bench.common.turns import Worker

WORKER = "bench.distil.worker"
SIDES = ("brimful", "tinybert", "dynamic")
LENGTHS = (128, 384)
PROCESSES = 3
"""Of each side, whose peaks the median of memory is over."""


def measure_memory(side: str, values: dict[str, Any]) -> dict[str, float]:
    """Medians over fresh processes of the peak of their first step."""
    found = []
    for _ in range(PROCESSES):
        with Worker(WORKER) as worker:
            worker.ask("setup", side=side, **values)
            found.append(worker.ask("memory"))
    return {name: statistics.median(one[name] for one in found) for name in found[0]}


def measure(length: int, options: argparse.Namespace, record: Record) -> None:
    """Print and keep a row for each side."""
    values = {"length": length, "threads": options.threads, "small": options.quick}
    memory = {side: measure_memory(side, values) for side in SIDES}
    seconds: dict[str, list[float]] = {side: [] for side in SIDES}
    rates = []
    with ExitStack() as stack:
        workers = {side: stack.enter_context(Worker(WORKER)) for side in SIDES}
        facts = {side: worker.ask("setup", side=side, **values) for side, worker in workers.items()}
        losses = {side: worker.ask("turn")["losses"] for side, worker in workers.items()}
        for turn in range(options.rounds):
            for side in SIDES[turn % 3 :] + SIDES[: turn % 3]:
                seconds[side].append(workers[side].ask("turn")["seconds"])
            rates.append(workers["brimful"].ask("rate")["flops_per_second"])
    rate, batch = statistics.median(rates), facts["brimful"]
    floor = batch["flops"] / rate
    record.add({"length": length, "side": "floor", "seconds": floor, "matrix_rate": rate, **batch})
    print(f"\nlength {length}: {batch['real']:,} real tokens, floor {floor:.2f} s", flush=True)
    for side in SIDES:
        ratios = [theirs / ours for theirs, ours in zip(seconds[side], seconds["brimful"], strict=True)]
        median, peak = statistics.median(seconds[side]), memory[side]["peak_mb"]
        row = {
            "seconds": median,
            "all_seconds": seconds[side],
            "brimful_times_as_fast": statistics.median(ratios),
            **memory[side],
            "brimful_times_less_memory": peak / memory["brimful"]["peak_mb"],
            "floor_share": floor / median,
            "losses": losses[side],
        }
        record.add({"length": length, "side": side, **row})
        speed = f"brimful is {row['brimful_times_as_fast']:.2f} times as fast"
        print(f"{side:10} {median:7.2f} s, {speed}, {peak:,.0f} MB", flush=True)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--lengths", type=int, nargs="+", default=list(LENGTHS), choices=LENGTHS)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--quick", action="store_true", help="narrow models, one round")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args(arguments)
    if options.quick:
        options.rounds = 1
    measures = ("brimful/objectives", "brimful/kernels", "brimful/model")
    facts = {"threads": options.threads, "torch": torch.__version__, "dtype": "float32"}
    record = Record("distil", measures, options.out, **facts)
    with Worker(WORKER) as worker:
        record.facts["difference_from_the_peer"] = worker.ask("agree")["difference"]
    for length in options.lengths:
        measure(length, options, record)


if __name__ == "__main__":
    main()
