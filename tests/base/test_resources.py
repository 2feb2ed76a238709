"""Cores that control groups leave, and who keeps them busy; a system that does not say gives no error."""

import os
from pathlib import Path

import pytest

from brimful.base import resources
from brimful.base.resources import CoreUse, CoreWatch, processor, usable_cores
from brimful.base.system import usable_cores as affinity_cores

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
    ],
)
def test_cores_are_those_of_the_tightest_limit(tmp_path, files, cores):
    assert usable_cores(system(tmp_path, files)) == cores


TICK = os.sysconf("SC_CLK_TCK")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds of the wall and of this process, on a machine of two cores."""
    seconds = [10.0, 3.0]
    monkeypatch.setattr(resources.time, "perf_counter", lambda: seconds[0])
    monkeypatch.setattr(resources.time, "process_time", lambda: seconds[1])
    monkeypatch.setattr(resources.os, "cpu_count", lambda: 2)
    monkeypatch.setattr(resources.system, "usable_cores", lambda: 2)
    return seconds


@pytest.mark.parametrize(
    ("own", "load", "stolen", "threads", "withheld"),
    [
        (2.0, 2.0, 0.0, 2, 0.0),
        (0.4, 8.5, 0.0, 2, 0.8),
        (0.5, 2.0, 1.5, 2, 0.75),
        (0.4, 0.5, 0.0, 2, 0.0),  # it waits for itself
        (1.0, 4.0, 0.0, 1, 0.0),  # the other core is of others
    ],
)
def test_cores_that_a_busy_machine_withholds(
    tmp_path, monkeypatch, clock, own, load, stolen, threads, withheld
):
    monkeypatch.setattr(resources.os, "getloadavg", lambda: (load, 1.0, 1.0))
    system(tmp_path, {"proc/stat": "cpu  1 2 3 4 5 6 7 80 9 10\ncpu0 1 2 3 4 5 6 7 8 9 10\n"})
    watch = CoreWatch(root=tmp_path)
    system(tmp_path, {"proc/stat": f"cpu  1 2 3 4 5 6 7 {80 + round(10 * stolen * TICK)} 9 10\n"})
    clock[:] = [20.0, 3.0 + 10 * own]
    use = watch.look(threads)
    assert use == CoreUse(2.0, load, pytest.approx(stolen), pytest.approx(withheld))


@pytest.mark.parametrize(("own", "withheld"), [(0.1, 0.9), (0.02, 0.0)])
def test_a_quota_withholds_cores_once_it_is_used_up(tmp_path, monkeypatch, clock, own, withheld):
    files = {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "10000 100000\n"}
    monkeypatch.setattr(resources.os, "getloadavg", lambda: (0.1, 0.1, 0.1))
    watch = CoreWatch(root=system(tmp_path, files))
    clock[:] = [20.0, 3.0 + 10 * own]
    use = watch.look(threads=1)
    assert (use.cores, use.withheld) == (0.1, pytest.approx(withheld))


@pytest.mark.parametrize("text", [None, "", "cpu  0 0 0\n", "intr 1 2\n"])
def test_a_system_that_does_not_say(tmp_path, monkeypatch, text):
    def no_load() -> None:
        raise OSError("no load average")

    monkeypatch.setattr(resources.os, "getloadavg", no_load)
    if text is not None:
        system(tmp_path, {"proc/stat": text})
    use = CoreWatch(root=tmp_path).look(threads=1)
    assert (use.load, use.stolen, use.withheld) == (0.0, 0.0, 0.0)


def test_this_processor():
    assert processor()
