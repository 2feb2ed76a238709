"""What Linux has and macOS has not stands in one module, each part with its plain form."""

import os
import re
from pathlib import Path

import pytest

from brimful.base import system
from brimful.base.resources import available_memory

ROOT = Path(__file__).parents[2]


def test_what_not_every_system_has_stands_in_one_module() -> None:
    words = re.compile(r"import (fcntl|resource)$|sched_getaffinity|CDLL\(|\"/?proc/", re.M)
    for path in (ROOT / "brimful").rglob("*.py"):
        lines = [line for line in path.read_text().splitlines() if "kernel_file(" not in line]
        assert path.name == "system.py" or not words.search("\n".join(lines)), path


def test_each_part_has_a_plain_form(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for module, name in ((os, "sched_getaffinity"), (system.mmap, "MADV_DONTNEED")):
        monkeypatch.delattr(module, name, raising=False)
    assert system.usable_cores() == os.cpu_count()
    assert system.read_kernel_file("proc/meminfo", tmp_path) is None
    assert system.find_library_function(tmp_path / "none.so", "any") is None
    assert system.find_library_function(None, "no_such_function") is None
    assert not system.can_reserve_memory(tmp_path)
    assert available_memory(tmp_path) == os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    file = tmp_path / "file"
    file.write_bytes(bytes(1 << 16))
    with open(file, "rb") as opened, system.mmap.mmap(opened.fileno(), 0, access=1) as memory:
        system.drop_pages(memory)
        assert memory[:] == bytes(1 << 16)


def test_open_files_are_counted_and_allowed() -> None:
    assert 0 < system.count_open_files() < 10_000
    assert system.allow_open_files(1) is None
