"""A pretraining step on the CPU: Brimful's packed rows against `transformers` on padded batches.

The same ModernBERT shape (4 x 256, 6,000 tokens in the vocabulary), the same weights, sequences and masks
(30 % of the tokens); forward, backward, fused AdamW. Peers pad to 128, or to the longest of the batch. Each
measurement is a process of its own, so that its peak memory is its own; they take turns (A B C A B C), and
what counts is the ratio of medians. Losses must agree before anything is timed.

The floor: 6 flops for each parameter of the layers and each token, and 6 for each parameter of the decoder
and each masked token: 22 Mflop a token at these shapes.

    python -m bench.pretrain_step [--threads 2] [--rounds 3] [--out bench/results/NAME.json]
"""

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from bench.attention import skewed_lengths
from brimful.data.batch import IGNORED, PackedBatch, pack
from brimful.nn.encoder import Encoder, preset
from brimful.nn.heads import MaskedLMHead
from brimful.nn.interop import save_model
from brimful.objectives.pretrain import MaskedLM

VOCABULARY, MAX_LENGTH, TOKENS, MASKED = 6000, 128, 2048, 0.3
VARIANTS = ("brimful", "padded to 128", "padded to longest")


def make_batch() -> PackedBatch:
    """One row of sequences of skewed lengths (mean 60) with masks."""
    rng = np.random.default_rng(0)
    lengths = skewed_lengths(TOKENS, 60, MAX_LENGTH)
    batch = pack([rng.integers(5, VOCABULARY, n) for n in lengths], max_length=MAX_LENGTH, pad=0)
    chosen = np.flatnonzero(rng.random(TOKENS) < MASKED)
    labels = torch.from_numpy(rng.integers(5, VOCABULARY, len(chosen)))
    return replace(batch, mlm_positions=torch.from_numpy(chosen), mlm_labels=labels)


def padded(batch: PackedBatch, width: int) -> dict[str, torch.Tensor]:
    """The same sequences and labels as (B, width) tensors."""
    labels = torch.full((TOKENS,), IGNORED)
    labels[batch.mlm_positions] = batch.mlm_labels
    shape = (len(batch.lengths), width)
    values = {"input_ids": torch.zeros(shape, dtype=torch.long), "labels": torch.full(shape, IGNORED)}
    values["attention_mask"] = torch.zeros(shape, dtype=torch.long)
    for row, (ids, wanted) in enumerate(
        zip(batch.tokens.split(batch.lengths), labels.split(batch.lengths), strict=True)
    ):
        values["input_ids"][row, : len(ids)] = ids
        values["labels"][row, : len(ids)] = wanted
        values["attention_mask"][row, : len(ids)] = 1
    return values


def variant(name: str, precision: str, folder: Path) -> tuple[Callable[[], torch.Tensor], list]:
    """The loss of a step, and the parameters to train."""
    torch.manual_seed(0)
    encoder = Encoder(preset("mini", "modern", vocabulary_size=VOCABULARY))
    head = MaskedLMHead(encoder)
    batch = make_batch()
    amp = torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16")
    if name == "brimful":
        objective = MaskedLM(head, [])

        def packed_loss() -> torch.Tensor:
            with amp:
                return objective.loss(encoder, batch)["mlm"] / objective.weights(batch)["mlm"]

        return packed_loss, [*encoder.parameters(), *head.parameters()]
    import transformers

    save_model(folder, encoder, head)
    transformers.utils.logging.disable_progress_bar()
    model = transformers.AutoModelForMaskedLM.from_pretrained(folder, attn_implementation="sdpa").train()
    values = padded(batch, MAX_LENGTH if name == "padded to 128" else max(batch.lengths))

    def padded_loss() -> torch.Tensor:
        with amp:
            return model(**values).loss

    return padded_loss, list(model.parameters())


def measure(name: str, precision: str, threads: int, folder: Path) -> dict[str, float]:
    """Median seconds of 5 steps after 2, the first loss, and the process's peak memory."""
    torch.set_num_threads(threads)
    step_loss, parameters = variant(name, precision, folder)
    optimizer = torch.optim.AdamW(parameters, fused=True)
    times, losses = [], []
    for _ in range(7):
        started = time.perf_counter()
        loss = step_loss()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        times.append(time.perf_counter() - started)
        losses.append(float(loss))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"seconds": statistics.median(times[2:]), "loss": losses[0], "peak_mb": peak}


def main() -> None:
    """Run all variants in turn and print one row for each."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--one", nargs=3, metavar=("VARIANT", "PRECISION", "FOLDER"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        name, precision, folder = options.one
        print(json.dumps(measure(name, precision, options.threads, Path(folder))))
        return
    import tempfile

    results = {}
    for precision in ("fp32", "bf16"):
        found: dict[str, list[dict[str, float]]] = {name: [] for name in VARIANTS}
        for _ in range(options.rounds):
            for name in VARIANTS:
                with tempfile.TemporaryDirectory() as folder:
                    command = [sys.executable, "-m", "bench.pretrain_step", "--threads", str(options.threads)]
                    one = ["--one", name, precision, folder]
                    output = subprocess.run([*command, *one], capture_output=True, text=True, check=True)
                found[name].append(json.loads(output.stdout.splitlines()[-1]))
        losses = [runs[0]["loss"] for runs in found.values()]
        assert max(losses) - min(losses) < (1e-4 if precision == "fp32" else 5e-2), losses
        ours = statistics.median(run["seconds"] for run in found["brimful"])
        for name, runs in found.items():
            seconds = statistics.median(run["seconds"] for run in runs)
            row = {
                "real_tokens_per_second": TOKENS / seconds,
                "seconds_over_brimful": seconds / ours,
                "peak_mb": max(run["peak_mb"] for run in runs),
            }
            results[f"{name}, {precision}"] = row
            print(f"{name:18} {precision}  " + "  ".join(f"{k} {v:,.2f}" for k, v in row.items()), flush=True)
    if options.out:
        facts = {"torch": torch.__version__, "threads": options.threads, "rounds": options.rounds}
        options.out.write_text(
            json.dumps({"bench": "pretrain_step", **facts, "results": results}, indent=1) + "\n"
        )


if __name__ == "__main__":
    main()
