"""Many small tensor jobs on all CPU threads: one thread for each job, not all threads for each operation.

An operation of 30 microseconds gains nothing from OpenMP. On shared cores it loses much, since every barrier
waits for the slowest thread (measured with 2 threads on 2 busy cores: 6 times slower than this). A job's
result also does not depend on the number of threads, to the last bit.
"""

import os
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from functools import cache

import torch

MOST = 8
"""More threads than this would wait for the interpreter lock."""


@cache
def _pool(workers: int, process: int) -> ThreadPoolExecutor:
    """Threads with single-threaded operations. `process` is the cache key: a fork has no threads."""
    threads = torch.get_num_threads()
    started = threading.Barrier(workers)

    def start() -> None:
        torch.get_num_threads()  # initializes the thread; its first operation would undo the next line
        torch.set_num_threads(1)
        started.wait()

    pool = ThreadPoolExecutor(workers, thread_name_prefix="brimful", initializer=start)
    wait([pool.submit(int) for _ in range(workers)])
    torch.set_num_threads(threads)  # the workers' calls changed the default of new threads
    return pool


def workers() -> int:
    """How many jobs `run` does at the same time on the CPU."""
    return min(torch.get_num_threads(), MOST)


def run(job: Callable[..., None], items: Iterable[tuple], *, device: torch.device) -> None:
    """Call `job(*item)` for every item, without autograd: in parallel on the CPU, in order elsewhere.

    Jobs must be independent, and write their results into existing tensors.
    """
    queue = iter(list(items))
    if device.type != "cpu" or workers() == 1:
        for item in queue:
            job(*item)
        return

    def drain() -> None:
        with torch.inference_mode():
            for item in queue:  # shared: each item goes to the thread that asks first
                job(*item)

    for done in [_pool(workers(), os.getpid()).submit(drain) for _ in range(workers())]:
        done.result()


def run_loops(loop: Callable[..., None], items: Sequence[tuple]) -> None:
    """Call a compiled loop, which needs no interpreter lock, for every item; this thread takes the first one.

    The items are as many as `workers`, or fewer.
    """
    others = [_pool(workers(), os.getpid()).submit(loop, *item) for item in items[1:]]
    for item in items[:1]:
        loop(*item)
    for done in others:
        done.result()
