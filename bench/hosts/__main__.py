"""What do compressed gradients and the size of buckets save when the link between two hosts is slow?

Two hosts on one machine (bench/common/hosts.py), with a rank each (gloo, one thread), train together with the
real Trainer: a row of 512 tokens a rank and update, AdamW, fp32. The variants of `VARIANTS` take turns, at
each bandwidth of the link. For each variant, medians over all updates but the first of each turn:

    update      milliseconds of an update, of the slower rank
    waited      milliseconds after backward in which a rank only waited for communication (and, with
                compression, converted); of the rank that waited less, so that waiting for a slower rank does
                not count
    sent        bytes that left a host's device, of the host that sent more; headers are counted once for a
                batch of packets
    floor       the milliseconds in which the link carries these bytes, with headers for each packet
    hidden      the proportion of the floor that went on during backward, at least: 1 - waited / floor

Only bandwidth is slow here. Latency, other hosts, and what a real network card does are left out. Both ranks
and the link's own work share this machine's cores. Needs root, and the tools ip and tc.

    python -m bench.hosts [--mbit 100 1000 none] [--model mini] [--rounds 2] [--updates 3] [--quick]
                          [--out FILE.json]
"""

import argparse
import os
import signal
import statistics
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from bench.common.hosts import Host, limit, missing, two_hosts
from bench.common.processes import machine_facts
from bench.common.record import Record, Row
from bench.common.study import table
from bench.common.turns import Answer, Worker
from bench.train.sides import Job, write_corpus

WHOLE = 4096
"""A bucket that holds all gradients: it is sent after backward, and nothing is hidden."""
VARIANTS: tuple[dict[str, Any], ...] = (
    {"bucket_mb": WHOLE},
    {"bucket_mb": 32},
    {"bucket_mb": 4},
    {"bucket_mb": 1},
    {"bucket_mb": 4, "compression": "fp16"},
    {"bucket_mb": 4, "compression": "bf16"},
)
QUICK: tuple[dict[str, Any], ...] = ({"bucket_mb": 4}, {"bucket_mb": 4, "compression": "fp16"})
PACKET, HEADERS = 1514, 66
"""Bytes of a full packet, and how many of them are headers: Ethernet, IP, and TCP with time stamps."""
MASTER_PORT = "29555"  # in a network of its own, every port is free
PATIENCE = 300.0
"""Seconds that a turn may take."""


class Ranks:
    """A rank on each host."""

    def __init__(self, hosts: Sequence[Host], workers: Sequence[Worker], asking: ThreadPoolExecutor) -> None:
        self.hosts = hosts
        self.workers = workers
        self._asking = asking

    def ask(self, command: str, **values: Any) -> list[Answer]:
        """The answer of each rank; all are asked at the same time, and the first that fails ends it."""
        asked = [self._asking.submit(w.ask, command, seconds=PATIENCE, **values) for w in self.workers]
        for each in wait(asked, return_when=FIRST_EXCEPTION).done:
            each.result()
        return [each.result() for each in asked]


@contextmanager
def started(hosts: Sequence[Host]) -> Iterator[Ranks]:
    """A rank on each host; afterwards it is killed."""
    with ThreadPoolExecutor(len(hosts)) as asking, ExitStack() as stack:
        workers = []
        for rank, host in enumerate(hosts):
            environment = {
                "RANK": str(rank),
                "LOCAL_RANK": "0",
                "GROUP_RANK": str(rank),
                "WORLD_SIZE": str(len(hosts)),
                "MASTER_ADDR": hosts[0].address,
                "MASTER_PORT": MASTER_PORT,
                "GLOO_SOCKET_IFNAME": host.name,
                "OMP_NUM_THREADS": "1",
            }
            worker = Worker("bench.hosts.worker", environment, prefix=host.prefix)
            workers.append(stack.enter_context(worker))
        yield Ranks(hosts, workers, asking)


