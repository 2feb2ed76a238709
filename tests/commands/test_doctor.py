"""`doctor`: alone, on real ranks, over a link that is really slow, and as a person reads it."""

import json
import os
import shlex
import subprocess
from dataclasses import asdict
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import torch

from bench.common.hosts import Host, limit, missing, two_hosts
from brimful.cli import main
from brimful.commands import doctor_table, doctor_tune
from brimful.distributed import World
from brimful.machine import bursts, tuning
from brimful.machine.findings import find_problems
from builders.machines import on_gpus
from builders.verbs import ROOT, command, run


@pytest.fixture
def brief(monkeypatch):
    """Bursts of a moment."""
    import brimful.commands.doctor as module

    monkeypatch.setattr(module, "compute_speed", partial(bursts.compute_speed, seconds=0.05))
    monkeypatch.setattr(module, "memory_speed", partial(bursts.memory_speed, seconds=0.05))
    monkeypatch.setattr(module, "loader_speed", partial(module.loader_speed, seconds=0.2))
    monkeypatch.setitem(bursts.BYTES, "cpu", 16 << 20)
    monkeypatch.setattr(doctor_table, "output_console", _narrow)


def _narrow():
    from brimful.console import output_console

    console = output_console()
    console.width = 80
    return console


@pytest.mark.usefixtures("brief")
def test_alone_as_a_person_reads_it(corpus_dir, capsys, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("NCCL_SHM_DISABLE", "1")
    assert main(["doctor", "--data", str(corpus_dir)]) == 0
    out = capsys.readouterr().out
    lines = out.splitlines()
    assert max(map(len, lines)) <= 80
    flat = " ".join(out.split())
    assert "topology unknown: nvidia-smi was not found" in flat
    assert "torch.compile: needs a compiler, and g++ was not found" in flat
    assert "steps run eagerly" in flat
    assert " shard" in flat
    assert "tokens a second for each rank" in flat
    # What is wrong stands at the end, where a terminal stops.
    findings = out.partition("\nfindings\n")[2]
    assert "- NCCL_SHM_DISABLE=1: GPUs of a host talk through the network; unset it" in findings


@pytest.mark.usefixtures("brief")
def test_json_is_one_object(corpus_dir, capsys):
    assert main(["doctor", "--data", str(corpus_dir), "--json"]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    report = json.loads(line)
    assert report["links"] is None
    (device,) = report["devices"]
    assert device["flops_per_second"] > 1e6
    assert device["bytes_per_second"] > 1e6
    (data,) = report["data"]
    assert data["tokens"] > 0
    assert data["disk"][0]["bytes"] > 0
    assert report["loader"]["tokens_per_second"][0] > 0
    assert report["loader"]["products_alone"][0] > 0


def test_a_folder_that_is_not_there(tmp_path, capsys):
    assert main(["doctor", "--data", str(tmp_path / "dat")]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith(f"brimful: no prepared corpus: {tmp_path / 'dat'} is not a folder")
    assert len(captured.err.splitlines()) == 1


@pytest.mark.usefixtures("brief")
def test_a_cluster_fits_80_columns(capsys):
    hosts = tuple(tuple(range(first, first + 4)) for first in (0, 4))
    report = on_gpus(hosts, [pair for pair in combinations(range(8), 2) if pair[0] < 4 <= pair[1]])
    kinds = {1: "PXB", 2: "SYS", 3: "SYS"}
    for host in report["hosts"]:
        host["topology"] = {
            "gpus": [f"GPU{i}" for i in range(4)],
            "links": [
                {"between": [f"GPU{a}", f"GPU{b}"], "kind": kinds[a ^ b]}
                for a, b in combinations(range(4), 2)
            ],
            "cpus": {},
            "numa": {},
            "nics": {},
            "meaning": ["SYS: through both processors between GPUs 0, 1 | 2, 3"],
        }
    for one in report["devices"]:
        one["name"] = "NVIDIA H100 80GB HBM3"
    doctor_table.show_report(report | {"findings": [asdict(each) for each in find_problems(report)]})
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 80
    rows = [line.split() for line in out.splitlines()]
    assert ["0", "-", "PXB", "SYS", "SYS"] in rows
    assert ["2", "a", "GPU2", "H100", "80GB", "HBM3", "80", "600", "2,800"] in rows
    assert ["6", "0.9", "0.9", "0.9", "0.9", "20", "20", "-", "20"] in rows
    flat = " ".join(out.split())
    assert flat.startswith("a (ranks 0-3), b (ranks 4-7) EPYC, 16 usable cores")
    assert flat.count("EPYC") == 1
    assert "NV: NVLink" not in flat
    assert "SYS: the interconnect between processors" in flat
    assert "within a host: 20 GB/s; 10 us" in flat
    assert "between hosts: 0.9 GB/s" in flat
    assert "train on ranks 0-3 (a)" in flat


def test_alone_every_gpu_is_measured(monkeypatch):
    import brimful.commands.doctor as module

    def memory_speed(device):
        if device.index == 1:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return 5.0

    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    monkeypatch.setattr(module, "device_facts", lambda device: {"device": str(device), "precision": "bf16"})
    monkeypatch.setattr(module, "compute_speed", lambda device, dtype: 10.0 + device.index)
    monkeypatch.setattr(module, "memory_speed", memory_speed)
    found = module._devices(World(0, 1, torch.device("cuda", 0)))
    assert [each["device"] for each in found] == ["cuda:0", "cuda:1", "cuda:2"]
    assert [each["flops_per_second"] for each in found] == [10.0, 11.0, 12.0]
    assert [each["bytes_per_second"] for each in found] == [5.0, None, 5.0]


@pytest.mark.slow
@pytest.mark.distributed
@pytest.mark.parametrize("ranks", [2, 3])
def test_ranks_measure_their_links(corpus_dir, ranks):
    report = run("doctor", "--data", corpus_dir, ranks=ranks)
    assert [host["ranks"] for host in report["hosts"]] == [list(range(ranks))]
    assert [device["rank"] for device in report["devices"]] == list(range(ranks))
    pairs = report["links"]["pairs"]
    assert [tuple(pair["ranks"]) for pair in pairs] == list(combinations(range(ranks), 2))
    assert all(pair["bytes_per_second"] > 1e6 and 0 < pair["latency"] < 10 for pair in pairs)
    assert report["links"]["all"] > 1e6
    assert not report["links"]["at_once"]
    assert len(report["data"][0]["disk"]) == 1
    assert len(report["loader"]["tokens_per_second"]) == ranks


@pytest.mark.slow
@pytest.mark.distributed
@pytest.mark.parametrize("ranks", [2, 9])
def test_only_the_main_rank_prints(ranks):
    """Nine ranks measure four pairs at a time."""
    environment = os.environ | {"COLUMNS": "80", "OMP_NUM_THREADS": "1"}
    line = command("doctor", ranks=ranks)
    done = subprocess.run(line, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("\ndevices\n") == 1
    assert "within a host: " in done.stdout
    assert ("4 pairs at the same time" in " ".join(done.stdout.split())) == (ranks == 9)


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
    (message,) = [each["message"] for each in report["findings"] if each["kind"] == "slow_links"]
    names = [host["name"] for host in report["hosts"]]
    assert message.startswith(f"rank 2 ({names[1]}) reaches others at 0.02")
    assert f"train on ranks 0, 1 ({names[0]}) (torchrun --nproc-per-node 2)" in message


@pytest.mark.slow
@pytest.mark.usefixtures("brief")
def test_settings_are_tried_and_the_options_are_those_of_pretrain(corpus_dir, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(tuning, "SECONDS", 0.0)
    monkeypatch.setattr(doctor_tune, "lacks", lambda device: "a compiler")  # which takes a minute
    monkeypatch.setattr(doctor_tune, "PREFETCH", (8,))
    # Whatever is not present is faster, so that each setting has an option.
    monkeypatch.setattr(doctor_tune, "fastest", lambda candidates: candidates[-1])
    threads = torch.get_num_threads()
    monkeypatch.setattr(doctor_tune, "usable_cores", lambda: threads)  # others may use the rest
    line = ["doctor", "--tune", "--data", str(corpus_dir), "--model", "tiny"]
    assert main([*line, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    found = report["tuning"]
    tried = {each["setting"]: each for each in found["tried"]}
    assert {"trainer.prefetch"} <= tried.keys() <= {"precision", "OMP_NUM_THREADS", "trainer.prefetch"}
    assert [one["value"] for one in tried["trainer.prefetch"]["candidates"]] == [2, 8]
    assert all(one["updates"] == 2 for one in tried["trainer.prefetch"]["candidates"])
    assert all(one["tokens_per_second"] > 0 for each in tried.values() for one in each["candidates"])
    assert min(found["before"], found["after"]) > 0
    assert torch.get_num_threads() == threads
    options = [word for word in shlex.split(found["options"]) if not word.startswith("OMP_")]
    assert options[-2:] == ["--trainer.prefetch", "8"]
    start = ["pretrain", "--data", str(corpus_dir), "--out", str(tmp_path / "run"), "--dry-run"]
    assert main([*start, *options]) == 0
    capsys.readouterr()

    doctor_table.show_report(report)
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 80
    flat = " ".join(out.split())
    assert "settings for pretrain --model tiny" in flat
    assert f"use {found['options']}" in flat
    assert "times as fast" in flat


def test_tuning_needs_data(capsys):
    assert main(["doctor", "--tune"]) != 0
    assert "--tune needs --data: the folder made by `brimful prepare`" in capsys.readouterr().err
