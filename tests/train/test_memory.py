"""Freed memory comes back without page faults, in huge pages."""

import resource
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from brimful.train import memory

CODE = """
import resource, sys, torch
from brimful.train.memory import keep_freed_memory
if sys.argv[1] == "kept" and not keep_freed_memory():
    sys.exit(3)
torch.set_num_threads(1)
def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for size in (20, 100):
    for _ in range(12):
        torch.ones(size << 18)
    before = faults()
    for _ in range(4):
        torch.ones(size << 18)
    print(faults() - before)
"""


def page_faults(how: str) -> list[int]:
    """Of four tensors of 20 MiB and four of 100 MiB, made and freed in turns."""
    process = subprocess.run([sys.executable, "-c", CODE, how], capture_output=True, text=True, check=False)
    if process.returncode == 3:
        pytest.skip("the C library is not glibc")
    assert process.returncode == 0, process.stderr
    return [int(line) for line in process.stdout.split()]


def test_a_freed_tensor_costs_no_page_faults_when_it_is_made_again():
    assert max(page_faults("kept")) < 100
    assert page_faults("given back")[1] > 4 * 45  # pages of 2 MiB at most


def test_an_old_glibc_keeps_what_it_can(monkeypatch):
    """It refuses a large M_MMAP_THRESHOLD; M_TRIM_THRESHOLD alone would fix the other at 128 kB."""
    values = {}

    def mallopt(name: int, value: int) -> int:
        if name == memory.M_MMAP_THRESHOLD and value > 32 << 20:
            return 0
        values[name] = value
        return 1

    monkeypatch.setattr(memory, "_addresses_are_limited", lambda: True)
    monkeypatch.setattr(memory.sys, "platform", "linux")
    monkeypatch.setattr(memory.ctypes, "CDLL", lambda name: SimpleNamespace(mallopt=mallopt))
    assert memory.keep_freed_memory()
    assert values == {memory.M_MMAP_THRESHOLD: 32 << 20, memory.M_TRIM_THRESHOLD: -1}
    values.clear()
    monkeypatch.setattr(memory, "MOST_OF_OLD", 64 << 20)
    assert not memory.keep_freed_memory()
    assert not values


HEAP = """
import resource, sys, torch
from pathlib import Path
from brimful.train.memory import keep_freed_memory
resident = lambda: int(Path("/proc/self/statm").read_text().split()[1])
def size():
    areas = [line.split()[0] for line in Path("/proc/self/maps").read_text().splitlines() if "[heap]" in line]
    ends = [int(end, 16) for area in areas for end in area.split("-")]
    return max(ends) - min(ends)
if sys.argv[1] == "limited":
    resource.setrlimit(resource.RLIMIT_AS, (1 << 40, 1 << 40))
before = resident()
if not keep_freed_memory():
    sys.exit(3)
print("reserved" if size() >= 1 << 30 else "not reserved")
print((resident() - before) * resource.getpagesize())
tensor = torch.ones(100 << 18)
fields = Path("/proc/self/smaps_rollup").read_text()
print(int(fields.split("AnonHugePages:")[1].split()[0]) << 10)
"""


def heap_of_a_process(how: str) -> list[str]:
    """Whether its heap is reserved, the bytes that this takes, and the bytes in huge pages afterwards."""
    process = subprocess.run([sys.executable, "-c", HEAP, how], capture_output=True, text=True, check=False)
    if process.returncode == 3:
        pytest.skip("the C library is not glibc")
    assert process.returncode == 0, process.stderr
    return process.stdout.split("\n")


@pytest.mark.skipif(memory.available_memory() < 4 << 30, reason="half of the memory is less than two blocks")
@pytest.mark.skipif(memory._addresses_are_limited(), reason="reserved memory counts as used here")
def test_a_tensor_is_in_huge_pages_and_the_reserved_heap_takes_no_memory():
    reserved, taken, huge, _ = heap_of_a_process("free")
    assert reserved == "reserved"
    assert int(taken) < 16 << 20
    modes = Path("/sys/kernel/mm/transparent_hugepage/enabled")
    if not modes.exists() or "[never]" in modes.read_text():
        pytest.skip("this system has no huge pages")
    assert int(huge) > 80 << 20


def test_a_process_whose_addresses_are_limited_reserves_none():
    reserved, *_ = heap_of_a_process("limited")
    assert reserved == "not reserved"


@pytest.mark.parametrize(("mode", "limited"), [("0", False), ("1", False), ("2", True), (None, True)])
def test_reserved_memory_counts_where_the_system_promises_no_more_than_it_has(
    monkeypatch, tmp_path, mode, limited
):
    monkeypatch.setattr(memory.resource, "getrlimit", lambda limit: (resource.RLIM_INFINITY,) * 2)
    if mode is not None:
        (tmp_path / "proc/sys/vm").mkdir(parents=True)
        (tmp_path / "proc/sys/vm/overcommit_memory").write_text(f"{mode}\n")
    assert memory._addresses_are_limited(tmp_path) == limited
