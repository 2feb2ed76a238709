"""The Trainer's own cost: its updates on the CPU against a plain loop's, and where their time goes.

The plain loop (`plain_loop` in bench/train/sides.py) has the same model and ready-made batches: forward,
backward, clipping, fused AdamW, nothing else. A turn of either side is a run of updates from the same
weights, in one process; both must end with the same bits, or nothing is timed. Rows of the first table:

    loop            the Trainer as it is, with the same batches: what its own overhead is. Goal: at most 2 %
    corpus          batches come from a corpus, made ahead in a thread: the default
    not ahead       the same, made when they are asked for (prefetch 0)
    bar             progress drawn as on a terminal
    deterministic   torch's deterministic algorithms
    skip            on_spike=skip, which reads each loss before its step
    checkpoints     a checkpoint every half of a turn; written in a thread, whose CPU time counts

The second table is the split of an update by the ranges that a profile of the Trainer shows, alone and as one
of two ranks; the rest is clipping, bookkeeping and what torch's profiler itself takes.

    python -m bench.train [--models bare tiny mini small] [--rounds 11] [--threads 1] [--out FILE.json]
"""

import argparse
import os
import socket
import statistics
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

import torch

from bench.common.processes import machine_facts
from bench.common.record import Record, Row
from bench.common.turns import Answer, Worker
from bench.train.sides import Job, Variant, write_corpus

JOBS = {
    "bare": Job("bare", rows=1, updates=40, tokens=1_000_000),
    "tiny": Job("tiny", rows=1, updates=24, tokens=1_000_000),
    "mini": Job("mini", rows=4, updates=4, tokens=1_000_000),
    "small": Job("small", rows=4, updates=2, tokens=1_000_000),
}
QUICK = {"tiny": Job("tiny", rows=1, updates=2, tokens=30_000)}
VARIANTS = {
    "loop": Variant(),
    "corpus": Variant(stream=True, config={"prefetch": 2}),
    "not ahead": Variant(stream=True),
    "bar": Variant(bar=True),
    "deterministic": Variant(config={"prefetch": 0, "deterministic": True}),
    "skip": Variant(config={"prefetch": 0, "on_spike": "skip"}),
    "checkpoints": Variant(),
}
PLAIN = "plain"
CHECKPOINTS = 2
"""In a turn, and in a split: one in the middle and one at the end."""


def cost_table(name: str, job: Job, options: argparse.Namespace, folder: Path, record: Record) -> None:
    """Print and keep a row for each variant: what an update takes, and its ratio to the plain loop's."""
    variants = {each: asdict(VARIANTS[each]) for each in options.variants}
    if "checkpoints" in variants:
        variants["checkpoints"]["config"]["checkpoint_every"] = job.updates // CHECKPOINTS
    turns: dict[str, list[Answer]] = {each: [] for each in (PLAIN, *variants)}
    with Worker("bench.train.worker") as worker:
        facts = worker.ask("setup", job=asdict(job), folder=str(folder), threads=options.threads)
        for turn in range(options.rounds + 1):
            order = list(turns)
            start = turn % len(order)  # everyone has another one before it in every round
            for side in order[start:] + order[:start]:
                if side == PLAIN:
                    answer = worker.ask("plain")
                else:
                    answer = worker.ask("trainer", variant=variants[side])
                if turn:  # the first ones bring in memory
                    turns[side].append(answer)
    print(
        f"\n{name}: {facts['parameters'] / 1e6:.1f} M parameters, {job.rows} x 512 slots in an update\n"
        f"{'':14}  CPU ms  / plain   + ms   wall ms  / plain   + ms  waited ms",
        flush=True,
    )
    plain = {clock: _milliseconds(turns[PLAIN], clock, job.updates) for clock in ("cpu", "wall")}
    for side, answers in turns.items():
        row: Row = {"table": "cost", "model": name, "variant": side, **facts, "turns": answers}
        text = f"{side:14}"
        for clock, without in plain.items():
            milliseconds = _milliseconds(answers, clock, job.updates)
            ratio, more = milliseconds / without, milliseconds - without
            row |= {f"{clock}_ms": milliseconds, f"{clock}_over_plain": ratio, f"{clock}_more_ms": more}
            text += f" {milliseconds:8.2f} {ratio:7.3f} {more:+7.2f} "
        row["waited_ms"] = _milliseconds(answers, "waited", job.updates)
        record.add(row)
        print(f"{text} {row['waited_ms']:8.2f}", flush=True)


