"""The matrix of nvidia-smi, from hosts of many kinds, as tabs and as people copy it from a terminal."""

from itertools import combinations

import pytest

from brimful.base.errors import BrimfulError
from brimful.machine.topology import parse_topology

LEGEND = """
Legend:

  X    = Self
  SYS  = Connection traversing PCIe as well as the SMP interconnect between NUMA nodes (e.g., QPI/UPI)
  NODE = Connection traversing PCIe as well as the interconnect between PCIe Host Bridges within a NUMA node
  PHB  = Connection traversing PCIe as well as a PCIe Host Bridge (typically the CPU)
  PXB  = Connection traversing multiple PCIe bridges (without traversing the PCIe Host Bridge)
  PIX  = Connection traversing at most a single PCIe bridge
  NV#  = Connection traversing a bonded set of # NVLinks
"""

# Recorded: six PCIe cards on two processors. Even into a pipe, the header is underlined and a tab doubled.
SIX_CARDS = (
    "\x1b[4m\tGPU0\tGPU1\tGPU2\tGPU3\tGPU4\tGPU5\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m\n"
    "GPU0\t X \tPIX\tNODE\tNODE\tSYS\tSYS\t0-23,48-71\t0\t\tN/A\n"
    "GPU1\tPIX\t X \tNODE\tNODE\tSYS\tSYS\t0-23,48-71\t0\t\tN/A\n"
    "GPU2\tNODE\tNODE\t X \tPIX\tSYS\tSYS\t0-23,48-71\t0\t\tN/A\n"
    "GPU3\tNODE\tNODE\tPIX\t X \tSYS\tSYS\t0-23,48-71\t0\t\tN/A\n"
    "GPU4\tSYS\tSYS\tSYS\tSYS\t X \tPIX\t24-47,72-95\t1\t\tN/A\n"
    "GPU5\tSYS\tSYS\tSYS\tSYS\tPIX\t X \t24-47,72-95\t1\t\tN/A\n"
) + LEGEND

# Recorded: eight A100 that reach each other through NVSwitch, and four network cards on one processor.
A100 = (
    "\tGPU0\tGPU1\tGPU2\tGPU3\tGPU4\tGPU5\tGPU6\tGPU7\tNIC0\tNIC1\tNIC2\tNIC3\tCPU Affinity\tNUMA Affinity"
    "\tGPU NUMA ID\n"
    "GPU0\t X \tNV12\tNV12\tNV12\tNV12\tNV12\tNV12\tNV12\tPXB\tPXB\tSYS\tSYS\t0-31,64-95\t0\t\tN/A\n"
    "GPU1\tNV12\t X \tNV12\tNV12\tNV12\tNV12\tNV12\tNV12\tPXB\tPXB\tSYS\tSYS\t0-31,64-95\t0\t\tN/A\n"
    "GPU2\tNV12\tNV12\t X \tNV12\tNV12\tNV12\tNV12\tNV12\tSYS\tSYS\tPXB\tPXB\t0-31,64-95\t0\t\tN/A\n"
    "GPU3\tNV12\tNV12\tNV12\t X \tNV12\tNV12\tNV12\tNV12\tSYS\tSYS\tPXB\tPXB\t0-31,64-95\t0\t\tN/A\n"
    "GPU4\tNV12\tNV12\tNV12\tNV12\t X \tNV12\tNV12\tNV12\tSYS\tSYS\tSYS\tSYS\t32-63,96-127\t1\t\tN/A\n"
    "GPU5\tNV12\tNV12\tNV12\tNV12\tNV12\t X \tNV12\tNV12\tSYS\tSYS\tSYS\tSYS\t32-63,96-127\t1\t\tN/A\n"
    "GPU6\tNV12\tNV12\tNV12\tNV12\tNV12\tNV12\t X \tNV12\tSYS\tSYS\tSYS\tSYS\t32-63,96-127\t1\t\tN/A\n"
    "GPU7\tNV12\tNV12\tNV12\tNV12\tNV12\tNV12\tNV12\t X \tSYS\tSYS\tSYS\tSYS\t32-63,96-127\t1\t\tN/A\n"
    "NIC0\tPXB\tPXB\tSYS\tSYS\tSYS\tSYS\tSYS\tSYS\t X \tPXB\tSYS\tSYS\n"
    "NIC1\tPXB\tPXB\tSYS\tSYS\tSYS\tSYS\tSYS\tSYS\tPXB\t X \tSYS\tSYS\n"
    "NIC2\tSYS\tSYS\tPXB\tPXB\tSYS\tSYS\tSYS\tSYS\tSYS\tSYS\t X \tPIX\n"
    "NIC3\tSYS\tSYS\tPXB\tPXB\tSYS\tSYS\tSYS\tSYS\tSYS\tSYS\tPIX\t X\n"
    + LEGEND
    + "\nNIC Legend:\n\n"
    + "".join(f"  NIC{i}: mlx5_{i}\n" for i in range(4))
)

