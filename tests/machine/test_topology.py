"""The matrix of nvidia-smi, from hosts of many kinds, as tabs and as people copy it from a terminal."""

import stat
from pathlib import Path

import pytest

from brimful.errors import BrimfulError
from brimful.machine.topology import explain, nvidia_smi, parse_topology, ranges

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
    assert found.gpus == ("GPU0", "GPU1", "GPU2", "GPU3", "GPU4", "GPU5")
    assert found.links["GPU0", "GPU1"] == found.links["GPU1", "GPU0"] == "PIX"
    assert found.links["GPU2", "GPU0"] == "NODE"
    assert found.links["GPU3", "GPU5"] == "SYS"
    assert ("GPU0", "GPU0") not in found.links
    assert found.cpus["GPU5"] == "24-47,72-95"
    assert found.numa == {"GPU0": "0", "GPU1": "0", "GPU2": "0", "GPU3": "0", "GPU4": "1", "GPU5": "1"}
    assert explain(found) == [
        "SYS: through both processors between GPUs 0-3 | 4, 5",
        "NODE: through the processor between GPUs 0, 1 | 2, 3 | 4, 5",
        "no NVLink: all traffic between GPUs takes PCIe",
    ]


def test_a_host_with_switches_and_network_cards():
    found = parse_topology(A100)
    assert len(found.gpus) == 8
    assert {found.links[a, b] for a in found.gpus for b in found.gpus if a != b} == {"NV12"}
    assert found.links["GPU3", "NIC2"] == "PXB"
    assert found.links["NIC3", "NIC2"] == "PIX"
    assert found.nics == {"NIC0": "mlx5_0", "NIC1": "mlx5_1", "NIC2": "mlx5_2", "NIC3": "mlx5_3"}
    assert found.cpus["GPU4"] == "32-63,96-127"
    assert found.numa["GPU4"] == "1"
    assert explain(found) == []


def test_four_cards_copied_from_a_terminal():
    found = parse_topology(FOUR_CARDS)
    assert found.gpus == ("GPU0", "GPU1", "GPU2", "GPU3")
    assert found.links["GPU3", "NIC0"] == "SYS"
    assert found.cpus["GPU2"] == "32-63"
    assert explain(found)[0] == "SYS: through both processors between GPUs 0, 1 | 2, 3"


def test_one_gpu():
    found = parse_topology(ONE)
    assert found.gpus == ("GPU0",)
    assert found.links == {}
    assert found.cpus == {"GPU0": "0-7"}
    assert explain(found) == []


def test_cards_with_bridges():
    found = parse_topology(BRIDGED)
    assert found.links["mlx5_0", "GPU2"] == "PHB"
    assert found.numa == {}
    assert found.cpus["GPU3"] == "16-31"
    assert explain(found) == ["SYS: through both processors between GPUs 0, 1 | 2, 3"]


def test_gaming_cards():
    assert explain(parse_topology(GAMING)) == [
        "SYS: through both processors between GPUs 0-3 | 4-7",
        "NODE: through the processor between GPUs 0 | 1 | 2 | 3 | 4 | 5 | 6 | 7",
        "no NVLink: all traffic between GPUs takes PCIe",
    ]


@pytest.mark.parametrize("sample", [SIX_CARDS, A100, FOUR_CARDS, ONE, BRIDGED, GAMING])
def test_tabs_or_spaces_make_no_difference(sample):
    assert parse_topology(sample.expandtabs(8)) == parse_topology(sample)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "names no GPU"),
        ("Failed to initialize NVML: Driver/library version mismatch\n", "names no GPU"),
        (SIX_CARDS.replace("GPU3\tNODE", "GPUx\tNODE"), "the row of GPU3 is missing"),
        (SIX_CARDS.partition("GPU5\tSYS")[0] + "GPU5\tSYS\tSYS\n", "the row of GPU5 is missing or cut short"),
    ],
)
def test_what_is_no_matrix_is_refused(text, message):
    with pytest.raises(BrimfulError, match=message):
        parse_topology(text)


def test_ranges():
    assert ranges([5, 0, 1, 2, 7, 8]) == "0-2, 5, 7, 8"
    assert ranges([]) == ""


def fake(directory: Path, script: str) -> None:
    file = directory / "nvidia-smi"
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(file.stat().st_mode | stat.S_IXUSR)


def test_nvidia_smi_that_is_missing_or_fails(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BrimfulError, match=r"^nvidia-smi was not found$"):
        nvidia_smi("topo", "-m")
    fake(tmp_path, "echo 'NVIDIA-SMI has failed'; echo; exit 9")
    with pytest.raises(BrimfulError, match=r"^nvidia-smi topo -m failed: NVIDIA-SMI has failed$"):
        nvidia_smi("topo", "-m")
    fake(tmp_path, "echo $1 $2")
    assert nvidia_smi("topo", "-m") == "topo -m\n"
