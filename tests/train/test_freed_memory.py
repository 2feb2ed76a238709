"""Freed memory comes back without page faults, in huge pages."""

import resource
import subprocess
import sys

import pytest

from brimful.base import machine
from brimful.base.resources import available_memory, can_reserve_memory
from brimful.train import freed_memory

CODE = """
import resource, sys, torch
from brimful.train.freed_memory import keep_freed_memory
if sys.argv[1] == "kept":
    keep_freed_memory()
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
    assert process.returncode == 0, process.stderr
    return [int(line) for line in process.stdout.split()]


pytestmark = pytest.mark.skipif(
    machine.find_library_function(None, "mallopt") is None, reason="the C library is not glibc"
)


@pytest.mark.slow
def test_a_freed_tensor_costs_no_page_faults_when_it_is_made_again():
    assert max(page_faults("kept")) < 30
    assert page_faults("given back")[1] > 4 * 45  # pages of 2 MiB at most


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


HEAP = """
import resource, sys, torch
from pathlib import Path
from brimful.train.freed_memory import keep_freed_memory
def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
def advised():
    sizes, size = 0, 0
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if line.startswith("Size:"):
            size = int(line.split()[1]) << 10
        if line.startswith("VmFlags:") and " hg" in line:
            sizes += size
    return sizes
if sys.argv[1] == "limited":
    resource.setrlimit(resource.RLIMIT_AS, (1 << 40, 1 << 40))
before = resident(), advised()
keep_freed_memory()
print(advised() - before[1], resident() - before[0])
tensor = torch.ones(100 << 18)
addresses = [line.split()[0].split("-") for line in Path("/proc/self/maps").read_text().splitlines()
             if "[heap]" in line]
print(any(int(a, 16) <= tensor.data_ptr() < int(b, 16) for a, b in addresses))
"""


def heap_of_a_process(how: str) -> tuple[int, int, bool]:
    """Bytes that are advised, bytes that this takes, and whether a tensor of 100 MiB is in the heap then."""
    process = subprocess.run([sys.executable, "-c", HEAP, how], capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr
    advised, taken, in_heap = process.stdout.split()
    return int(advised), int(taken), in_heap == "True"


@pytest.mark.skipif(available_memory() < 4 << 30, reason="half of the memory is less than two blocks")
@pytest.mark.skipif(not can_reserve_memory(), reason="this system has no huge pages, or limits addresses")
def test_the_heap_is_advised_and_takes_no_memory_before_it_is_used():
    advised, taken, in_heap = heap_of_a_process("free")
    assert advised >= freed_memory.BLOCK_BYTES
    assert taken < 16 << 20
    assert in_heap


def test_a_process_whose_addresses_are_limited_reserves_none():
    advised, _, _ = heap_of_a_process("limited")
    assert advised == 0


@pytest.mark.parametrize(
    ("mode", "page", "perturbed", "expected"),
    [
        ("0", 2 << 20, False, True),
        ("1", 2 << 20, False, True),
        ("2", 2 << 20, False, False),
        ("0", 512 << 20, False, False),
        ("0", 2 << 20, True, False),
        ("0", None, False, False),
        (None, 2 << 20, False, False),
    ],
)
def test_a_heap_is_reserved_where_that_costs_nothing(monkeypatch, tmp_path, mode, page, perturbed, expected):
    monkeypatch.setattr("resource.getrlimit", lambda limit: (resource.RLIM_INFINITY,) * 2)
    monkeypatch.delenv("MALLOC_PERTURB_", raising=False)
    if perturbed:
        monkeypatch.setenv("MALLOC_PERTURB_", "7")
    folders = {"proc/sys/vm/overcommit_memory": mode}
    folders["sys/kernel/mm/transparent_hugepage/hpage_pmd_size"] = page
    for path, value in folders.items():
        if value is not None:
            (tmp_path / path).parent.mkdir(parents=True)
            (tmp_path / path).write_text(f"{value}\n")
    assert can_reserve_memory(tmp_path) == expected
