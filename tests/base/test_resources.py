"""Cores that control groups leave, and what others take; a system that does not say gives no error."""

import os
from pathlib import Path

import pytest

from brimful.base.resources import load_average, processor_name, stolen_seconds, usable_cores
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


def test_seconds_that_a_host_withholds(tmp_path):
    ticks = 80 * os.sysconf("SC_CLK_TCK")
    system(tmp_path, {"proc/stat": f"cpu  1 2 3 4 5 6 7 {ticks} 9 10\ncpu0 1 2 3 4 5 6 7 8 9 10\n"})
    assert stolen_seconds(tmp_path) == 80.0


@pytest.mark.parametrize("text", [None, "", "cpu  0 0 0\n", "intr 1 2\n"])
def test_a_system_that_does_not_say(tmp_path, monkeypatch, text):
    def no_load() -> None:
        raise OSError("no load average")

    monkeypatch.setattr("os.getloadavg", no_load)
    if text is not None:
        system(tmp_path, {"proc/stat": text})
    assert (load_average(), stolen_seconds(tmp_path)) == (0.0, 0.0)


def test_this_processor():
    assert processor_name()
