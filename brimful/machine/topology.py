"""Which way GPUs of a host reach each other: the matrix of `nvidia-smi topo -m`."""

import re
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass

from brimful.errors import BrimfulError

MEANINGS = {
    "NV": "NVLink, and how many",
    "PIX": "at most one PCIe bridge",
    "PXB": "several PCIe bridges",
    "PHB": "the processor's PCIe host bridge",
    "NODE": "several PCIe host bridges of one NUMA node",
    "SYS": "the interconnect between processors",
}
"""Kinds of links, the fastest first, and what lies between the two GPUs."""

_ESCAPE = re.compile(r"\x1b\[[0-9;]*m")  # the driver underlines the header, even in a file
_GPU = re.compile(r"GPU\d+")
_AFFINITIES = ("CPU Affinity", "NUMA Affinity", "GPU NUMA ID")
_NIC = re.compile(r"(NIC\d+): (\S+)")
SECONDS = 30
"""How long nvidia-smi may take: on a host with a broken GPU it may never end."""


@dataclass(frozen=True)
class Topology:
    """The links of a host's GPUs and network cards.

    Attributes:
        links: the kind of link by two names, in both orders: NV18, PIX, PXB, PHB, NODE, SYS, or what the
            driver says.
        gpus: names of the GPUs, GPU0 and so on: by PCI bus, so CUDA may number them otherwise.
        cpus, numa: for each GPU the processors and the NUMA node next to it, where the driver says so.
        nics: the device of each network card, by its name in `links`.
    """

    links: dict[tuple[str, str], str]
    gpus: tuple[str, ...]
    cpus: dict[str, str]
    numa: dict[str, str]
    nics: dict[str, str]

    def groups(self, without: Iterable[str]) -> list[tuple[str, ...]]:
        """The GPUs in groups whose members reach each other, through each other if need be, over other kinds
        of links than these."""
        without, left, found = set(without), list(self.gpus), []
        while left:
            group, waiting = [], [left.pop(0)]
            while waiting:
                one = waiting.pop()
                group.append(one)
                near = [other for other in left if self.links[one, other] not in without]
                left = [other for other in left if other not in near]
                waiting += near
            found.append(tuple(sorted(group, key=self.gpus.index)))
        return found


def parse_topology(text: str) -> Topology:
    """The matrix that `nvidia-smi topo -m` prints, with tabs or as it was copied from a terminal.

    Raises:
        BrimfulError: it is no such matrix, or a row of it is missing or cut short.
    """
    lines = [_ESCAPE.sub("", line) for line in text.splitlines()]
    at = next((i for i, line in enumerate(lines) if _GPU.search(line)), None)
    if at is None:
        raise BrimfulError("nvidia-smi topo -m names no GPU")
    header = lines[at]
    names = header.partition(_AFFINITIES[0])[0].split()
    affinities = [name for name in _AFFINITIES if name in header]
    rows: dict[str, list[str]] = {}
    for line in lines[at + 1 :]:
        first, *cells = line.split() or [""]
        if first in names:
            rows[first] = cells
    links: dict[tuple[str, str], str] = {}
    found: dict[str, dict[str, str]] = {}
    for name in names:
        cells = rows.get(name, [])
        if len(cells) < len(names):
            raise BrimfulError(f"nvidia-smi topo -m: the row of {name} is missing or cut short")
        links |= {(name, other): cell for other, cell in zip(names, cells, strict=False) if name != other}
        rest = cells[len(names) :]
        # An empty cell leaves no trace between spaces: then the columns of the others are not known.
        if len(rest) == len(affinities):
            found[name] = dict(zip(affinities, rest, strict=True))
    return Topology(
        links,
        tuple(name for name in names if _GPU.fullmatch(name)),
        {name: values[_AFFINITIES[0]] for name, values in found.items() if _AFFINITIES[0] in values},
        {name: values[_AFFINITIES[1]] for name, values in found.items() if _AFFINITIES[1] in values},
        dict(_NIC.findall(text)),
    )


def explain(topology: Topology) -> list[str]:
    """What the matrix means, in a few lines: which GPUs reach each other only in the slowest ways."""
    kinds = {kind for (a, b), kind in topology.links.items() if {a, b} <= set(topology.gpus)}
    lines = []
    for kind, between in (("SYS", "through both processors"), ("NODE", "through the processor")):
        if kind not in kinds:
            continue
        groups = topology.groups({"SYS", "NODE"} if kind == "NODE" else {"SYS"})
        if len(groups) > 1:
            parts = " | ".join(ranges(int(name.removeprefix("GPU")) for name in group) for group in groups)
            lines.append(f"{kind}: {between} between GPUs {parts}")
    if not any(kind.startswith("NV") for kind in kinds) and kinds:
        lines.append("no NVLink: all traffic between GPUs takes PCIe")
    return lines


def ranges(numbers: Iterable[int]) -> str:
    """0-3, 5: ascending numbers, with runs of three or more as ranges."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(f"{run[0]}-{run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in runs)


def nvidia_smi(*arguments: str) -> str:
    """What nvidia-smi prints.

    Raises:
        BrimfulError: it is not installed, fails, or does not end.
    """
    line = " ".join(["nvidia-smi", *arguments])
    try:
        done = subprocess.run(
            ["nvidia-smi", *arguments], capture_output=True, text=True, timeout=SECONDS, check=False
        )
    except FileNotFoundError:
        raise BrimfulError("nvidia-smi was not found") from None
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BrimfulError(f"{line}: {error}") from error
    if done.returncode:
        said = " ".join((done.stderr or done.stdout).split())
        raise BrimfulError(f"{line} failed: {said[:200]}")
    return done.stdout
