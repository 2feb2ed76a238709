"""`doctor`: alone, on real ranks, over a link that is really slow, and what it finds on machines made up."""

import json
import os
import subprocess
import sys
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import torch

from brimful.base.distributed import World
from brimful.base.system import usable_cores
from brimful.cli.main import main
from brimful.commands import doctor as module
from brimful.machine import bursts, reading
from brimful.machine import findings as doctor_page
from brimful.machine.findings import find_problems, show_report
from builders.hosts import Host, limit, missing, two_hosts
from builders.machines import on_gpus
from builders.verbs import ROOT, command, run


@pytest.fixture
def brief(monkeypatch):
    """Bursts of a moment."""
    monkeypatch.setattr(bursts, "SECONDS", 0.05)
    monkeypatch.setitem(bursts.BYTES, "cpu", 16 << 20)
    monkeypatch.setattr(reading, "SECONDS", 0.2)
    monkeypatch.setattr(doctor_page, "output_console", _narrow)


def _narrow():
    from brimful.base.terminal import output_console

    console = output_console()
    console.width = 80
    return console


@pytest.mark.usefixtures("brief")
def test_alone(corpus_dir, capsys, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    assert main(["doctor", "--data", str(corpus_dir), "--json"]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    report = json.loads(line)
    assert report["links"] is None
    (device,) = report["devices"]
    assert device["flops"] > 1e6
    assert device["bytes"] > 1e6
    assert report["data"]["disk"][0] > 0
    assert report["data"]["loader"][0] > 0
    show_report(report)
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 80
    flat = " ".join(out.split())
    assert "sums by gloo of torch" in flat
    assert "tokens/s for its rank" in flat
    if not torch.cuda.is_available():  # nothing of GPUs and ranks that are not there
        assert not any(each in flat for each in ("GPU", "Errno", "ranks", "NCCL", "torchrun", "what to set"))
    for host in report["hosts"]:
        host["gpus"], host["missing"] = {"GPU-0": [0, 0]}, "nvidia-smi failed"
    show_report(report)
    flat = " ".join(capsys.readouterr().out.split())
    assert "links of GPUs unknown: nvidia-smi failed" in flat
    assert "NCCL_SOCKET_IFNAME" in flat


def test_a_folder_that_is_not_there(tmp_path, capsys):
    assert main(["doctor", "--data", str(tmp_path / "dat")]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith(f"brimful: no prepared corpus: {tmp_path / 'dat'} is not a folder")
    assert len(captured.err.splitlines()) == 1


def test_alone_every_gpu_is_measured(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: _Properties(device.index))
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (70, 80))
    monkeypatch.setattr(module, "resolve", lambda asked, device: "bf16")
    monkeypatch.setattr(module, "burst", lambda device, dtype: {"flops": 10.0 + device.index, "bytes": 5.0})
    host = {"processor": "EPYC", "gpus": {"uuid1": (7, 40)}}
    found = module._devices(World(0, 1, torch.device("cuda", 0)), host)
    assert [each["flops"] for each in found] == [10.0, 11.0, 12.0]
    assert [(each["number"], each["busy"]) for each in found] == [(0, 0), (7, 40), (2, 0)]
    assert {each["taken"] for each in found} == {10}


class _Properties:
    name = "NVIDIA H100"

    def __init__(self, index: int) -> None:
        self.uuid = f"uuid{index}"


def test_a_machine_without_faults():
    assert find_problems(on_gpus(((0, 1, 2, 3),))) == []


def test_four_ranks_to_take():
    """A slow host, or a slow card: the ranks that fast pairs join."""
    slow = [(a, b) for a in range(4) for b in (4, 5)]
    pairs, take = find_problems(on_gpus((range(4), range(4, 6)), slow))
    assert pairs.startswith("slow pairs of ranks, 0.9 to 0.9 GB/s: 0-4, 0-5, 1-4")
    assert take.startswith(
        "take these 4, which fast pairs join: ranks 0, 1, 2, 3 (in nvidia-smi GPUs 0, 1, 2, 3)"
    )
    (pairs,) = find_problems(on_gpus(((0, 1, 2),), [(0, 2)]))
    assert pairs.endswith("0-2")  # rank 1 joins them, so all may train


def test_sums_that_are_wrong():
    (wrong,) = find_problems(on_gpus(right=False))
    assert wrong.startswith("sums are WRONG between ranks 0-1: do not train")


def test_others_and_slow_devices():
    report = on_gpus(((0, 1, 2),))
    report["hosts"][0]["busy_cores"] = 8.0
    report["devices"][1] |= {"taken": 30 * 10**9, "busy": 97}
    report["devices"][2] |= {"flops": 300e12, "bytes": None}
    cores, memory, computes, copies = find_problems(report)
    assert cores.startswith("a: other processes keep 8.0 of 16 cores busy (load average 0.9): ")
    assert "rank 1: others take 30 GB and 97 % of the time" in memory
    assert computes.startswith("rank 2 computes at 50% of the fastest")
    assert copies.startswith("rank 2 copies memory at 0% of the fastest")


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ({"stolen_cores": 6.0}, "a: the host of this virtual machine withholds 6.0 of 16 cores (steal)"),
        ({"load": 68.0}, "a: the load average of the last minute is 68.0 with 16 cores"),
        (
            {"busy_cores": 15.5, "load": 68.0},
            "a: other processes keep 15.5 of 16 cores busy (load average 68.0)",
        ),
        ({"busy_cores": None, "stolen_cores": None, "load": None}, None),
        ({"load": 17.0}, None),
    ],
)
def test_a_busy_host(facts, said):
    report = on_gpus()
    report["hosts"][0] |= facts
    assert [line.startswith(str(said)) for line in find_problems(report)] == [True] * (said is not None)


