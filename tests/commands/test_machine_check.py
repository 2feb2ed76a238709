"""A burst measures what is done; every two ranks meet once, and fast pairs join the ranks to train on."""

from itertools import combinations

import pytest
import torch

from brimful.base.distributed import World
from brimful.base.errors import BrimfulError
from brimful.commands import machine_check
from brimful.commands.machine_check import FEW_RANKS, measure_burst, ranks_to_train_on, rounds, slow_pairs

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setitem(machine_check.MATRIX_SIDE, "cpu", 64)
    monkeypatch.setitem(machine_check.COPIED_BYTES, "cpu", 1 << 20)
    monkeypatch.setattr(machine_check, "BURST_SECONDS", 0.01)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_flops_and_bytes_of_a_run(monkeypatch, dtype):
    assert all(speed > 0 for speed in measure_burst(CPU, dtype).values())

    def three_a_second(run, device):
        run()
        return 3.0

    monkeypatch.setattr(machine_check, "runs_per_second", three_a_second)
    assert measure_burst(CPU, dtype) == {"flops": 3 * 2 * 64**3, "bytes": 3 * 2 * (1 << 20)}


def test_a_device_without_memory(monkeypatch):
    def full(*_, **__):
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(torch, "randn", full)
    assert measure_burst(CPU, torch.float32) == {"flops": None, "bytes": None}


@pytest.mark.parametrize("each", [0.001, 0.03, 5.0])
def test_a_moment_of_noise_does_not_count(monkeypatch, each):
    clock, runs = [0.0], [0]
    monkeypatch.setattr(machine_check, "BURST_SECONDS", 1.0)
    monkeypatch.setattr(machine_check.time, "perf_counter", lambda: clock[0])

    def run():
        runs[0] += 1
        clock[0] += 4 * each if runs[0] == 6 else each

    assert machine_check.runs_per_second(run, CPU) == pytest.approx(1 / each)


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 7, 8, 9, 10, 17, 64])
def test_every_pair_meets_once(ranks):
    made = list(rounds(ranks))
    assert sorted(pair for pairs in made for pair in pairs) == list(combinations(range(ranks), 2))
    for pairs in made:
        busy = [rank for pair in pairs for rank in pair]
        assert len(busy) == len(set(busy))
    if ranks <= FEW_RANKS:
        assert all(len(pairs) == 1 for pairs in made)
    else:
        assert len(made) == ranks - 1 + ranks % 2
        assert all(len(pairs) == ranks // 2 for pairs in made)


def test_ranks_that_do_not_reach_each_other_are_named(monkeypatch):
    def refuse(*args, **options):
        raise RuntimeError("Connect timeout [10.0.0.2]:4711\nand a long trace")

    monkeypatch.setattr(machine_check.dist, "new_group", refuse)
    monkeypatch.setattr(World, "barrier", lambda world: None)
    with pytest.raises(BrimfulError) as raised:
        list(machine_check.measure_links(World(1, 2, torch.device("cpu"))))
    assert str(raised.value).startswith(
        "ranks 0 and 1 do not reach each other: Connect timeout [10.0.0.2]:4711;"
    )
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("hosts", "slow"),
    [
        # Eight of fifteen pairs use the network: it is slow against the pairs within hosts.
        ("aaaabb", {(a, b) for a in range(4) for b in (4, 5)}),
        ("aaa", {(0, 2), (1, 2)}),
        ("aa", set()),
    ],
)
def test_slow_pairs_are_those_far_below_the_faster_median(hosts, slow):
    pairs = list(combinations(range(len(hosts)), 2))
    speeds = {pair: 0.9e9 if pair in slow else 20e9 for pair in pairs}
    if hosts == "aaa":  # of a host's own pairs the median is the slow one, so nothing stands out
        assert slow_pairs(speeds, hosts) == set()
        speeds |= {(0, 2): 20e9}
        slow = {(1, 2)}
    assert slow_pairs(speeds, hosts) == slow


@pytest.mark.parametrize(
    ("ranks", "good", "chosen"),
    [
        (1, set(), [0]),
        (3, set(), [0]),
        (6, {(0, 1), (1, 2), (2, 3), (4, 5)}, [0, 1, 2, 3]),  # take these four
        (5, {(0, 1), (3, 4)}, [0, 1]),
        (5, {(2, 4), (3, 4)}, [2, 3, 4]),
    ],
)
def test_the_largest_set_that_good_pairs_join(ranks, good, chosen):
    assert ranks_to_train_on(ranks, good) == chosen
