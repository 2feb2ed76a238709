"""A burst measures what is done, and a slow device stands out."""

import pytest
import torch

from brimful.machine import bursts
from brimful.machine.bursts import compute_speed, memory_speed, slow_ones

CPU = torch.device("cpu")


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setitem(bursts.SIDE, "cpu", 64)
    monkeypatch.setitem(bursts.BYTES, "cpu", 1 << 20)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_flops_and_bytes_of_a_run(monkeypatch, dtype):
    def three_a_second(run, device, seconds):
        run()
        return 3.0

    monkeypatch.setattr(bursts, "_rate", three_a_second)
    assert compute_speed(CPU, dtype) == 3 * 2 * 64**3
    assert memory_speed(CPU) == 3 * 2 * (1 << 20)


@pytest.mark.usefixtures("small")
def test_real_bursts():
    assert compute_speed(CPU, torch.float32, 0.01) > 0
    assert memory_speed(CPU, 0.01) > 0


@pytest.mark.parametrize("each", [0.001, 0.03, 5.0])
def test_a_moment_of_noise_does_not_count(monkeypatch, each):
    clock, runs = [0.0], [0]
    monkeypatch.setattr(bursts.time, "perf_counter", lambda: clock[0])

    def run():
        runs[0] += 1
        clock[0] += 4 * each if runs[0] == 6 else each

    assert bursts._rate(run, CPU, 1.0) == pytest.approx(1 / each)
    assert clock[0] < 1.2 + 10 * each  # a slow device does not take minutes


def test_little_memory_takes_smaller_arrays(monkeypatch):
    made = []
    monkeypatch.setattr(bursts, "available_memory", lambda: 8 << 20)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    ones = torch.ones
    monkeypatch.setattr(torch, "ones", lambda size, **rest: made.append(size) or ones(size, **rest))
    memory_speed(CPU, 0.01)
    assert made == [1 << 20]


@pytest.mark.parametrize(
    ("speeds", "slow"),
    [
        ([], []),
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
