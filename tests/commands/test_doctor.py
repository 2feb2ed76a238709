"""`doctor`: alone, on real ranks, over a link that is really slow, and what it finds on machines made up."""

import json
import os
import subprocess
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import torch

from brimful.base.distributed import World
from brimful.cli.main import main
from brimful.commands import doctor as screen
from brimful.commands import machine_check
from brimful.commands.doctor import find_problems, show_report
from builders.hosts import Host, limit, missing, two_hosts
from builders.machines import on_gpus
from builders.verbs import ROOT, command, run


@pytest.fixture
def brief(monkeypatch):
    """Bursts of a moment, on a screen of 80 columns."""
    monkeypatch.setattr(machine_check, "BURST_SECONDS", 0.05)
    monkeypatch.setattr(machine_check, "WATCHED_SECONDS", 0.05)
    monkeypatch.setitem(machine_check.COPIED_BYTES, "cpu", 16 << 20)
    console = screen.output_console

    def narrow():
        made = console()
        made.width = 80
        return made

    monkeypatch.setattr(screen, "output_console", narrow)


@pytest.mark.usefixtures("brief")
def test_alone(capsys):
    assert main(["doctor", "--json"]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    report = json.loads(line)
    assert report["links"] is None
    (device,) = report["devices"]
    assert device["flops"] > 1e6
    assert device["bytes"] > 1e6
    show_report(report)
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 80
    assert "usable cores, load" in " ".join(out.split())


def test_alone_every_gpu_is_measured(monkeypatch):
    class Properties:
        name = "NVIDIA H100"

    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: Properties)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (70, 80))
    monkeypatch.setattr(machine_check, "resolve", lambda asked, device: "bf16")
    monkeypatch.setattr(
        machine_check, "measure_burst", lambda device, dtype: {"flops": 10.0 + device.index, "bytes": 5.0}
    )
    found = machine_check.measure_devices(World(0, 1, torch.device("cuda", 0)), "a")
    assert [each["flops"] for each in found] == [10.0, 11.0, 12.0]
    assert [each["number"] for each in found] == [0, 1, 2]
    assert {each["taken"] for each in found} == {10}


def test_a_machine_without_faults():
    assert find_problems(on_gpus(((0, 1, 2, 3),))) == []


def test_four_ranks_to_take():
    """A slow host, or a slow card: the ranks that fast pairs join."""
    slow = [(a, b) for a in range(4) for b in (4, 5)]
    pairs, take = find_problems(on_gpus((range(4), range(4, 6)), slow))
    assert pairs.startswith("slow pairs of ranks, 0.9 to 0.9 GB/s: 0-4, 0-5, 1-4")
    assert take == "take these 4, which fast pairs join: ranks 0, 1, 2, 3"
    (pairs,) = find_problems(on_gpus(((0, 1, 2),), [(0, 2)]))
    assert pairs.endswith("0-2")  # rank 1 joins them, so all may train


def test_sums_that_are_wrong():
    (wrong,) = find_problems(on_gpus(right=False))
    assert wrong.startswith("sums are WRONG between ranks 0-1: do not train")


def test_others_and_slow_devices():
    report = on_gpus(((0, 1, 2),))
    report["devices"][1] |= {"taken": 30 * 10**9}
    report["devices"][2] |= {"flops": 300e12, "bytes": None}
    memory, computes, copies = find_problems(report)
    assert "rank 1: others take 30 GB" in memory
    assert computes.startswith("rank 2 computes at 50% of the others' speed")
    assert copies.startswith("rank 2 copies memory at 0% of the others' speed")


