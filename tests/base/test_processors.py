"""Cores that control groups leave, and who keeps them busy; a system that does not say gives no error."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from brimful.base import processors
from brimful.base.processors import Use, Watch, processor, usable_cores
from brimful.base.system import usable_cores as affinity_cores
from brimful.train import pace

ALL = float(affinity_cores())


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


BUSY = "-c", "while True: pass"
TICK = os.sysconf("SC_CLK_TCK")


def test_who_has_the_cores(tmp_path, monkeypatch):
    """Of two cores of this process's: others have one, a virtual machine's host half of one. Core 7 is of
    others."""
    clock = [10.0, 3.0]
    monkeypatch.setattr(processors.time, "perf_counter", lambda: clock[0])
    monkeypatch.setattr(processors.time, "process_time", lambda: clock[1])
    monkeypatch.setattr(processors.os, "getloadavg", lambda: (4.5, 1.0, 1.0))
    monkeypatch.setattr(processors.os, "sched_getaffinity", lambda _: {0, 1}, raising=False)

    def stat(busy: float, stolen: float) -> None:
        mine = f"{100 + round(busy * TICK)} 0 0 50 9 0 0 {round(stolen * TICK)} 0 0"
        text = f"cpu  1 2 3 4 5 6 7 8 9 10\ncpu0 {mine}\ncpu1 0 0 0 7 0 0 0 0 0 0\ncpu7 {mine}\nintr 1 2\n"
        system(tmp_path, {"proc/stat": text})

    stat(0, 0)
    watch = Watch(processes=2, root=tmp_path)
    stat(12.0, 4.0)
    clock[:] = [18.0, 5.0]
    use = watch.look()
    assert use == Use(own=0.25, others=1.0, stolen=0.5, load=4.5, cores=2)
    assert use.withheld(threads=1.0) == pytest.approx(0.5)
    assert use.withheld(threads=1.0, processes=2) == pytest.approx(0.75)


@pytest.mark.parametrize(
    ("use", "threads", "withheld"),
    [
        (Use(2.0, 0.0, 0.0, 2.0, 2), 2, 0.0),
        (Use(0.4, 1.6, 0.0, 8.5, 2), 2, 0.8),
        (Use(0.5, 0.0, 1.5, 2.0, 2), 2, 0.75),
        (Use(0.4, 0.0, 0.0, 0.5, 2), 2, 0.0),  # it waits for itself
        (Use(1.0, 1.0, 0.0, 2.0, 2), 1, 0.0),  # the other core is of others
        (Use(1.0, None, None, 9.0, 2), 2, 0.5),  # the load alone is known
        (Use(1.0, None, None, 2.5, 2), 2, 0.0),
        (Use(1.0, None, None, None, 2), 2, 0.0),
        (Use(0.1, 0.0, 0.0, 0.1, 2, quota=0.1), 2, 0.95),  # nobody else has them
    ],
)
def test_what_others_withhold(use, threads, withheld):
    assert use.withheld(threads) == pytest.approx(withheld)


@pytest.mark.parametrize(("own", "withheld"), [(0.1, 0.9), (0.02, 0.0)])
def test_a_quota_withholds_cores_once_it_is_used_up(tmp_path, monkeypatch, own, withheld):
    clock = [10.0, 3.0]
    monkeypatch.setattr(processors.time, "perf_counter", lambda: clock[0])
    monkeypatch.setattr(processors.time, "process_time", lambda: clock[1])
    files = {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "10000 100000\n"}
    watch = Watch(root=system(tmp_path, files))
    monkeypatch.setattr(pace, "usable_cores", lambda: 0.1)
    monkeypatch.setattr(processors.os, "getloadavg", lambda: (0.1, 0.1, 0.1))
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    clock[:] = [20.0, 3.0 + 10 * own]
    line = pace.processor_metrics(watch)
    assert line["withheld"] == pytest.approx(withheld)
    assert line.get("quota") == (0.1 if withheld else None)


@pytest.mark.parametrize("text", [None, "", "cpu  0 0 0\ncpu0 0 0 0 0 0 0 0 0 0 0\n", "cpu0 1 2\n"])
def test_a_system_that_does_not_say(tmp_path, monkeypatch, text):
    def no_load() -> None:
        raise OSError("no load average")

    monkeypatch.setattr(processors.os, "getloadavg", no_load)
    if text is not None:
        system(tmp_path, {"proc/stat": text})
    use = Watch(root=tmp_path).look()
    assert (use.others, use.stolen, use.load) == (None, None, None)
    assert use.own >= 0
    assert use.withheld(1) == 0.0


def test_this_processor():
    assert processor()


def test_others_take_cores_from_this_process():
    """A process on each core, and one thread of this one."""
    if Watch().look().others is None:
        pytest.skip("this system does not say what its processors do")
    others = [
        subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2 * affinity_cores())
    ]
    try:
        time.sleep(0.5)
        watch, end = Watch(), time.perf_counter() + 1.0
        while time.perf_counter() < end:
            pass
        use = watch.look()
    finally:
        for each in others:
            each.kill()
            each.wait()
    assert use.others is not None
    assert use.others > 0.4 * affinity_cores()
    assert 0.1 < use.withheld(1) < 1