def test_others_that_compute_are_found(monkeypatch):
    """Each usable core has a process that computes."""
    monkeypatch.setenv("PATH", "/nowhere")
    line = [sys.executable, "-c", "while True: pass"]
    others = [subprocess.Popen(line) for _ in range(2 * usable_cores())]
    try:
        host = module._host()
    finally:
        for each in others:
            each.kill()
            each.wait()
    if host["busy_cores"] is None:
        pytest.skip("this system does not say what its processors do")
    report = on_gpus()
    report["hosts"][0] |= {key: host[key] for key in ("cores", "busy_cores", "stolen_cores", "load")}
    (line,) = [line for line in find_problems(report) if "other processes" in line]
    assert "cores busy (load average" in line


@pytest.mark.usefixtures("brief")
def test_a_cluster_fits_80_columns(capsys):
    report = on_gpus((range(4), range(4, 8)), [(a, b) for a in range(4) for b in range(4, 8)])
    show_report(report | {"findings": find_problems(report)})
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 80
    rows = [line.split() for line in out.splitlines()]
    assert ["6", "0.9", "0.9", "0.9", "0.9", "20", "20", "-", "20"] in rows
    assert ["NV18:", "GPUs", "0-1"] in rows
    assert "sums are right" in out


@pytest.mark.slow
@pytest.mark.distributed
@pytest.mark.parametrize("ranks", [2, 9])
def test_ranks_measure_their_links(corpus_dir, ranks):
    """Nine ranks measure four pairs at a time."""
    report = run("doctor", "--data", corpus_dir, ranks=ranks)
    assert [host["ranks"] for host in report["hosts"]] == [list(range(ranks))]
    assert [device["rank"] for device in report["devices"]] == list(range(ranks))
    links = report["links"]
    assert [tuple(pair["ranks"]) for pair in links["pairs"]] == list(combinations(range(ranks), 2))
    assert all(pair["bytes_per_second"] > 1e6 and pair["right"] for pair in links["pairs"])
    assert links["all"] > 1e6
    assert links["right"]
    assert len(report["data"]["disk"]) == 1
    assert len(report["data"]["loader"]) == ranks


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
    assert [host["ranks"] for host in report["hosts"]] == [[0, 1], [2]]
    speeds = {tuple(pair["ranks"]): pair["bytes_per_second"] for pair in report["links"]["pairs"]}
    assert max(speeds[0, 2], speeds[1, 2]) < 30e6  # 200 Mbit/s are 25 MB/s
    assert report["links"]["train_on"] == [0, 1]
    assert any("take these 2, which fast pairs join: ranks 0, 1" in each for each in report["findings"])