# Recorded, as copied from a terminal: two cards on each processor, beside its network cards.
FOUR_CARDS = (
    "        GPU0    GPU1    GPU2    GPU3    NIC0    NIC1    NIC2    NIC3"
    "    CPU Affinity    NUMA Affinity   GPU NUMA ID\n"
    "GPU0     X      NODE    SYS     SYS     NODE    NODE    SYS     SYS     0-31    0               N/A\n"
    "GPU1    NODE     X      SYS     SYS     NODE    NODE    SYS     SYS     0-31    0               N/A\n"
    "GPU2    SYS     SYS      X      NODE    SYS     SYS     NODE    NODE    32-63   1               N/A\n"
    "GPU3    SYS     SYS     NODE     X      SYS     SYS     NODE    NODE    32-63   1               N/A\n"
    "NIC0    NODE    NODE    SYS     SYS      X      PIX     SYS     SYS\n"
    "NIC1    NODE    NODE    SYS     SYS     PIX      X      SYS     SYS\n"
    "NIC2    SYS     SYS     NODE    NODE    SYS     SYS      X      PIX\n"
    "NIC3    SYS     SYS     NODE    NODE    SYS     SYS     PIX      X\n"
) + LEGEND

# Recorded: a virtual machine with one GPU, which belongs to no NUMA node.
ONE = "\tGPU0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\nGPU0\t X \t0-7\t\tN/A\t\tN/A\n" + LEGEND

# Workstation cards joined in pairs by bridges. Old drivers named network cards by their device.
BRIDGED = (
    "\tGPU0\tGPU1\tGPU2\tGPU3\tmlx5_0\tCPU Affinity\n"
    "GPU0\t X \tNV4\tSYS\tSYS\tSYS\t0-15\n"
    "GPU1\tNV4\t X \tSYS\tSYS\tSYS\t0-15\n"
    "GPU2\tSYS\tSYS\t X \tNV4\tPHB\t16-31\n"
    "GPU3\tSYS\tSYS\tNV4\t X \tPHB\t16-31\n"
    "mlx5_0\tSYS\tSYS\tPHB\tPHB\t X \t\n"
) + LEGEND

# Eight gaming cards, four on each processor, none behind a switch.
GAMING = (
    "\t\x1b[4m"
    + "\t".join(f"GPU{i}" for i in range(8))
    + "\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m\n"
    + "".join(
        f"GPU{i}\t"
        + "\t".join(" X " if i == j else "NODE" if i // 4 == j // 4 else "SYS" for j in range(8))
        + f"\t{'0-31,64-95' if i < 4 else '32-63,96-127'}\t{i // 4}\t\tN/A\n"
        for i in range(8)
    )
    + LEGEND
)


def test_six_cards_on_two_processors():
    found = parse_topology(SIX_CARDS)
    assert set(found) == set(combinations(range(6), 2))
    assert (found[0, 1], found[0, 2], found[3, 5], found[4, 5]) == ("PIX", "NODE", "SYS", "PIX")


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        (A100, dict.fromkeys(combinations(range(8), 2), "NV12")),
        (
            FOUR_CARDS,
            {(a, b): "NODE" if a // 2 == b // 2 else "SYS" for a, b in combinations(range(4), 2)},
        ),
        (ONE, {}),
        (BRIDGED, {(a, b): "NV4" if a // 2 == b // 2 else "SYS" for a, b in combinations(range(4), 2)}),
        (GAMING, {(a, b): "NODE" if a // 4 == b // 4 else "SYS" for a, b in combinations(range(8), 2)}),
    ],
    ids=["switches", "terminal", "one", "bridges", "gaming"],
)
def test_hosts_of_other_kinds(text, kinds):
    assert parse_topology(text) == kinds


@pytest.mark.parametrize("text", ["", "No devices were found\n", "nvidia-smi: command not found"])
def test_no_matrix(text):
    with pytest.raises(BrimfulError, match="names no GPU"):
        parse_topology(text)


def test_a_row_that_is_missing_or_short():
    lines = SIX_CARDS.splitlines()
    for damaged in ([*lines[:3], *lines[4:]], [*lines[:3], "GPU2\tNODE", *lines[4:]]):
        with pytest.raises(BrimfulError, match="the row of GPU2 is missing or cut short"):
            parse_topology("\n".join(damaged))
