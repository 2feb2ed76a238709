"""Packing: from an array of lengths to rows of sequence indices, Brimful against what else there is.

Lengths are drawn from Wikipedia's histogram: without replacement where it holds enough sequences, so that as
many as it holds are exactly its own. bench/README.md says how the methods of peers.py are compared.

    python -m bench.packing [--sizes N ...] [--rounds 3] [--out FILE.json]
"""

import argparse
import os
import statistics
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from bench.common.corpora import DATA, environment
from bench.common.lengths import read_wikipedia
from bench.common.processes import timed
from bench.common.record import Record
from bench.packing.peers import METHODS, REQUIREMENTS, WITHOUT_DEPENDENCIES

CAPACITY = 512
SIZES = [1_000_000, 16_279_552]  # the Wikipedia
LIBRARIES = ("numpy", "scipy", "numba")
MEDIANS = ("cpu", "added_mb")


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


def measure(lengths: np.ndarray, python: Path, rounds: int) -> dict[str, list[dict[str, Any]]]:
    """What each method prints of its runs, taken in turn."""
    cores = sorted(os.sched_getaffinity(0))
    peer = [str(python), str(Path(__file__).with_name("peers.py"))]
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in METHODS}
    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch) / "lengths.npy"
        np.save(file, lengths)
        for _ in range(rounds):
            for name in METHODS:
                own = name.startswith("brimful")
                command = [sys.executable, "-m", "bench.packing.peers"] if own else peer
                facts = timed([*command, name, str(file), str(CAPACITY)], cores[-1:]).facts
                runs[name].append(facts)
    os.sched_setaffinity(0, cores)
    return runs


def figures(lengths: np.ndarray, runs: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    """Each method's metrics, which are printed."""
    tokens = int(lengths.sum(dtype=np.int64))
    bound = max(fact["bound"] or 0 for facts in runs.values() for fact in facts)
    found: dict[str, Any] = {}
    for name, facts in runs.items():
        (rows,) = {fact["rows"] for fact in facts}
        found[name] = {figure: statistics.median(fact[figure] for fact in facts) for figure in MEDIANS}
        found[name] |= {"rows": rows, "rows_more": rows - bound, "efficiency": tokens / (rows * CAPACITY)}
        found[name] |= {"bound": bound, "cpu_by_round": [fact["cpu"] for fact in facts]}
        cpu, memory = found[name]["cpu"], found[name]["added_mb"]
        print(f"{name:24} {cpu:9.4f} CPU s, {memory:7.1f} MB, {rows:,} rows, {rows - bound:+,} too many")
    return found


def main() -> None:
    """Draw lengths, measure, print, and write the results to --out."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="sequences to draw")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path, help="write all results to this JSON file")
    options = parser.parse_args()
    counts = read_wikipedia()
    DATA.mkdir(parents=True, exist_ok=True)
    python = environment("packing-venv", REQUIREMENTS, WITHOUT_DEPENDENCIES, DATA)
    os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    facts: dict[str, Any] = {
        "versions": {name: version(name) for name in LIBRARIES},
        "peers": [*REQUIREMENTS, *WITHOUT_DEPENDENCIES],
        "rounds": options.rounds,
    }
    record = Record("packing", ("brimful/packing",), options.out, **facts)
    for size in options.sizes:
        lengths = draw(counts, size)
        tokens = int(lengths.sum(dtype=np.int64))
        print(f"\n{size:,} sequences, {tokens:,} tokens", flush=True)
        methods = figures(lengths, measure(lengths, python, options.rounds))
        record.add({"sequences": size, "tokens": tokens, "methods": methods})


if __name__ == "__main__":
    main()
