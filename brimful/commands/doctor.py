"""The verb `brimful doctor`: how fast the machines of a training are, and which ranks to train on."""

import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table

from brimful.base.config import verb
from brimful.base.console import visible
from brimful.base.terminal import output_console

SLOW_SPEED = 0.85
"""A device is slow if its speed is below this fraction of the others'."""
TAKEN_PROPORTION = 0.2
"""The fraction of a host's cores and of a GPU's memory that others may take without a line."""


@dataclass(frozen=True, kw_only=True)
class DoctorConfig:
    """Say how fast these machines are, whether their sums are right, and which ranks to train on."""


def show_report(report: dict[str, Any]) -> None:
    """Print the report."""
    console, links = output_console(), report["links"]

    def line(text: str, style: str = "") -> None:
        console.print(visible(text), style=style, markup=False, highlight=False, soft_wrap=False)

    for host in report["hosts"]:
        line(f"{host['name']}: {host['processor']}, {host['cores']:g} usable cores, load {host['load']:.1f}")
    devices = Table("rank", "device", "precision", "GFLOP/s", "copies GB/s", box=SIMPLE_HEAD)
    for one in report["devices"]:
        flops, copies = ("-" if one[key] is None else giga(one[key]) for key in ("flops", "bytes"))
        devices.add_row(str(one["rank"]), visible(one["name"]), one["precision"], flops, copies)
    console.print(devices)
    if links:
        speeds = [pair["bytes_per_second"] for pair in links["pairs"]]
        right = "right" if links["right"] else "WRONG"
        line(
            f"pairs of ranks {giga(min(speeds))} to {giga(max(speeds))} GB/s, all together"
            f" {giga(links['all'])}; sums by {report['collectives']} are {right}"
        )
    line("what is wrong" if report["findings"] else "nothing is wrong", "bold")
    for finding in report["findings"]:
        line(f"- {finding}", "yellow")


@verb(DoctorConfig, show=show_report)
def doctor(config: DoctorConfig) -> dict[str, Any]:
    """Say how fast these machines are, whether their sums are right, and which ranks to train on.

    Alone it measures this process and, of several GPUs, each in turn. Under torchrun each rank measures its
    own device, all at the same time, and each pair of ranks its link.

    Returns:
        `hosts`: the first rank, name, processor, usable cores, load average, and cores that a virtual
        machine's host withholds. `collectives`: the library of sums. `devices`: rank, host, name, precision,
        `flops` and `bytes` per second, and of a GPU its number, memory, and what others take. `links`: None,
        or `pairs`, the bytes per second of `all`, whether all sums are `right`, and the ranks to `train_on`.
        `findings`: lines.

    Raises:
        BrimfulError: two ranks do not reach each other.
    """
    from brimful.commands.machine_check import check_machines  # loads torch

    report = check_machines()
    return report | {"findings": find_problems(report)}


def find_problems(report: dict[str, Any]) -> list[str]:
    """What is wrong, each in a line: what, where, and what to do about it."""
    found, devices = [], report["devices"]
    for host in report["hosts"]:
        name, cores, load = host["name"], host["cores"], host["load"]
        if load > (1 + TAKEN_PROPORTION) * cores:
            busy = f"the load average is {load:.1f} with {cores:g} usable cores"
            found.append(f"{name}: {busy}: wait until others end, or use another machine")
        if host["stolen_cores"] > TAKEN_PROPORTION * cores:
            stolen = f"{host['stolen_cores']:.1f} cores (steal)"
            found.append(f"{name}: the host of this virtual machine withholds {stolen}: use another one")
    for one in devices:
        if one.get("taken", 0) > TAKEN_PROPORTION * one.get("memory", 0):
            others = f"others take {giga(one['taken'])} GB"
            found.append(f"{one['name']} of rank {one['rank']}: {others}; nvidia-smi names them")
    for key, does in (("flops", "computes"), ("bytes", "copies memory")):
        for name in dict.fromkeys(one["name"] for one in devices):
            speeds = [(one[key] or 0.0, one["rank"]) for one in devices if one["name"] == name]
            usual = statistics.median_high(speed for speed, _ in speeds)
            for speed, rank in speeds:
                if speed < SLOW_SPEED * usual:
                    slower = f"{speed / usual:.0%} of the others' speed, and all ranks wait for it"
                    found.append(f"rank {rank} {does} at {slower}: look for heat and power limits")
    return found + (_find_bad_links(report["links"], devices) if report["links"] else [])


def _find_bad_links(links: dict[str, Any], devices: list[dict[str, Any]]) -> list[str]:
    found = []
    wrong = [pair["ranks"] for pair in links["pairs"] if not pair["right"]]
    slow = [pair for pair in links["pairs"] if pair["slow"]]
    if not links["right"]:
        found.append(f"sums are WRONG between ranks {_pairs(wrong) or 'all together'}: do not train on them")
    if slow:
        speeds = [pair["bytes_per_second"] for pair in slow]
        pairs = _pairs(pair["ranks"] for pair in slow)
        found.append(f"slow pairs of ranks, {giga(min(speeds))} to {giga(max(speeds))} GB/s: {pairs}")
    ranks = links["train_on"]
    if (wrong or slow) and len(ranks) < len(devices):
        numbers = ", ".join(map(str, ranks))
        found.append(f"take these {len(ranks)}, which fast pairs join: ranks {numbers}")
    return found


def giga(number: float) -> str:
    """A number in units of 10^9, to three digits."""
    return f"{number / 1e9:,.0f}" if number >= 1e11 else f"{number / 1e9:.3g}"


def _pairs(pairs: Iterable[Iterable[int]]) -> str:
    return ", ".join("-".join(map(str, pair)) for pair in pairs)
