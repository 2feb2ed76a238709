"""Freed memory comes back without page faults, in huge pages."""

import json
import subprocess
import sys
from resource import RLIM_INFINITY

import pytest

from brimful.base import machine
from brimful.base.resources import available_memory, can_reserve_memory
from brimful.train import freed_memory

SCRIPT = """
import json, resource, torch
from pathlib import Path
from brimful.train.freed_memory import keep_freed_memory

def read(name):
    return Path("/proc/self", name).read_text().splitlines()

def resident():
    return int(read("statm")[0].split()[1]) * resource.getpagesize()

def advised():
    total = size = 0
    for line in read("smaps"):
        if line.startswith("Size:"):
            size = int(line.split()[1]) << 10
        if line.startswith("VmFlags:") and " hg" in line:
            total += size
    return total

before = resident(), advised()
keep_freed_memory()
figures = {"advised": advised() - before[1], "resident": resident() - before[0], "faults": []}
torch.set_num_threads(1)
for size in (20, 100):
    for _ in range(12):
        torch.ones(size << 18)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(4):
        torch.ones(size << 18)
    figures["faults"].append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
print(json.dumps(figures))
"""

pytestmark = pytest.mark.skipif(
    machine.find_library_function(None, "mallopt") is None, reason="the C library is not glibc"
)


def test_a_freed_tensor_costs_no_page_faults_when_it_is_made_again():
    """Its memory is advised to be huge pages, and none is taken before it is used."""
    process = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr
    figures = json.loads(process.stdout)
    assert max(figures["faults"]) < 30
    if not can_reserve_memory() or available_memory() < 4 << 30:
        pytest.skip("no huge pages, or half of the memory is less than two blocks")
    assert figures["advised"] >= freed_memory.BLOCK_BYTES
    assert figures["resident"] < 16 << 20


def test_an_old_glibc_keeps_what_it_can(monkeypatch):
    """It refuses a large M_MMAP_THRESHOLD; M_TRIM_THRESHOLD alone would fix the other at 128 kB."""
    values = {}

    def mallopt(name: int, value: int) -> int:
        if name == freed_memory.M_MMAP_THRESHOLD and value > 32 << 20:
            return 0
        values[name] = value
        return 1

    monkeypatch.setattr(
        freed_memory, "find_library_function", lambda library, name: {"mallopt": mallopt}[name]
    )
    freed_memory.keep_freed_memory()
    assert values == {freed_memory.M_MMAP_THRESHOLD: 32 << 20, freed_memory.M_TRIM_THRESHOLD: -1}
    values.clear()
    monkeypatch.setattr(freed_memory, "OLD_MAX_BYTES", 64 << 20)
    freed_memory.keep_freed_memory()
    assert not values


@pytest.mark.parametrize(
    ("mode", "page", "limit", "perturb", "expected"),
    [
        ("0", 2 << 20, RLIM_INFINITY, "", True),
        ("2", 2 << 20, RLIM_INFINITY, "", False),
        ("0", 512 << 20, RLIM_INFINITY, "", False),
        ("0", 2 << 20, 1 << 40, "", False),
        ("0", 2 << 20, RLIM_INFINITY, "7", False),
        (None, 2 << 20, RLIM_INFINITY, "", False),
    ],
)
def test_a_heap_is_reserved_where_that_costs_nothing(
    monkeypatch, tmp_path, mode, page, limit, perturb, expected
):
    monkeypatch.setattr("resource.getrlimit", lambda _: (limit, limit))
    monkeypatch.delenv("MALLOC_PERTURB_", raising=False)
    if perturb:
        monkeypatch.setenv("MALLOC_PERTURB_", perturb)
    files = {"proc/sys/vm/overcommit_memory": mode}
    files["sys/kernel/mm/transparent_hugepage/hpage_pmd_size"] = page
    for path, value in files.items():
        if value is not None:
            (tmp_path / path).parent.mkdir(parents=True)
            (tmp_path / path).write_text(f"{value}\n")
    assert can_reserve_memory(tmp_path) == expected
