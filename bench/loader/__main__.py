"""Pretraining's data path on the CPU: how fast it is, whether a step of 30 ms waits for it, what it holds.

Corpora of random tokens (bench/common/random_corpus.py) are written to a scratch folder and deleted at the
end. What reads them is what `brimful pretrain` has, in processes of its own with one thread for torch:

    alone      updates without any step, masks and the planning of blocks included, on one core; also as the
               first of 64 ranks, which plans for all and chooses the rows of all
    waiting    the share of the time that steps of 30 ms wait, made ahead and not: a step that sleeps, as a
               host whose GPU computes; one in Python, which never gives the interpreter's lock away; one of
               many operations on tiny tensors, as a host that launches kernels. Also by how much the step
               itself is slower while the loader's thread works

Alternatives take turns, round by round, and medians count.

    python -m bench.loader [--tables alone waiting ...] [--rounds 5] [--out FILE.json]
"""

import argparse
import os
import statistics
import sys
import tempfile
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from bench.common.processes import machine_facts
from bench.common.random_corpus import make_corpus
from bench.common.record import Record
from bench.common.turns import Worker

KINDS = {"40": (38, 128), "250": (340, 512)}
"""By the mean length of a sequence, about: that of the documents, and the most of a sequence."""
STEPS = ("sleeping", "python", "launching")
SLOTS_PER_UPDATE = 16_384  # half a million tokens a second at 30 ms


class Corpora:
    """Makes each corpus when it is first needed."""

    def __init__(self, scratch: Path) -> None:
        self.scratch = scratch

    def __call__(self, tokens: int, mean_length: int) -> Path:
        path = self.scratch / f"corpus-{tokens}-{mean_length}"
        if not path.exists():
            print(f"  writing {tokens / 1e6:,.0f} M tokens ...", file=sys.stderr, flush=True)
            make_corpus(path, tokens, mean_length)
        return path

    def fresh(self) -> str:
        """A folder for plans."""
        return tempfile.mkdtemp(dir=self.scratch)

    def reading(
        self,
        corpus: Path,
        capacity: int,
        max_length: int,
        slots: int = SLOTS_PER_UPDATE,
        world: int = 1,
    ) -> dict[str, Any]:
        """What a worker needs to read a corpus as the first of `world` ranks."""
        packing = {"capacity": capacity, "max_length": max_length}
        config = {"packing": packing, "rows_per_update": slots * world // capacity}
        return {"corpus": str(corpus), "directory": self.fresh(), "config": config, "rank": 0, "world": world}


def worker() -> Worker:
    """A process with one thread for each thing that has threads."""
    return Worker("bench.loader.worker", {"OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"})


def spread(values: list[float]) -> dict[str, float]:
    """What the rounds gave."""
    return {"median": statistics.median(values), "least": min(values), "most": max(values)}


def alone_table(options: argparse.Namespace, corpora: Corpora, record: Record) -> None:
    """Tokens a second of the loader without a step."""
    cases = [(kind, capacity, world) for kind in KINDS for capacity in (1024, 8192) for world in (1, 64)]
    found: dict[tuple[str, int, int], list[float]] = {case: [] for case in cases}
    with ExitStack() as stack:
        processes = {}
        for kind, capacity, world in cases:
            mean, longest = KINDS[kind]
            process = processes[kind, capacity, world] = stack.enter_context(worker())
            process.ask("pin", core=max(os.sched_getaffinity(0)))
            corpus = corpora(options.tokens, mean)
            process.ask("setup", **corpora.reading(corpus, capacity, longest, world=world))
        for _ in range(options.rounds):
            for case in cases:
                found[case].append(processes[case].ask("alone")["tokens_per_second"])
    print("\nthe loader alone, M real tokens/s of its own on one core")
    for (kind, capacity, world), rates in found.items():
        row = spread(rates)
        case = {"length": kind, "capacity": capacity, "world": world}
        record.add({"table": "alone", **case, "tokens_per_second": row})
        print(
            f"  sequences of {kind:3} in rows of {capacity:4}, {world:2} ranks: {row['median'] / 1e6:6.2f}",
            flush=True,
        )


def waiting_table(options: argparse.Namespace, corpora: Corpora, record: Record) -> None:
    """How long steps wait, and how much slower they are, with 0 and 2 updates made ahead."""
    depths = (None, 0, 2)  # None: no loader
    print("\nsteps of 30 ms      depth  waiting %   a step, ms   slower %")
    for kind, (mean, longest) in KINDS.items():
        with worker() as process:
            process.ask("setup", **corpora.reading(corpora(options.tokens, mean), 8192, longest))
            for step in STEPS:
                rounds: dict[int | None, list[dict[str, Any]]] = {depth: [] for depth in depths}
                for turn in range(options.rounds):
                    for depth in depths[turn % 3 :] + depths[: turn % 3]:
                        values = {"step": step, "updates": options.updates, "depth": depth}
                        rounds[depth].append(process.ask("train", **values))
                mean_step = {
                    d: statistics.median(statistics.fmean(r["seconds"]) for r in of)
                    for d, of in rounds.items()
                }
                for depth in (0, 2):
                    waited = spread([answer["waited"] for answer in rounds[depth]])
                    row = {"waited": waited, "step": mean_step[depth], "step_without": mean_step[None]}
                    row["slower"] = mean_step[depth] / mean_step[None] - 1
                    record.add({"table": "waiting", "length": kind, "kind": step, "depth": depth, **row})
                    print(
                        f"  {step:9} {kind:>6} {depth:6} {100 * waited['median']:10.2f}"
                        f" {1000 * row['step']:12.2f} {100 * row['slower']:10.2f}",
                        flush=True,
                    )


TABLES = {
    "alone": alone_table,
    "waiting": waiting_table,
}


def options_of(arguments: list[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--tables", nargs="+", default=list(TABLES), choices=TABLES, metavar="TABLE")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--updates", type=int, default=60, help="steps of a turn of `waiting`")
    parser.add_argument(
        "--tokens", type=int, default=160_000_000, help="of the corpora of `alone`, `waiting`"
    )
    parser.add_argument("--scratch", type=Path, help="folder for corpora: 1 GB; a temporary one without it")
    parser.add_argument("--quick", action="store_true", help="toy sizes: does it run?")
    parser.add_argument("--out", type=Path, help="write all figures to this JSON file")
    options = parser.parse_args(arguments)
    if options.quick:
        parser.set_defaults(rounds=1, updates=3, tokens=300_000)
        options = parser.parse_args(arguments)
    return options


def main(arguments: list[str] | None = None) -> None:
    """Print the tables that were asked for, row by row."""
    options = options_of(arguments)
    facts = {
        "bench": "loader",
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        **machine_facts(),
        "numpy": np.__version__,
        "rounds": options.rounds,
    }
    record = Record(facts, options.out)
    print(f"{facts['cpu']}, {facts['cores']} cores, load {os.getloadavg()[0]:.1f}", flush=True)
    with tempfile.TemporaryDirectory(dir=options.scratch) as scratch:
        corpora = Corpora(Path(scratch))
        for name in options.tables:
            TABLES[name](options, corpora, record)


if __name__ == "__main__":
    main()
