"""Cores that control groups leave, the processor's name, and variables that somebody forgot."""

import os
from pathlib import Path

import pytest

from brimful.machine.host import host_facts, processor, settings, slowing, software, usable_cores

ALL = float(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)


def system(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


@pytest.mark.parametrize(
    ("files", "cores"),
    [
        ({}, ALL),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "max 100000\n"}, ALL),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "50000 100000\n"}, 0.5),
        # The tightest of the groups above counts.
        (
            {
                "proc/self/cgroup": "0::/a/b\n",
                "sys/fs/cgroup/a/b/cpu.max": "max 100000\n",
                "sys/fs/cgroup/a/cpu.max": "20000 100000\n",
            },
            0.2,
        ),
        (
            {
                "proc/self/cgroup": "5:cpu,cpuacct:/pod\n3:memory:/pod\n",
                "sys/fs/cgroup/cpu/pod/cpu.cfs_quota_us": "30000\n",
                "sys/fs/cgroup/cpu/pod/cpu.cfs_period_us": "100000\n",
            },
            0.3,
        ),
        (
            {
                "proc/self/cgroup": "5:cpu:/\n",
                "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n",
                "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
            },
            ALL,
        ),
    ],
)
def test_cores_are_those_of_the_tightest_limit(tmp_path, files, cores):
    assert usable_cores(system(tmp_path, files)) == cores


def test_the_processor_by_name(tmp_path):
    x86 = system(tmp_path / "x86", {"proc/cpuinfo": "processor\t: 0\nmodel name\t: AMD EPYC 9354\n"})
    assert processor(x86) == "AMD EPYC 9354"
    pi = system(tmp_path / "pi", {"proc/cpuinfo": "processor\t: 0\nModel\t\t: Raspberry Pi 5\n"})
    assert processor(pi) == "Raspberry Pi 5"
    assert processor(tmp_path / "nothing")


def test_only_variables_that_matter_are_shown():
    given = {
        "NCCL_DEBUG": "INFO",
        "GLOO_SOCKET_IFNAME": "eth0",
        "OMP_NUM_THREADS": "4",
        "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1",
        "WANDB_API_KEY": "secret",
        "HOME": "/root",
    }
    assert settings(given) == {"GLOO_SOCKET_IFNAME": "eth0", "NCCL_DEBUG": "INFO", "OMP_NUM_THREADS": "4"}


def test_variables_that_slow_training():
    assert slowing({"NCCL_P2P_DISABLE": "0", "CUDA_LAUNCH_BLOCKING": "", "NCCL_DEBUG": "INFO"}) == []
    (p2p, debug) = slowing({"NCCL_P2P_DISABLE": "1", "TORCH_DISTRIBUTED_DEBUG": "detail"})
    assert p2p.startswith("NCCL_P2P_DISABLE=1: GPUs of a host do not copy to each other directly; unset it")
    assert debug.startswith("TORCH_DISTRIBUTED_DEBUG=DETAIL:")


def test_this_host():
    facts = host_facts()
    assert facts["name"]
    assert 0 < facts["cores"] <= ALL
    assert 0 < facts["memory"]["available"] <= facts["memory"]["total"]
    assert software()["torch"]
