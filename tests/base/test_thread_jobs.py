"""Jobs on all CPU threads: each once, on several threads, with errors that reach the caller."""

import threading

import numpy as np
import pytest
import torch

from brimful.base import cpu_threads
from brimful.base.compiled import compiled

CPU = torch.device("cpu")


@pytest.fixture(params=[1, 2, 3])
def threads(request):
    """That many threads of torch for the test."""
    with cpu_threads.use_threads(request.param):
        yield request.param


@compiled
def add_index(part: np.ndarray) -> None:
    for i in range(len(part)):
        part[i] += i


def test_each_item_is_done_once(threads):
    out = torch.zeros(50)

    def job(place: int, x: torch.Tensor) -> None:
        out[place] += (x @ x).trace()

    for count in (0, 1, 2, 50):
        out.zero_()
        cpu_threads.run_jobs(job, [(i, torch.eye(i + 1)) for i in range(count)], device=CPU)
        assert out.tolist() == [i + 1 if i < count else 0 for i in range(50)]


def test_loops_share_their_parts(threads):
    parts = np.zeros((cpu_threads.count_workers(), 1000))
    for _ in range(20):
        cpu_threads.run_loops(add_index, [(part,) for part in parts])
    assert (parts == 20 * np.arange(1000)).all()


def test_jobs_meet_on_as_many_threads_as_there_are(threads):
    """Each job waits for the others: on fewer threads this would never end."""
    count = cpu_threads.count_workers()
    assert count == threads
    everyone, seen = threading.Barrier(count, timeout=60), set()

    def job(_: int) -> None:
        everyone.wait()
        seen.add(threading.get_ident())
        assert torch.is_inference_mode_enabled() == (count > 1)

    cpu_threads.run_jobs(job, [(i,) for i in range(count)], device=CPU)
    assert len(seen) == count


@pytest.mark.parametrize("kind", [ValueError, KeyboardInterrupt])
def test_what_a_job_raises_reaches_the_caller(threads, kind):
    def job(place: int) -> None:
        if place == 3:
            raise kind("third")

    with pytest.raises(kind, match="third"):
        cpu_threads.run_jobs(job, [(i,) for i in range(6)], device=CPU)
    cpu_threads.run_jobs(job, [(0,), (1,)], device=CPU)  # the threads are fit for the next call


def test_without_the_openmp_interface_jobs_are_done_in_order(monkeypatch):
    monkeypatch.setattr(cpu_threads, "_parallel", lambda: None)
    done = []
    cpu_threads.run_jobs(done.append, [(i,) for i in range(5)], device=CPU)
    assert done == list(range(5))


def test_a_product_within_a_job_is_that_of_one_thread(threads):
    """MKL would divide a product as for all threads."""
    x = torch.randn(3, 600, 600)
    found = torch.empty(3, 32, 32)

    def job(row: int) -> None:
        found[row] = x[row].T[:32] @ x[row][:, :32]

    cpu_threads.run_jobs(job, [(row,) for row in range(3)], device=CPU)
    assert torch.get_num_threads() == threads
    torch.set_num_threads(1)
    for row in range(3):
        assert torch.equal(found[row], x[row].T[:32] @ x[row][:, :32])
