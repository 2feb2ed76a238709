"""Packing: from an array of lengths to rows of sequence indices, Brimful against what else there is.

Lengths are drawn from a histogram: without replacement where it holds enough sequences, so that as many as it
holds are exactly its own. By default these are Wikipedia's. Every method
(bench/packing/peers.py) packs the same array in a process of its own on one core; they take turns (A B C A B
C), and what counts are medians of the time from the array in memory to the rows. Imports, compiled loops that
are loaded, and inputs in the form that a peer wants come before the clock starts. Every result is checked:
each sequence in exactly one row, no row above the capacity.

    python -m bench.packing [--histogram FILE.json] [--sizes N ...] [--rounds 3] [--out FILE.json]
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from bench.common.corpora import DATA, environment
from bench.common.lengths import read_histogram
from bench.common.processes import machine_facts, timed
from bench.packing.peers import METHODS, REQUIREMENTS, WITHOUT_DEPENDENCIES

CAPACITY = 512
SIZES = [1_000_000, 16_279_552]  # the Wikipedia
LIBRARIES = ("numpy", "scipy", "numba")
MEDIANS = ("cpu", "wall", "peak_mb", "added_mb")


def draw(counts: np.ndarray, size: int) -> np.ndarray:
    """int32 (size,): lengths from the histogram, in random order."""
    rng = np.random.default_rng(1)
    if size <= counts.sum() < 10**9:  # numpy's limit
        drawn = rng.multivariate_hypergeometric(counts, size, method="marginals")
    else:
        drawn = rng.multinomial(size, counts / counts.sum())
    lengths = np.repeat(np.arange(len(counts), dtype=np.int32), drawn)
    rng.shuffle(lengths)
    return lengths


def measure(lengths: np.ndarray, capacity: int, python: Path, rounds: int) -> dict[str, list[dict[str, Any]]]:
    """What each method prints of its runs, taken in turn."""
    cores = sorted(os.sched_getaffinity(0))
    peer = [str(python), str(Path(__file__).with_name("peers.py"))]
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in METHODS}
    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch) / "lengths.npy"
        np.save(file, lengths)
        for number in range(rounds):
            for name, method in METHODS.items():
                command = [sys.executable, "-m", "bench.packing.peers"] if method.brimful else peer
                facts = timed([*command, name, str(file), str(capacity)], cores[-1:]).facts
                runs[name].append(facts)
                print(f"  round {number + 1}, {name}: {facts['cpu']:.4g} s CPU", file=sys.stderr, flush=True)
    os.sched_setaffinity(0, cores)
    return runs


def figures(lengths: np.ndarray, capacity: int, runs: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    """Each method's metrics. Ratios are to the first method, more rows are more than the bound."""
    tokens = int(lengths.sum(dtype=np.int64))
    bound = max(fact["bound"] or 0 for facts in runs.values() for fact in facts)
    found: dict[str, Any] = {}
    for name, facts in runs.items():
        (rows,) = {fact["rows"] for fact in facts}
        found[name] = {figure: statistics.median(fact[figure] for fact in facts) for figure in MEDIANS}
        found[name] |= {"rows": rows, "bound": bound, "efficiency": tokens / (rows * capacity)}
        found[name] |= {f"{time}_by_round": [fact[time] for fact in facts] for time in ("cpu", "wall")}
    first = next(iter(found.values()))
    for method in found.values():
        method["cpu_ratio"] = method["cpu"] / first["cpu"]
        method["rows_more"] = method["rows"] - bound
    return found


def show(found: dict[str, Any]) -> None:
    """Print the metrics."""
    print(f"{'':24}     CPU s  added MB        rows  efficiency  CPU / first  over bound")
    for name, method in found.items():
        print(
            f"{name:24}{method['cpu']:10.4f} {method['added_mb']:9.1f} {method['rows']:11,}"
            f" {100 * method['efficiency']:9.4f} % {method['cpu_ratio']:12.4g} {method['rows_more']:+11,}"
        )


def main() -> None:
    """Draw lengths, measure, print, and write the results to --out."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument(
        "--histogram", type=Path, help='JSON {"counts": [...]}: sequences of length 1, 2, ...'
    )
    parser.add_argument("--capacity", type=int, default=CAPACITY)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="sequences to draw")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--data", type=Path, default=DATA, help="where the peers' environment is kept")
    parser.add_argument("--out", type=Path, help="write all results to this JSON file")
    options = parser.parse_args()
    counts = read_histogram(options.histogram, options.capacity)
    data = options.data.resolve()
    data.mkdir(parents=True, exist_ok=True)
    python = environment("packing-venv", REQUIREMENTS, WITHOUT_DEPENDENCIES, data)
    os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    record: dict[str, Any] = {
        "bench": "packing",
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        **machine_facts("brimful/packing"),
        "versions": {name: version(name) for name in LIBRARIES},
        "peers": [*REQUIREMENTS, *WITHOUT_DEPENDENCIES],
        "histogram": options.histogram.name if options.histogram else "wikipedia-512",
        "capacity": options.capacity,
        "rounds": options.rounds,
        "results": [],
    }
    print(f"{record['cpu']}, load {record['load_average'][0]:.1f}; {options.rounds} rounds on one core")
    for size in options.sizes:
        lengths = draw(counts, size)
        tokens = int(lengths.sum(dtype=np.int64))
        print(f"\n{size:,} sequences, {tokens:,} tokens, capacity {options.capacity}", flush=True)
        methods = figures(
            lengths, options.capacity, measure(lengths, options.capacity, python, options.rounds)
        )
        show(methods)
        record["results"].append({"sequences": size, "tokens": tokens, "methods": methods})
    if options.out:
        options.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
