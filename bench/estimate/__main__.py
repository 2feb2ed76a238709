"""Is `brimful estimate` right, where it can be checked here?

First, real runs on this machine: `estimate --measure` and then the training that it is about, each in its own
process, in turns. Time is that of the training's updates; memory is the process's peak, against the
estimate's sum. Second, GPUs: time and memory by data sheet, against the recorded steps that bench/gpu
predicted (bench/results/predicted_*.json), which are predictions too.

    python -m bench.estimate [--rounds 5] [--quick] [--out FILE.json]
"""

import argparse
import json
import os
import statistics
import tempfile
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from bench.common.processes import machine_facts
from bench.common.random_corpus import make_corpus
from bench.common.study import table
from bench.estimate.sheets import compared
from bench.estimate.verb import verb


@dataclass(frozen=True)
class Shape:
    """A training.

    Attributes:
        options: those of COMMON are replaced by them.
        minutes: of --measure.
    """

    name: str
    options: tuple[str, ...]
    updates: int
    minutes: float = 0.3


COMMON = ("--packing.max-length", "512", "--rows-per-update", "2", "--validation-tokens", "0")
SHAPES = (
    Shape("mini modern, fp32", ("--model", "mini", "--precision", "fp32"), 20),
    # Enough updates for oneDNN to have kernels of all lengths.
    Shape("mini modern, bf16", ("--model", "mini", "--precision", "bf16"), 150),
    Shape(
        "mini bert, fp32, 4 rows at once",
        (
            *("--model", "mini", "--architecture", "bert", "--precision", "fp32"),
            *("--rows-per-update", "4", "--rows-per-micro-batch", "4"),
        ),
        10,
        0.5,
    ),
    Shape(
        "mini bert, fp32, 16 updates at 128, 8 at 512",
        (
            *("--model", "mini", "--architecture", "bert", "--precision", "fp32"),
            *("--phases", "16:128", "8:512"),
        ),
        24,
    ),
    Shape(
        "small prenorm, fp32, activation checkpointing, Muon",
        (
            *("--model", "small", "--architecture", "prenorm", "--precision", "fp32"),
            *("--trainer.recompute", "layers", "--optimizer.name", "muon", "--rows-per-update", "1"),
        ),
        12,
        0.5,
    ),
    Shape(
        "base modern, fp32, rows of 256",
        (
            *("--model", "base", "--precision", "fp32", "--rows-per-update", "1"),
            *("--packing.capacity", "256", "--packing.max-length", "256"),
        ),
        12,
        0.5,
    ),
)
TINY = Shape("tiny", ("--model", "tiny", "--precision", "fp32"), 10, 0.05)
DOCUMENT = 340
"""Tokens of a document, on average: about 250 of a sequence at 512."""


def once(corpus: Path, shape: Shape) -> dict[str, float]:
    """An estimate, and the run."""
    same = ["--data", str(corpus), *COMMON, *shape.options, "--trainer.steps", str(shape.updates)]
    said, _ = verb("estimate", *same, "--measure", "--minutes", str(shape.minutes))
    with tempfile.TemporaryDirectory() as folder:
        summary, peak = verb("pretrain", *same, "--out", f"{folder}/run", "--no-verify-data")
    return {
        "estimated_seconds": 3600 * said["run"]["hours"],
        "seconds": summary["seconds"],
        "estimated_bytes": said["memory"]["total"],
        "bytes": peak,
        "measured_updates": said["measured"]["updates"],
        "load": os.getloadavg()[0],
    }


def rows_of(found: dict[Shape, list[dict[str, float]]]) -> list[dict[str, Any]]:
    """A row for each shape: its rounds, and the medians of estimated over measured."""
    rows = []
    for shape, each in found.items():
        time = [one["estimated_seconds"] / one["seconds"] for one in each]
        memory = [one["estimated_bytes"] / one["bytes"] for one in each]
        row: dict[str, Any] = asdict(shape) | {"rounds": each}
        for name, ratios in (("time", time), ("memory", memory)):
            row |= {name: statistics.median(ratios), f"{name}_range": [min(ratios), max(ratios)]}
        rows.append(row)
    return rows


def main() -> None:
    """Measure, print the tables, keep the record."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="toy sizes: does it run?")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    facts = {"bench": "estimate", "date": datetime.now(UTC).isoformat(timespec="seconds"), **machine_facts()}
    facts |= {"torch": torch.__version__, "threads": int(os.environ.get("OMP_NUM_THREADS", 1))}
    sheets = compared(small=options.quick)
    shapes, rounds = ((TINY,), 1) if options.quick else (SHAPES, options.rounds)
    found: dict[Shape, list[dict[str, float]]] = {shape: [] for shape in shapes}
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        corpus = Path(folder) / "corpus"
        make_corpus(corpus, 600_000, DOCUMENT)
        for _ in range(rounds):
            for shape in shapes:
                found[shape].append(once(corpus, shape))
            rows = rows_of(found)
            if options.out:  # after each round: the next ones may be interrupted
                record = facts | {"runs": rows, "sheets": sheets}
                options.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    lines = []
    for row in rows:
        cells = [row["name"]]
        for what in ("time", "memory"):
            low, high = row[f"{what}_range"]
            cells += [f"{row[what]:.2f}", f"{low:.2f} to {high:.2f}"]
        lines.append(cells)
    print(table(["run", "time: estimated over measured", "range", "memory", "range"], lines))
    lines = [
        [
            *(row["device"], row["case"]),
            *(f"{row['milliseconds']:.1f}", f"{row['recorded_milliseconds']:.1f}", f"{row['time']:.2f}"),
            *(f"{row['gib']:.2f}", f"{row['recorded_gib']:.2f}", f"{row['memory']:.2f}"),
        ]
        for row in sheets
    ]
    print(table(["device", "case", "ms", "of bench/gpu", "ratio", "GiB", "recorded", "ratio"], lines))


if __name__ == "__main__":
    main()
