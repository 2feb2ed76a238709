"""`doctor`: alone, on real ranks, and what it finds on machines made up."""

import json

import pytest
import torch

from brimful.base.distributed import World
from brimful.cli.main import main
from brimful.commands import machine_check
from brimful.commands.doctor import find_problems, show_report
from builders.machines import on_gpus
from builders.verbs import run


@pytest.fixture
def brief(monkeypatch):
    """Bursts of a moment."""
    monkeypatch.setattr(machine_check, "BURST_SECONDS", 0.05)
    monkeypatch.setattr(machine_check, "WATCH_SECONDS", 0.05)
    monkeypatch.setitem(machine_check.MATRIX_SIDE, "cpu", 64)


@pytest.mark.usefixtures("brief")
def test_alone(capsys):
    assert main(["doctor", "--json"]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    report = json.loads(line)
    assert report["wrong_sums"] == []
    (device,) = report["devices"]
    assert device["flops"] > 1e6
    assert report["hosts"][0]["versions"]["torch"] == torch.__version__
    show_report(report)
    out = capsys.readouterr().out
    assert "usable cores, load" in out
    assert f"GFLOP/s in {device['precision']}" in out


def test_alone_every_gpu_is_measured(monkeypatch):
    class Properties:
        name = "NVIDIA H100"

    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: Properties)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (70, 80))
    monkeypatch.setattr(machine_check, "resolve", lambda asked, device: "bf16")
    monkeypatch.setattr(machine_check, "measure_flops", lambda device, dtype: 10.0 + device.index)
    found = machine_check.measure_devices(World(0, 1, torch.device("cuda", 0)), "a")
    assert [each["flops"] for each in found] == [10.0, 11.0, 12.0]
    assert [each["number"] for each in found] == [0, 1, 2]
    assert {each["taken"] for each in found} == {10}


@pytest.mark.usefixtures("brief")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_burst(monkeypatch, dtype):
    assert machine_check.measure_flops(torch.device("cpu"), dtype) > 0

    def full(*_, **__):
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(torch, "randn", full)
    assert machine_check.measure_flops(torch.device("cpu"), dtype) is None


def test_machines_without_faults_wrong_sums_and_memory_that_others_take(capsys):
    report = on_gpus(((0, 1, 2, 3),))
    assert find_problems(report) == []
    show_report(report | {"findings": []})
    assert "nothing is wrong" in capsys.readouterr().out
    report["devices"][1] |= {"taken": 30 * 10**9}
    report["devices"][2] |= {"flops": 300e12}
    memory, computes, sums = find_problems(report | {"wrong_sums": [1]})
    assert "rank 1: others take 30 GB" in memory
    assert "rank 2 computes at 50% of the others' speed" in computes
    assert "WRONG on rank 1" in sums


@pytest.mark.parametrize(
    ("speeds", "slow"),
    [
        ([10.0, 9.0], []),
        ([10.0, 8.0], [1]),
        ([10.0, 10.0, None, 10.0], [2]),
        ([5.0, 5.0, 10.0, 10.0], [0, 1]),  # two hosts, one of them slow
        ([10.0, 10.0, 10.0, 100.0], []),
    ],
)
def test_slow_devices_are_clearly_below_the_median(speeds, slow):
    report = on_gpus((range(len(speeds)),))
    for device, speed in zip(report["devices"], speeds, strict=True):
        device["flops"] = speed
    lines = find_problems(report)
    assert len(lines) == len(slow)
    assert all(f"of rank {rank} computes" in line for rank, line in zip(slow, lines, strict=True))


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ({"stolen_cores": 6.0}, "a: the host of this virtual machine withholds 6.0 cores (steal)"),
        ({"load": 68.0}, "a: the load average is 68.0 with 16 usable cores"),
        ({"load": 17.0}, None),
        ({"disk": 2 * 10**9}, "a: 2 GB of disk are free: free more"),
        ({"lacks": "Triton"}, "a: steps are not compiled, which takes Triton"),
    ],
)
def test_a_host(facts, expected):
    report = on_gpus()
    report["hosts"][0] |= facts
    starts = [line.startswith(str(expected)) for line in find_problems(report)]
    assert starts == [True] * (expected is not None)


@pytest.mark.slow
@pytest.mark.distributed
def test_ranks_measure_their_devices_and_a_sum():
    report = run("doctor", ranks=3)
    assert [host["rank"] for host in report["hosts"]] == [0]
    assert [device["rank"] for device in report["devices"]] == [0, 1, 2]
    assert report["wrong_sums"] == []
