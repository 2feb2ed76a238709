"""Cores that control groups leave, cores that are busy, and what nvidia-smi says."""

import os
import stat
from pathlib import Path

import pytest

from brimful.errors import BrimfulError
from brimful.machine import host
from brimful.machine.host import busy_cores, collectives, gpus, nvidia_smi, processor, usable_cores

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


def test_busy_cores(tmp_path, monkeypatch):
    tick = os.sysconf("SC_CLK_TCK")

    def stat_file(busy: int, idle: int) -> None:
        system(tmp_path, {"proc/stat": f"cpu  {busy} 0 0 {idle} 7 0 0 0 0 0\ncpu0 1 2 3\n"})

    stat_file(5, 100)
    monkeypatch.setattr(host.time, "sleep", lambda seconds: stat_file(5 + 3 * tick, 100 + 9 * tick))
    assert busy_cores(2.0, tmp_path) == 1.5
    assert busy_cores(0.0, tmp_path / "nothing") is None


def test_this_host():
    assert processor()
    assert "torch" in collectives() or "CCL" in collectives()


@pytest.fixture
def driver(tmp_path, monkeypatch):
    """Makes a shell script nvidia-smi."""

    def install(script: str) -> None:
        path = tmp_path / "nvidia-smi"
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)

    return install


def test_gpus_by_their_uuids(driver):
    driver('echo "GPU-aa, 0, 93"; echo "GPU-bb, 1, [N/A]"')
    assert gpus() == {"aa": (0, 93), "bb": (1, 0)}


def test_a_driver_that_fails_or_is_not_there(driver, monkeypatch):
    driver("exit 9")
    with pytest.raises(BrimfulError, match="exit status 9"):
        nvidia_smi("topo", "-m")
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(BrimfulError, match="nvidia-smi"):
        gpus()
