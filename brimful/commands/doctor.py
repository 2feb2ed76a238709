"""The verb `brimful doctor`: the machines of a training, their speed, and their faults."""

import statistics
from dataclasses import dataclass

from brimful.base.config import verb
from brimful.base.console import escape_controls
from brimful.base.types import Values

SLOW_FRACTION = 0.85
"""A device is slow if its speed is below this fraction of the others'."""
SHARED_FRACTION = 0.2
"""Fraction of a host's cores, and of a GPU's memory, that others may take without a finding."""
MIN_FREE_BYTES = 4 << 30
"""Free bytes of memory or disk; less is a finding."""


@dataclass(frozen=True, kw_only=True)
class DoctorConfig:
    """Say what these machines are, how fast they are, and what is wrong with them."""


def show_report(report: Values) -> None:
    """Print the report."""
    for host in report["hosts"]:
        versions = ", ".join(f"{name} {version}" for name, version in host["versions"].items())
        print(escape_controls(f"{host['name']}: {host['processor']}; {versions}"))
        space = f"{giga(host['memory'])} GB of memory and {giga(host['disk'])} GB of disk are free"
        print(f"  {host['cores']:g} usable cores, load {host['load']:.1f}; {space}")
    for device in report["devices"]:
        speed = "no memory"
        if device["flops"] is not None:
            speed = f"{giga(device['flops'])} GFLOP/s in {device['precision']}"
        print(escape_controls(f"rank {device['rank']}: {device['name']}, {speed}"))
    print("what is wrong:" if report["findings"] else "nothing is wrong")
    for finding in report["findings"]:
        print(escape_controls(f"- {finding}"))


@verb(DoctorConfig, show=show_report)
def doctor(config: DoctorConfig) -> Values:
    """Say what these machines are, how fast they are, and what is wrong with them.

    A single process measures its machine, and its GPUs in turn. Under torchrun each rank measures its
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


def find_problems(report: Values) -> list[str]:
    """Return a line for each fault: what is wrong, where, and what to do about it."""
    problems, devices = [], report["devices"]
    for host in report["hosts"]:
        name, cores, load = host["name"], host["cores"], host["load"]
        if load > (1 + SHARED_FRACTION) * cores:
            busy = f"the load average is {load:.1f} with {cores:g} usable cores"
            problems.append(f"{name}: {busy}: wait until others end, or use another machine")
        if host["stolen_cores"] > SHARED_FRACTION * cores:
            stolen = f"{host['stolen_cores']:.1f} cores (steal)"
            problems.append(f"{name}: the host of this virtual machine withholds {stolen}: use another one")
        for resource in ("memory", "disk"):
            if host[resource] < MIN_FREE_BYTES:
                problems.append(f"{name}: {giga(host[resource])} GB of {resource} are free: free more")
        if host["lacks"]:
            problems.append(f"{name}: steps are not compiled, which takes {host['lacks']}")
    for device in devices:
        place = f"{device['name']} of rank {device['rank']}"
        if device.get("taken", 0) > SHARED_FRACTION * device.get("memory", 0):
            problems.append(f"{place}: others take {giga(device['taken'])} GB; nvidia-smi names them")
        # Devices of one name should be equally fast. If half are slow, the high median is still a fast one.
        speeds = [each["flops"] or 0.0 for each in devices if each["name"] == device["name"]]
        speed, median = device["flops"] or 0.0, statistics.median_high(speeds)
        if speed < SLOW_FRACTION * median:
            slower = f"{speed / median:.0%} of the others' speed, and all ranks wait for it"
            problems.append(f"{place} computes at {slower}: look for heat and power limits")
    if report["wrong_sums"]:
        ranks = ", ".join(map(str, report["wrong_sums"]))
        problems.append(f"sums over ranks are WRONG on rank {ranks}: do not train on them")
    return problems


def giga(number: float) -> str:
    """Return a number in units of 10^9, to three digits."""
    if number >= 1e11:  # where .3g would write 1e+02
        return f"{number / 1e9:,.0f}"
    return f"{number / 1e9:.3g}"
