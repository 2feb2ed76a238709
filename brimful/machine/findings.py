"""What is wrong with the machines that `brimful doctor` has measured, and what it prints for a person."""

from collections.abc import Iterable
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table

from brimful.base.console import visible
from brimful.base.terminal import output_console
from brimful.machine.bursts import slow_ones

MOST = 8
"""Ranks up to which a matrix of pairs is printed: it fits 80 columns."""
TAKEN = 0.2
"""The fraction of a host's cores, of a GPU's memory and of its time that others may take without a line."""
TO_SET = (
    "OMP_NUM_THREADS: on CPUs the usable cores divided by the ranks of a host; torchrun sets 1",
    "NCCL_SOCKET_IFNAME, GLOO_SOCKET_IFNAME: the fast interface; NCCL_DEBUG=INFO names the present one",
    "unset, if not needed: NCCL_P2P_DISABLE, NCCL_SHM_DISABLE, NCCL_IB_DISABLE, CUDA_LAUNCH_BLOCKING",
    "a container with several ranks on GPUs: --shm-size=8g or --ipc=host",
)

OF_CPUS = 2
"""How many of these concern ranks on CPUs too."""


def find_problems(report: dict[str, Any]) -> list[str]:
    """What is wrong, each in a line: what, where, and what to do about it."""
    found, devices, links = [], report["devices"], report["links"]
    for host in report["hosts"]:
        found += _busy(host)
        if host["gpus"] and not any("memory" in one for one in devices):
            found.append(f"{host['name']} has GPUs that torch does not see: install its build with CUDA")
    for one in devices:
        if one.get("taken", 0) > TAKEN * one.get("memory", 0) or one.get("busy", 0) > 100 * TAKEN:
            others = f"{giga(one['taken'])} GB and {one['busy']} % of the time"
            found.append(f"{one['name']} of rank {one['rank']}: others take {others}; nvidia-smi names them")
    for key, does in (("flops", "computes"), ("bytes", "copies memory")):
        for name in dict.fromkeys(one["name"] for one in devices):
            alike = [(one[key] or 0.0, one["rank"]) for one in devices if one["name"] == name]
            for speed, rank in (alike[i] for i in slow_ones([speed for speed, _ in alike])):
                slower = f"{speed / max(alike)[0]:.0%} of the fastest, and all ranks wait for it"
                found.append(f"rank {rank} {does} at {slower}: look for other processes, heat, power limits")
    if links is None:
        return found
    wrong = [pair["ranks"] for pair in links["pairs"] if not pair["right"]]
    slow = [pair["ranks"] for pair in links["pairs"] if pair["slow"]]
    if not links["right"]:
        found.append(f"sums are WRONG between ranks {_pairs(wrong) or 'all together'}: do not train on them")
    if slow:
        speeds = [pair["bytes_per_second"] for pair in links["pairs"] if pair["slow"]]
        found.append(f"slow pairs of ranks, {giga(min(speeds))} to {giga(max(speeds))} GB/s: {_pairs(slow)}")
    ranks = links["train_on"]
    if (wrong or slow) and len(ranks) < len(devices):
        numbers = [str(one["number"]) for one in devices if one["rank"] in ranks and "number" in one]
        where = f" (in nvidia-smi GPUs {', '.join(numbers)})" if numbers else ""
        found.append(f"take these {len(ranks)}, which fast pairs join: ranks {_numbers(ranks)}{where}")
    return found


def _busy(host: dict[str, Any]) -> list[str]:
    """What others take of a host's cores: now, or in the last minute."""
    cores, load, found = host["cores"], host["load"] or 0.0, []
    if (host["busy_cores"] or 0.0) > TAKEN * cores:
        busy = f"{host['name']}: other processes keep {host['busy_cores']:.1f} of {cores:g} cores busy"
        found.append(f"{busy} (load average {load:.1f}): wait until they end, or use another machine")
    if (host["stolen_cores"] or 0.0) > TAKEN * cores:
        stolen = f"{host['stolen_cores']:.1f} of {cores:g} cores (steal)"
        found.append(f"{host['name']}: the host of this virtual machine withholds {stolen}: use another one")
    if not found and load > (1 + TAKEN) * cores:
        found.append(
            f"{host['name']}: the load average of the last minute is {load:.1f} with {cores:g} cores, though"
            " they are free now: others come and go"
        )
    return found


def show_report(report: dict[str, Any]) -> None:
    """Print the report."""
    console, links, data = output_console(), report["links"], report["data"]

    def line(text: str, style: str = "") -> None:
        console.print(visible(text), style=style, markup=False, highlight=False, soft_wrap=False)

    for host in report["hosts"]:
        busy = "" if host["busy_cores"] is None else f", {host['busy_cores']:.1f} busy"
        ranks_here = f": ranks {_numbers(host['ranks'])}" if len(report["devices"]) > 1 else ""
        line(f"{host['name']}{ranks_here}", "bold")
        line(f"{host['processor']}, {host['cores']:g} usable cores{busy}; sums by {host['collectives']}")
        for kind in dict.fromkeys(each["kind"] for each in host["kinds"]):
            line(f"{kind}: GPUs {_pairs(each['gpus'] for each in host['kinds'] if each['kind'] == kind)}")
        if host["missing"]:
            line(f"links of GPUs unknown: {host['missing']}")
    devices = Table("rank", "device", "precision", "GFLOP/s", "copies GB/s", box=SIMPLE_HEAD)
    for one in report["devices"]:
        speeds = ("-" if one[key] is None else giga(one[key]) for key in ("flops", "bytes"))
        devices.add_row(str(one["rank"]), visible(one["name"]), one["precision"], *speeds)
    console.print(devices)
    if links:
        speed = {tuple(pair["ranks"]): giga(pair["bytes_per_second"]) for pair in links["pairs"]}
        ranks = range(len(report["devices"]))
        if len(ranks) <= MOST:
            matrix = Table("GB/s", *map(str, ranks), box=SIMPLE_HEAD)
            for a in ranks:
                matrix.add_row(str(a), *("-" if a == b else speed[min(a, b), max(a, b)] for b in ranks))
            console.print(matrix)
        right = "right" if links["right"] else "WRONG"
        line(f"all ranks together {giga(links['all'])} GB/s; sums are {right}")
    if data:
        disk, slowest = ", ".join(map(giga, data["disk"])), min(data["loader"])
        line(f"disk {disk} GB/s; the slowest loader {slowest:,.0f} tokens/s for its rank")
    line("what is wrong" if report["findings"] else "nothing is wrong", "bold")
    for finding in report["findings"]:
        line(f"- {finding}", "yellow")
    gpus = any("memory" in one for one in report["devices"]) or any(h["gpus"] for h in report["hosts"])
    if gpus or len(report["devices"]) > 1:  # one process on CPUs has nothing to set
        for each in ("what to set", *(f"- {setting}" for setting in (TO_SET if gpus else TO_SET[:OF_CPUS]))):
            line(each)


def giga(number: float) -> str:
    """A number in units of 10^9, to three digits."""
    return f"{number / 1e9:,.0f}" if number >= 1e11 else f"{number / 1e9:.3g}"


def _numbers(numbers: Iterable[int]) -> str:
    return ", ".join(map(str, numbers))


def _pairs(pairs: Iterable[Iterable[int]]) -> str:
    return ", ".join("-".join(map(str, pair)) for pair in pairs)
