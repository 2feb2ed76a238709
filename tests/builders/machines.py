"""Reports of `doctor` about machines that are not there."""

from collections.abc import Collection, Sequence
from itertools import combinations
from typing import Any

from brimful.commands.machine_check import ranks_to_train_on


def on_gpus(
    hosts: Sequence[Sequence[int]] = ((0, 1),), slow: Collection[tuple[int, int]] = (), right: bool = True
) -> dict[str, Any]:
    """A report of hosts with these ranks, a GPU each; pairs in `slow` at 0.9 GB/s."""
    ranks = sum(map(len, hosts))
    pairs = list(combinations(range(ranks), 2))
    return {
        "collectives": "NCCL 2.28.3",
        "hosts": [
            {
                "rank": members[0],
                "name": name,
                "processor": "EPYC",
                "cores": 16.0,
                "load": 0.9,
                "stolen_cores": 0.0,
            }
            for name, members in zip("abcdefgh", hosts, strict=False)
        ],
        "devices": [
            {
                "rank": rank,
                "name": "NVIDIA H100 80GB HBM3",
                "precision": "bf16",
                "number": number,
                "memory": 80 * 10**9,
                "taken": 10**9,
                "flops": 600e12,
                "bytes": 2.8e12,
            }
            for members in hosts
            for number, rank in enumerate(members)
        ],
        "links": {
            "pairs": [
                {
                    "ranks": pair,
                    "bytes_per_second": 0.9e9 if pair in slow else 20e9,
                    "right": right,
                    "slow": pair in slow,
                }
                for pair in pairs
            ],
            "all": 20e9,
            "right": right,
            "train_on": ranks_to_train_on(ranks, set(pairs) - set(slow)),
        },
    }
