"""Is `brimful estimate` right, where it can be checked here?

First, real runs on this machine: `estimate --measure` and then the training that it is about, each in its own
process, in turns. Time is that of the training's updates; memory is the process's peak, against the
estimate's sum. Second, GPUs: time and memory by data sheet, against the recorded steps that bench/gpu
predicted (bench/results/predicted_*.json), which are predictions too.

    python -m bench.estimate [--rounds 5] [--updates 25] [--minutes 0.3] [--quick] [--out FILE.json]
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from bench.common.processes import machine_facts
from bench.common.random_corpus import make_corpus
from bench.common.study import table
from bench.estimate.sheets import compared

RUNS: dict[str, list[str]] = {
    "mini modern, fp32": ["--model", "mini", "--precision", "fp32"],
    "mini bert, fp32, 4 rows at once": [
        *("--model", "mini", "--architecture", "bert", "--precision", "fp32"),
        *("--rows-per-update", "4", "--rows-per-micro-batch", "4"),
    ],
    "mini modern, bf16": ["--model", "mini", "--precision", "bf16"],
}
COMMON = ["--packing.max-length", "512", "--validation-tokens", "0"]
DOCUMENT = 340
"""Tokens of a document, on average: about 250 of a sequence at 512."""


def brimful(*arguments: str) -> tuple[dict[str, Any], int]:
    """The result of a verb in a process of its own, and the peak of that process's memory in bytes."""
    environment = dict(os.environ, OMP_NUM_THREADS=os.environ.get("OMP_NUM_THREADS", "1"))
    with tempfile.TemporaryFile() as out:
        line = [sys.executable, "-m", "brimful", *arguments, "--json"]
        process = subprocess.Popen(line, stdout=out, stderr=subprocess.DEVNULL, env=environment)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            sys.exit(f"bench: {' '.join(arguments)} failed; run it to see why")
        out.seek(0)
        return json.loads(out.read()), usage.ru_maxrss << 10


def once(corpus: Path, options: list[str], updates: int, minutes: float) -> dict[str, float]:
    """An estimate, and the run."""
    same = ["--data", str(corpus), *options, *COMMON, "--trainer.steps", str(updates)]
    said, _ = brimful("estimate", *same, "--measure", "--minutes", str(minutes))
    with tempfile.TemporaryDirectory() as folder:
        summary, peak = brimful("pretrain", *same, "--out", f"{folder}/run", "--no-verify-data")
    return {
        "estimated_seconds": 3600 * said["run"]["hours"],
        "seconds": summary["seconds"],
        "estimated_bytes": said["memory"]["total"],
        "bytes": peak,
        "load": os.getloadavg()[0],
    }


def main() -> None:
    """Measure, print the tables, keep the record."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--updates", type=int, default=25)
    parser.add_argument("--minutes", type=float, default=0.3)
    parser.add_argument("--quick", action="store_true", help="toy sizes: does it run?")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    runs, rounds, updates, minutes = RUNS, options.rounds, options.updates, options.minutes
    if options.quick:
        runs, rounds, updates, minutes = {"tiny": ["--model", "tiny", "--precision", "fp32"]}, 1, 10, 0.05
    found: dict[str, list[dict[str, float]]] = {name: [] for name in runs}
    with tempfile.TemporaryDirectory() as folder:
        corpus = Path(folder) / "corpus"
        make_corpus(corpus, 600_000, DOCUMENT)
        for _ in range(rounds):
            for name, given in runs.items():
                found[name].append(once(corpus, given, updates, minutes))
    rows = []
    for name, each in found.items():
        time = [one["estimated_seconds"] / one["seconds"] for one in each]
        memory = [one["estimated_bytes"] / one["bytes"] for one in each]
        rows.append(
            {
                "run": name,
                "rounds": each,
                "time": statistics.median(time),
                "memory": statistics.median(memory),
            }
        )
    heads = ["run", "time: estimated over measured", "range", "memory", "range"]
    lines = []
    for row in rows:
        cells = [row["run"]]
        for what, top in (("time", "seconds"), ("memory", "bytes")):
            ratios = [one[f"estimated_{top}"] / one[top] for one in row["rounds"]]
            cells += [f"{row[what]:.2f}", f"{min(ratios):.2f} to {max(ratios):.2f}"]
        lines.append(cells)
    print(table(heads, lines))
    sheets = compared(small=options.quick)
    heads = ["device", "case", "ms", "of bench/gpu", "ratio", "GiB", "recorded", "ratio"]
    lines = [
        [
            *(
                row["device"],
                row["case"],
                f"{row['milliseconds']:.1f}",
                f"{row['recorded_milliseconds']:.1f}",
            ),
            *(
                f"{row['time']:.2f}",
                f"{row['gib']:.2f}",
                f"{row['recorded_gib']:.2f}",
                f"{row['memory']:.2f}",
            ),
        ]
        for row in sheets
    ]
    print(table(heads, lines))
    if options.out:
        facts = {"bench": "estimate", **machine_facts(), "updates": updates, "minutes": minutes}
        record = facts | {"runs": rows, "sheets": sheets}
        options.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
