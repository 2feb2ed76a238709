"""Freed memory comes back without page faults."""

import subprocess
import sys

import pytest

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
    assert page_faults("given back")[1] > 4 * 100 * 100  # 4 kB pages, or a mixture with larger ones