def measure(
    ranks: Ranks, mbit: float | None, variants: Sequence[dict[str, Any]], rounds: int
) -> Iterator[Row]:
    """A row for each variant at one bandwidth."""
    limit(ranks.hosts, mbit)
    load = os.getloadavg()[0]
    updates: list[list[Answer]] = [[] for _ in variants]
    buckets: list[list[int]] = [[] for _ in variants]
    for _ in range(rounds):
        for index, variant in enumerate(variants):
            answers = ranks.ask("turn", config=variant)
            buckets[index] = answers[0]["buckets"]
            for each in list(zip(*(answer["updates"] for answer in answers), strict=True))[1:]:
                joined = {name: max(rank[name] for rank in each) for name in ("update", "sent")}
                updates[index].append(joined | {"waited": min(rank["waited"] for rank in each)})
    for variant, found, sizes in zip(variants, updates, buckets, strict=True):
        medians = {name: statistics.median(each[name] for each in found) for name in found[0]}
        bits = medians["sent"] * PACKET / (PACKET - HEADERS) * 8
        floor = bits / (mbit * 1e6) if mbit else None
        yield {
            "mbit": mbit,
            "compression": "none",
            **variant,
            **medians,
            "floor": floor,
            "hidden": max(0.0, 1 - medians["waited"] / floor) if floor else None,
            "bucket_bytes": sizes,
            "load": load,
            "updates": found,
        }


def show(rows: Sequence[Row]) -> None:
    """Print the table of a bandwidth."""
    lines = []
    for row in rows:
        size = "all" if row["bucket_mb"] == WHOLE else str(row["bucket_mb"])
        milliseconds = [f"{1e3 * row[name]:,.0f}" for name in ("update", "waited")]
        floor = [f"{1e3 * row['floor']:,.0f}", f"{row['hidden']:.0%}"] if row["floor"] else ["-", "-"]
        sent = f"{row['sent'] / 1e6:.1f}"
        lines.append([row["compression"], size, *milliseconds, sent, *floor])
    heads = ["compression", "bucket_mb", "update, ms", "waited, ms", "MB sent", "floor, ms", "hidden"]
    rate = f"{rows[0]['mbit']:g} Mbit/s" if rows[0]["mbit"] else "no limit"
    print(f"\n{rate} (load {rows[0]['load']:.1f})\n\n{table(heads, lines)}", flush=True)


def bandwidth(text: str) -> float | None:
    """10^6 bits a second, or None for "none"."""
    if text == "none":
        return None
    mbit = float(text)
    if not mbit > 0:
        raise ValueError
    return mbit


def options_of(arguments: list[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    rates = [100.0, 1000.0, None]
    parser.add_argument(
        "--mbit", nargs="+", type=bandwidth, default=rates, help="of the link, 10^6 bits a second; or none"
    )
    parser.add_argument("--model", default="mini", help='a preset, or "bare"')
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--updates", type=int, default=3, help="of a turn; the first is not measured")
    parser.add_argument("--quick", action="store_true", help="toy sizes: does it run?")
    parser.add_argument("--out", type=Path, help="write all results to this JSON file")
    parser.set_defaults(variants=VARIANTS)
    if parser.parse_args(arguments).quick:
        parser.set_defaults(mbit=[100.0, None], model="bare", rounds=1, updates=2, variants=QUICK)
    options = parser.parse_args(arguments)
    if options.updates < 2 or options.rounds < 1:
        parser.error("--updates must be 2 at least, and --rounds 1")
    return options


def main(arguments: list[str] | None = None) -> None:
    """Measure at each bandwidth, print the tables, keep the record."""
    options = options_of(arguments)
    if reason := missing():
        sys.exit(f"bench.hosts: skipped: {reason}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # so that the hosts go, too
    job = Job(options.model, rows=1, updates=options.updates, tokens=200_000)
    with tempfile.TemporaryDirectory() as folder, two_hosts() as hosts, started(hosts) as ranks:
        write_corpus(job, Path(folder))
        facts = ranks.ask("setup", job=asdict(job), folder=folder)[0]
        facts |= {
            "bench": "hosts",
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            **machine_facts(),
            "torch": torch.__version__,
            "model": options.model,
            "rounds": options.rounds,
            "updates_of_a_turn": options.updates,
        }
        record = Record(facts, options.out)
        print(f"{facts['cpu']}, {facts['cores']} cores, torch {torch.__version__}, {options.model}:")
        print(f"{facts['parameters'] / 1e6:.1f} M parameters, {len(hosts)} ranks of 1 thread", flush=True)
        ranks.ask("turn", config=options.variants[0])  # brings in memory
        for mbit in options.mbit:
            rows = list(measure(ranks, mbit, options.variants, options.rounds))
            for row in rows:
                record.add(row)
            show(rows)


if __name__ == "__main__":
    main()
