"""A step of fine-tuning on questions at 384 tokens, DeepSpeed's tables 2 and 3: samples a second, and memory.

    python -m bench.questions [--model base] [--batches 1 2 4 8 16 32] [--rounds 3] [--out FILE.json]

Brimful packs the windows of a batch; `transformers` pads them to 384, as its script for SQuAD does, or to the
longest of the batch. Both sides have the same weights, windows, targets, number format and fused AdamW, no
dropout, and one step a batch. The peer's softmax leaves out padding, as ours does (its own loss includes it).
The lengths are those of CMRC 2018 (`pack --histogram clue-cmrc-512`), cut at 384, at even quantiles. Each
side of a batch is a process of its own; the sides take turns, and the median of the rounds counts. Losses
must agree.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

from bench.common.processes import machine_facts, timed

SIDES = ("brimful", "longest", "padded")
LENGTH = 384
SECONDS = 8.0
"""The least time of the steps that are measured, after one to warm up."""
TOLERANCE = {"fp32": 1e-4, "bf16": 5e-2}


def measure(side: str, model: str, dtype: str, size: int) -> dict[str, Any]:
    """Train a model for a few steps on one batch, and return its rate, its first loss and its peak memory."""
    import numpy as np
    import torch
    import transformers

    from bench.common.lengths import cut, quantile_sample
    from bench.common.memory import peak_mb
    from bench.common.workload import LOWEST, VOCABULARY, model_config
    from brimful.data.batch import pack
    from brimful.hf.folders import save_model
    from brimful.model.encoder import Encoder
    from brimful.model.heads import SpanHead
    from brimful.objectives.losses import span_cross_entropy_sum
    from brimful.packing.published import read_histogram

    torch.manual_seed(0)
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    random = np.random.default_rng(0)
    # Cutting makes more windows than there are lengths; the first ones are as random as all.
    lengths = cut(quantile_sample(read_histogram("clue-cmrc-512"), size, 0), LENGTH)[:size]
    tokens = [random.integers(LOWEST, VOCABULARY, length) for length in lengths]
    spans = torch.tensor([sorted(random.integers(0, length, 2)) for length in lengths])
    encoder = Encoder(model_config(model, "bert"))
    head = SpanHead(encoder)
    if side == "brimful":
        batch = pack(tokens, max_length=LENGTH, pad=0)
        parameters = [*encoder.parameters(), *head.parameters()]

        def compute_loss() -> torch.Tensor:
            return span_cross_entropy_sum(head(encoder(batch)), spans, batch) / size
    else:
        with tempfile.TemporaryDirectory(prefix="bench-questions-") as folder:
            save_model(Path(folder), encoder, head)
            peer = transformers.AutoModelForQuestionAnswering.from_pretrained(folder)
        parameters = list(peer.train().parameters())
        width = LENGTH if side == "padded" else max(lengths)
        ids, mask = torch.zeros(2, size, width, dtype=torch.long)
        for row, sequence in enumerate(tokens):
            ids[row, : len(sequence)], mask[row, : len(sequence)] = torch.from_numpy(sequence), 1

        def compute_loss() -> torch.Tensor:
            outputs = peer(input_ids=ids, attention_mask=mask)
            logits = torch.stack([outputs.start_logits, outputs.end_logits], -1)  # (B, width, 2)
            logits = logits.float().masked_fill(mask[..., None] == 0, -torch.inf)
            return torch.nn.functional.cross_entropy(logits, spans)

    optimizer = torch.optim.AdamW(parameters, lr=1e-5, fused=True)

    def step() -> float:
        with torch.autocast("cpu", torch.bfloat16, enabled=dtype == "bf16"):
            loss = compute_loss()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return float(loss)

    first, steps, started = step(), 0, time.perf_counter()
    while steps == 0 or time.perf_counter() - started < SECONDS:
        step()
        steps += 1
    rate = steps * size / (time.perf_counter() - started)
    return {"samples_per_second": rate, "loss": first, "peak_mb": peak_mb(), "real_tokens": sum(lengths)}


def compare(model: str, dtype: str, size: int, rounds: int) -> list[dict[str, Any]]:
    """Return a row for each side of a batch, after checking that the sides have one loss."""
    runs: dict[str, list[dict[str, Any]]] = {side: [] for side in SIDES}
    for _ in range(rounds):
        for side in SIDES:
            command = [sys.executable, "-m", "bench.questions", "--one", side, model, dtype, str(size)]
            runs[side].append(timed(command, os.sched_getaffinity(0)).facts)
    rows = []
    for side, measured in runs.items():
        rates = [run["samples_per_second"] for run in measured]
        if abs(measured[0]["loss"] - runs["brimful"][0]["loss"]) > TOLERANCE[dtype]:
            sys.exit(f"bench: the losses of a batch of {size} differ: {runs}")
        rows.append(
            {"model": model, "dtype": dtype, "batch": size, "side": side, **measured[0]}
            | {"samples_per_second": median(rates), "rates": rates}
        )
    return rows


def main() -> None:
    if sys.argv[1:2] == ["--one"]:
        side, model, dtype, size = sys.argv[2:]
        print(json.dumps(measure(side, model, dtype, int(size))))
        return
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="base")
    parser.add_argument("--dtype", choices=TOLERANCE, default="bf16")
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 2, 4, 8, 16, 32])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    record = machine_facts("brimful/model", "brimful/kernels") | {"bench": "questions", "rows": []}
    for size in args.batches:
        rows = compare(args.model, args.dtype, size, args.rounds)
        record["rows"] += rows
        args.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
        for row in rows:
            print(
                f"{size:3} {row['side']:8} {row['samples_per_second']:7.2f}/s, {row['peak_mb']:6,.0f} MB,"
                f" loss {row['loss']:.4f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
