"""Freed memory comes back without page faults."""

import subprocess
import sys
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

    monkeypatch.setattr(memory.sys, "platform", "linux")
    monkeypatch.setattr(memory.ctypes, "CDLL", lambda name: SimpleNamespace(mallopt=mallopt))
    assert memory.keep_freed_memory()
    assert values == {memory.M_MMAP_THRESHOLD: 32 << 20, memory.M_TRIM_THRESHOLD: 2**31 - 1}
    values.clear()
    monkeypatch.setattr(memory, "MOST_OF_OLD", 64 << 20)
    assert not memory.keep_freed_memory()
    assert not values