@pytest.mark.parametrize(
    ("speeds", "slow"),
    [
        ([10.0, 9.0], []),
        ([10.0, 8.0], [1]),
        ([10.0, 10.0, 5.0, 10.0], [2]),
        ([5.0, 5.0, 10.0, 10.0], [0, 1]),  # two hosts, one of them slow
        ([10.0, 10.0, 10.0, 100.0], []),
    ],
)
def test_slow_devices_are_clearly_below_the_median(speeds, slow):
    report = on_gpus((range(len(speeds)),))
    for device, speed in zip(report["devices"], speeds, strict=True):
        device["flops"] = speed
    assert [int(line.split()[1]) for line in find_problems(report)] == slow


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ({"stolen_cores": 6.0}, "a: the host of this virtual machine withholds 6.0 cores (steal)"),
        ({"load": 68.0}, "a: the load average is 68.0 with 16 usable cores"),
        ({"load": 17.0}, None),
    ],
)
def test_a_busy_host(facts, expected):
    report = on_gpus()
    report["hosts"][0] |= facts
    starts = [line.startswith(str(expected)) for line in find_problems(report)]
    assert starts == [True] * (expected is not None)


@pytest.mark.usefixtures("brief")
def test_a_cluster_fits_80_columns(capsys):
    report = on_gpus((range(4), range(4, 8)), [(a, b) for a in range(4) for b in range(4, 8)])
    show_report(report | {"findings": find_problems(report)})
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 80
    flat = " ".join(out.split())
    assert "pairs of ranks 0.9 to 20 GB/s" in flat
    assert "sums by NCCL 2.28.3 are right" in flat


@pytest.mark.slow
@pytest.mark.distributed
@pytest.mark.parametrize("ranks", [2, 9])
def test_ranks_measure_their_links(ranks):
    """Nine ranks measure four pairs at a time."""
    report = run("doctor", ranks=ranks)
    assert [host["rank"] for host in report["hosts"]] == [0]
    assert [device["rank"] for device in report["devices"]] == list(range(ranks))
    links = report["links"]
    assert [tuple(pair["ranks"]) for pair in links["pairs"]] == list(combinations(range(ranks), 2))
    assert all(pair["bytes_per_second"] > 1e6 and pair["right"] for pair in links["pairs"])
    assert links["all"] > 1e6
    assert links["right"]


def _doctor_on(a: Host, b: Host, directory: Path) -> dict[str, Any]:
    """The report of two ranks on one host and one on another."""
    started = []
    for rank, (host, local, node) in enumerate([(a, 0, 0), (a, 1, 0), (b, 0, 1)]):
        environment = os.environ | {
            "RANK": str(rank),
            "LOCAL_RANK": str(local),
            "GROUP_RANK": str(node),
            "WORLD_SIZE": "3",
            "MASTER_ADDR": a.address,
            "MASTER_PORT": "29555",
            "GLOO_SOCKET_IFNAME": host.name,
            "OMP_NUM_THREADS": "1",
        }
        line = [*host.prefix, *command("doctor", "--json")]
        with open(directory / f"{rank}.out", "wb") as out, open(directory / f"{rank}.err", "wb") as err:
            started.append(subprocess.Popen(line, cwd=ROOT, env=environment, stdout=out, stderr=err))
    for rank, process in enumerate(started):
        assert process.wait(timeout=300) == 0, (directory / f"{rank}.err").read_text()
    return json.loads((directory / "0.out").read_text())


@pytest.mark.slow
@pytest.mark.distributed
def test_a_link_of_200_mbit_is_found(tmp_path: Path):
    """Ranks 0 and 1 are on one host, rank 2 is on the other."""
    if reason := missing():
        pytest.skip(reason)
    with two_hosts() as (a, b):
        limit((a, b), 200)
        report = _doctor_on(a, b, tmp_path)
    assert [host["rank"] for host in report["hosts"]] == [0, 2]
    speeds = {tuple(pair["ranks"]): pair["bytes_per_second"] for pair in report["links"]["pairs"]}
    assert max(speeds[0, 2], speeds[1, 2]) < 30e6  # 200 Mbit/s are 25 MB/s
    assert report["links"]["train_on"] == [0, 1]
    assert any("take these 2, which fast pairs join: ranks 0, 1" in each for each in report["findings"])
