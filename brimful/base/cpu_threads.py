"""Small jobs on torch's own threads, for steps on a CPU.

An operation of 30 microseconds gains nothing from OpenMP: one thread for each job is faster than all threads
for each operation, and a job's result does not depend on the number of threads, to the last bit. The jobs run
on the threads of torch's OpenMP runtime. These spin between two operations, so other threads would compete
with them.
"""

import ctypes
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import torch

from brimful.base.machine import find_library_function

MAX_JOBS = 8
"""The most jobs at the same time: more threads would wait for the interpreter lock."""

_Region = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


@cache
def _parallel() -> Any:
    """GOMP_parallel of the OpenMP runtime that torch is linked with; None if it has another interface."""
    function = find_library_function(Path(torch.__file__).parent / "lib/libtorch_cpu.so", "GOMP_parallel")
    if function is not None:
        function.argtypes, function.restype = [_Region, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint], None
    return function


@contextmanager
def use_threads(count: int) -> Iterator[None]:
    """Inside this context the calling thread's torch operations use `count` threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def count_workers() -> int:
    """Return the number of jobs that `run_jobs` does at the same time on the CPU."""
    return 1 if _parallel() is None else min(torch.get_num_threads(), MAX_JOBS)


def run_jobs(job: Callable[..., None], items: Iterable[tuple], *, device: torch.device) -> None:
    """Call `job(*item)` for every item, without autograd: in parallel on the CPU, in order elsewhere.

    Jobs must be independent, and write their results into existing tensors.
    """
    if device.type != "cpu" or count_workers() == 1:
        for item in items:
            job(*item)
        return

    def run_on_one_thread(*item: Any) -> None:
        torch.set_num_threads(1)  # otherwise MKL divides its work for several threads
        with torch.inference_mode():
            job(*item)

    with use_threads(torch.get_num_threads()):  # restores the number that a job changes
        run_loops(run_on_one_thread, list(items))


def run_loops(loop: Callable[..., None], items: Sequence[tuple]) -> None:
    """Call a compiled loop, which needs no interpreter lock, for every item, in parallel."""
    if len(items) == 1 or count_workers() == 1:
        for item in items:
            loop(*item)
        return
    queue = iter(items)  # shared: each item goes to the thread that asks first
    seats = iter(range(MAX_JOBS))
    failures = []

    def drain(_: Any) -> None:
        try:
            for _ in seats:
                for item in queue:
                    loop(*item)
                return
        except BaseException as failure:  # ctypes would print it and go on
            failures.append(failure)

    # As many threads as torch's operations have, since the runtime ends unused threads.
    _parallel()(_Region(drain), None, torch.get_num_threads(), 0)
    if failures:
        raise failures[0]