def _milliseconds(turns: list[Answer], clock: str, updates: int) -> float:
    """Median over turns, for each update."""
    return statistics.median(1e3 * turn.get(clock, 0.0) / updates for turn in turns)


def split_table(
    name: str, job: Job, ranks: int, options: argparse.Namespace, folder: Path, record: Record
) -> None:
    """Print and keep what each part of an update takes on the main rank; medians of rounds."""
    environment = {"WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(_free_port())}
    rounds: list[Row] = []
    with ExitStack() as stack, ThreadPoolExecutor(ranks) as asking:
        workers = [
            stack.enter_context(Worker("bench.train.worker", environment | {"RANK": str(rank)}))
            for rank in range(ranks)
        ]
        own = {"job": asdict(job), "folder": str(folder), "threads": options.threads}
        asked = {"updates": job.updates, "checkpoints": CHECKPOINTS}
        list(asking.map(lambda worker: worker.ask("setup", **own), workers))
        for _ in range(options.split_rounds):
            answers = list(asking.map(lambda worker: worker.ask("split", **asked), workers))
            found = answers[0]["parts"] | {"data wait": answers[0]["waited"]}
            found["rest"] = answers[0]["wall"] - sum(found.values())
            whole = {"all": answers[0]["wall"], "all, without a profiler": answers[0]["whole"]}
            rounds.append({part: 1e3 * seconds / job.updates for part, seconds in (found | whole).items()})
    medians = {part: statistics.median(each[part] for each in rounds) for part in rounds[0]}
    record.add({"table": "split", "model": name, "ranks": ranks, "ms": medians, "rounds": rounds})
    print(f"\n{name}, {ranks} ranks: ms of an update", flush=True)
    for part, milliseconds in medians.items():
        print(f"{part:24} {milliseconds:8.2f}  {milliseconds / medians['all']:6.1%}", flush=True)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def options_of(arguments: list[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--models", nargs="+", default=list(JOBS), choices=JOBS, metavar="NAME")
    parser.add_argument("--variants", nargs="+", default=list(VARIANTS), choices=VARIANTS, metavar="NAME")
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--split-rounds", type=int, default=3)
    parser.add_argument("--ranks", nargs="*", type=int, default=[1, 2], help="of the split")
    parser.add_argument("--threads", type=int, default=1, help="of each rank")
    parser.add_argument("--quick", action="store_true", help="toy sizes: does it run?")
    parser.add_argument("--out", type=Path, help="write all results to this JSON file")
    parser.set_defaults(jobs=JOBS)
    options = parser.parse_args(arguments)
    if options.quick:
        parser.set_defaults(models=list(QUICK), rounds=1, split_rounds=1, ranks=[1], jobs=QUICK)
        parser.set_defaults(variants=["loop", "corpus"])
        options = parser.parse_args(arguments)
    return options


def main(arguments: list[str] | None = None) -> None:
    """Print both tables of each model."""
    options = options_of(arguments)
    facts = {
        "bench": "train",
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        **machine_facts(),
        "torch": torch.__version__,
        "threads": options.threads,
        "rounds": options.rounds,
    }
    record = Record(facts, options.out)
    print(
        f"{facts['cpu']}, {options.threads} threads, torch {torch.__version__}, load {os.getloadavg()[0]:.1f}"
    )
    for name in options.models:
        job = options.jobs[name]
        with tempfile.TemporaryDirectory() as folder:
            print(f"  {name} ...", file=sys.stderr, flush=True)
            write_corpus(job, Path(folder))
            cost_table(name, job, options, Path(folder), record)
            for ranks in options.ranks:
                split_table(name, job, ranks, options, Path(folder), record)


if __name__ == "__main__":
    main()
