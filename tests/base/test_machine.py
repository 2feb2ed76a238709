"""Cores and memory that control groups leave, what others take, and the plain form of each part."""

import os
import re
from pathlib import Path

import pytest

from brimful.base import machine, resources

ALL = float(machine.count_cores())


def system(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


@pytest.mark.parametrize(
    ("group", "quotas", "cores"),
    [
        ("", {}, ALL),
        ("/", {"cpu.max": "max"}, ALL),
        ("/", {"cpu.max": "50000"}, 0.5),
        ("/a/b", {"a/b/cpu.max": "max", "a/cpu.max": "20000"}, 0.2),  # the tightest of the groups above
    ],
)
def test_cores_are_those_of_the_tightest_limit(tmp_path, group, quotas, cores):
    files = {f"sys/fs/cgroup/{name}": f"{quota} 100000\n" for name, quota in quotas.items()}
    if group:
        files["proc/self/cgroup"] = f"0::{group}\n"
    assert resources.usable_cores(system(tmp_path, files)) == cores


def test_memory_of_a_group_counts_its_page_cache(tmp_path):
    files = {
        "proc/meminfo": "MemTotal: 900 kB\nMemAvailable:  800 kB\n",
        "proc/self/cgroup": "0::/a/b\n",
        "sys/fs/cgroup/a/b/memory.max": "max\n",
        "sys/fs/cgroup/a/memory.max": "100000\n",
        "sys/fs/cgroup/a/memory.current": "60000\n",
        "sys/fs/cgroup/a/memory.stat": "inactive_file 3000\nactive_file 2000\nanon 9\n",
    }
    assert resources.available_memory(system(tmp_path, files)) == 45000
    (tmp_path / "sys/fs/cgroup/a/memory.max").write_text("max\n")
    assert resources.available_memory(tmp_path) == 800 << 10


def test_what_not_every_system_has_stands_in_one_module():
    words = re.compile(r"sched_getaffinity|CDLL\(|\"/?proc/")
    for path in (Path(__file__).parents[2] / "brimful").rglob("*.py"):
        lines = [line for line in path.read_text().splitlines() if "kernel_file(" not in line]
        assert path.name == "machine.py" or not words.search("\n".join(lines)), path


def test_each_part_has_a_plain_form(monkeypatch, tmp_path):
    for module, name in ((os, "sched_getaffinity"), (machine.mmap, "MADV_DONTNEED")):
        monkeypatch.delattr(module, name, raising=False)
    assert machine.processor_name()
    assert machine.count_cores() == os.cpu_count()
    assert machine.read_kernel_file("proc/meminfo", tmp_path) is None
    assert machine.find_library_function(tmp_path / "none.so", "any") is None
    assert machine.find_library_function(None, "no_such_function") is None
    assert not resources.can_reserve_memory(tmp_path)
    half = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    assert resources.available_memory(tmp_path) == half
    file = tmp_path / "file"
    file.write_bytes(bytes(1 << 16))
    with open(file, "rb") as opened, machine.mmap.mmap(opened.fileno(), 0, access=1) as memory:
        machine.drop_pages(memory)
        assert memory[:] == bytes(1 << 16)
    assert 0 < resources.count_open_files() < 10_000
    assert resources.allow_open_files(1) is None
