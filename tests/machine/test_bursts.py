"""A burst measures what is done, and a slow device stands out."""

import pytest
import torch

from brimful.machine import bursts
from brimful.machine.bursts import burst, slow_ones

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setitem(bursts.SIDE, "cpu", 64)
    monkeypatch.setitem(bursts.BYTES, "cpu", 1 << 20)
    monkeypatch.setattr(bursts, "SECONDS", 0.01)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_flops_and_bytes_of_a_run(monkeypatch, dtype):
    assert all(speed > 0 for speed in burst(CPU, dtype).values())

    def three_a_second(run, device):
        run()
        return 3.0

    monkeypatch.setattr(bursts, "_rate", three_a_second)
    assert burst(CPU, dtype) == {"flops": 3 * 2 * 64**3, "bytes": 3 * 2 * (1 << 20)}


def test_a_device_without_memory(monkeypatch):
    def full(*_, **__):
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(torch, "randn", full)
    assert burst(CPU, torch.float32) == {"flops": None, "bytes": None}


@pytest.mark.parametrize("each", [0.001, 0.03, 5.0])
def test_a_moment_of_noise_does_not_count(monkeypatch, each):
    clock, runs = [0.0], [0]
    monkeypatch.setattr(bursts, "SECONDS", 1.0)
    monkeypatch.setattr(bursts.time, "perf_counter", lambda: clock[0])

    def run():
        runs[0] += 1
        clock[0] += 4 * each if runs[0] == 6 else each

    assert bursts._rate(run, CPU) == pytest.approx(1 / each)


@pytest.mark.parametrize(
    ("speeds", "slow"),
    [
        ([10.0], []),
        ([10.0, 9.0], []),
        ([10.0, 8.0], [1]),
        ([10.0, 10.0, 5.0, 10.0], [2]),
        ([5.0, 5.0, 10.0, 10.0], [0, 1]),  # two hosts, one of them slow
        ([10.0, 10.0, 10.0, 100.0], []),
    ],
)
def test_slow_ones(speeds, slow):
    assert slow_ones(speeds) == slow
