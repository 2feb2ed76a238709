"""The verb `brimful doctor`: what the machines of a training are, how fast, and what is wrong with them."""

import statistics
from dataclasses import dataclass
from typing import Any

from brimful.base.config import verb
from brimful.base.console import escape_controls

SLOW_SPEED = 0.85
"""A device is slow if its speed is below this fraction of the others'."""
TAKEN_PROPORTION = 0.2
"""The fraction of a host's cores and of a GPU's memory that others may take without a line."""
FEW_BYTES = 4 << 30
"""Of memory or disk, below which a line says so."""


@dataclass(frozen=True, kw_only=True)
class DoctorConfig:
    """Say what these machines are, how fast they are, and what is wrong with them."""


def show_report(report: dict[str, Any]) -> None:
    """Print the report."""
    for host in report["hosts"]:
        versions = ", ".join(f"{name} {version}" for name, version in host["versions"].items())
        print(escape_controls(f"{host['name']}: {host['processor']}; {versions}"))
        space = f"{giga(host['memory'])} GB of memory and {giga(host['disk'])} GB of disk are free"
        print(f"  {host['cores']:g} usable cores, load {host['load']:.1f}; {space}")
    for one in report["devices"]:
        speed = "no memory" if one["flops"] is None else f"{giga(one['flops'])} GFLOP/s in {one['precision']}"
        print(escape_controls(f"rank {one['rank']}: {one['name']}, {speed}"))
    print("what is wrong:" if report["findings"] else "nothing is wrong")
    for finding in report["findings"]:
        print(escape_controls(f"- {finding}"))


@verb(DoctorConfig, show=show_report)
def doctor(config: DoctorConfig) -> dict[str, Any]:
    """Say what these machines are, how fast they are, and what is wrong with them.

    Alone it measures this process and, of several GPUs, each in turn. Under torchrun each rank measures its
    own device, all at the same time, and a sum over all ranks is checked.

    Returns:
        `hosts`: the first rank, name, processor, usable cores, load average, cores that a virtual machine's
        host withholds, bytes of memory and disk that are free, versions, and what the host lacks to compile
        steps. `devices`: rank, host, name, precision, `flops` per second, and of a GPU its number, its memory
        and what others take of it. `wrong_sums`: ranks whose sum is not exact. `findings`: lines.
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
        for what in ("memory", "disk"):
            if host[what] < FEW_BYTES:
                found.append(f"{name}: {giga(host[what])} GB of {what} are free: free more")
        if host["lacks"]:
            found.append(f"{name}: steps are not compiled, which takes {host['lacks']}")
    for one in devices:
        where = f"{one['name']} of rank {one['rank']}"
        if one.get("taken", 0) > TAKEN_PROPORTION * one.get("memory", 0):
            found.append(f"{where}: others take {giga(one['taken'])} GB; nvidia-smi names them")
        alike = [each["flops"] or 0.0 for each in devices if each["name"] == one["name"]]
        speed, usual = one["flops"] or 0.0, statistics.median_high(alike)
        if speed < SLOW_SPEED * usual:
            slower = f"{speed / usual:.0%} of the others' speed, and all ranks wait for it"
            found.append(f"{where} computes at {slower}: look for heat and power limits")
    if report["wrong_sums"]:
        ranks = ", ".join(map(str, report["wrong_sums"]))
        found.append(f"sums over ranks are WRONG on rank {ranks}: do not train on them")
    return found


def giga(number: float) -> str:
    """A number in units of 10^9, to three digits."""
    return f"{number / 1e9:,.0f}" if number >= 1e11 else f"{number / 1e9:.3g}"
