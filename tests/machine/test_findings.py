"""Each finding from a report that has its problem, and none from a sound one."""

from copy import deepcopy
from itertools import combinations

import pytest

from brimful.machine.findings import find_problems, giga
from builders.machines import on_cpu, on_gpus


def found(report):
    return [(finding.kind, finding.message) for finding in find_problems(report)]


@pytest.mark.parametrize("report", [on_gpus(), on_gpus(((0, 1), (2, 3))), on_cpu(), on_cpu(1, 8)])
def test_a_sound_run_has_none(report):
    before = deepcopy(report)
    assert found(report) == []
    assert report == before


def one(report):
    (finding,) = found(report)
    assert "\n" not in finding[1]
    return finding


def test_six_cards_on_two_hosts():
    hosts = ((0, 1, 2, 3), (4, 5))
    slow = [pair for pair in combinations(range(6), 2) if pair[0] < 4 <= pair[1]]
    assert one(on_gpus(hosts, slow)) == (
        "slow_links",
        "ranks 4, 5 (b) reach others at 0.9 GB/s (8 of 15 pairs), the rest at 20: the gradients of 100 M"
        " parameters take 0.74 s an update instead of 0.033. Unless that is little of an update, train on"
        " ranks 0-3 (a) (CUDA_VISIBLE_DEVICES=0,1,2,3 torchrun --nproc-per-node 4), or look at the network"
        " (NCCL_DEBUG=INFO says which interface is used)",
    )


def test_one_bad_card_of_a_host():
    report = on_gpus(((0, 1, 2, 3),), [(0, 1), (1, 2), (1, 3)])
    kind, message = one(report)
    assert kind == "slow_links"
    assert message.startswith("rank 1 reaches others at 0.9 GB/s (3 of 6 pairs)")
    assert "train on ranks 0, 2, 3 (CUDA_VISIBLE_DEVICES=0,2,3 torchrun --nproc-per-node 3)" in message


def test_ranks_on_several_hosts_have_no_single_command():
    hosts = ((0, 1), (2, 3), (4, 5))
    slow = [pair for pair in combinations(range(6), 2) if pair[0] < 4 <= pair[1]]
    _, message = one(on_gpus(hosts, slow))
    assert "train on ranks 0, 1 (a), 2, 3 (b), or look" in message


def test_gloo_is_told_its_own_variable():
    report = on_cpu(4, 4)
    for pair in report["links"]["pairs"]:
        pair["bytes_per_second"] = 0.02e9 if 3 in pair["ranks"] else 1e9
    kind, message = one(report)
    assert kind == "slow_links"
    assert "GLOO_SOCKET_IFNAME" in message
    assert "train on ranks 0-2 (torchrun --nproc-per-node 3)" in message


def test_a_slow_device_is_named():
    report = on_gpus(((0, 1), (2, 3)))
    report["devices"][3] |= {"flops_per_second": 400e12, "bytes_per_second": 1.4e12}
    kind, message = one(report)
    assert kind == "slow_device"
    assert message.startswith(
        "rank 3 (b, cuda:1) computes at 400,000 GFLOP/s, the fastest at 600,000; it copies memory at 1,400"
        " GB/s, the fastest at 2,800."
    )


def test_a_device_is_compared_with_its_kind():
    report = on_gpus()
    report["devices"][1] |= {"name": "NVIDIA T4", "precision": "fp16", "flops_per_second": 40e12}
    kinds = [kind for kind, _ in found(report)]
    assert kinds == ["different", "different"]
    assert "NVIDIA H100 on rank 0; NVIDIA T4 on rank 1" in found(report)[0][1]


def change(report, part, values):
    """The report with `values` in a host (`hosts`) or a device (`devices`): the last one."""
    for key, value in values.items():
        inner = report[part][-1]
        inner[key] = inner[key] | value if isinstance(value, dict) else value
    return report


@pytest.mark.parametrize(
    ("report", "kind", "said"),
    [
        (change(on_gpus(), "hosts", {"gpus": 4}), "idle_gpus", "a has 4 GPUs for 2 ranks"),
        (
            change(on_gpus(), "devices", {"memory": {"free": 20 * 10**9}}),
            "memory_taken",
            "rank 1 (cuda:1): 60 of 80 GB are taken",
        ),
        (
            change(on_gpus(), "hosts", {"memory": {"shared": 64 << 20}}),
            "shared_memory",
            "a: /dev/shm has 67 MB left",
        ),
        (
            change(on_gpus(), "hosts", {"environment": {"NCCL_P2P_DISABLE": "1"}}),
            "variable",
            "NCCL_P2P_DISABLE=1",
        ),
        (
            change(on_gpus(), "devices", {"compile_lacks": "a compiler, and gcc was not found"}),
            "compiler",
            "steps run eagerly: compiling needs a compiler, and gcc was not found",
        ),
        (
            change(on_gpus(((0, 1), (2, 3))), "hosts", {"software": {"nccl": "2.27.5"}}),
            "different",
            "hosts differ in NCCL: 2.28.3 on a, 2.27.5 on b",
        ),
        (
            change(on_gpus(((0, 1), (2, 3))), "hosts", {"environment": {"NCCL_ALGO": "Ring"}}),
            "different",
            "hosts differ in NCCL_ALGO: not set on a, Ring on b",
        ),
        (
            change(on_gpus(), "devices", {"flops_per_second": None}),
            "no_memory",
            "rank 1 (cuda:1) has too little",
        ),
        (
            on_cpu(2, 2),
            "threads",
            "a computes with 4 threads in 2 ranks on 16 cores, less than half of them: set",
        ),
        (on_cpu(2, 16), "threads", "on 16 cores, more than there are: set OMP_NUM_THREADS=8"),
        (on_cpu(17, 1), "threads", "more than there are: start at most 16 ranks there"),
        (
            on_cpu() | {"data": [{"path": "data", "rows": 1}]},
            "little_data",
            "data fills about 1 row, fewer than there are ranks (2)",
        ),
    ],
)
def test_each_problem_has_its_line(report, kind, said):
    got, message = one(report)
    assert got == kind
    assert said in message


def test_gpus_that_torch_does_not_see():
    report = on_cpu()
    report["hosts"][0]["driver"] = {"version": "470.1", "numbers": {"x": 0}}
    kind, message = one(report)
    assert kind == "gpu_not_used"
    assert (
        "a has 1 GPU, and torch sees none: look at CUDA_VISIBLE_DEVICES, and whether driver 470.1" in message
    )
    report["hosts"][0]["software"] |= {"cuda": None, "torch": "2.13.0+cpu"}
    assert "torch 2.13.0+cpu is a build without CUDA" in one(report)[1]


def test_giga_has_three_digits():
    assert [giga(n) for n in (0.0238e9, 1.4e9, 20e9, 123.4e9, 600e12)] == [
        "0.0238",
        "1.4",
        "20",
        "123",
        "600,000",
    ]


def test_hosts_may_name_their_interfaces():
    report = change(on_gpus(((0, 1), (2, 3))), "hosts", {"environment": {"NCCL_SOCKET_IFNAME": "ens3"}})
    assert found(report) == []
