"""Reports of `doctor` about machines that are not there."""

from collections.abc import Collection, Sequence
from itertools import combinations
from typing import Any

from brimful.machine.links import ranks_to_train_on


def on_gpus(
    hosts: Sequence[Sequence[int]] = ((0, 1),), slow: Collection[tuple[int, int]] = (), right: bool = True
) -> dict[str, Any]:
    """A report of hosts with these ranks, a GPU each; pairs in `slow` at 0.9 GB/s."""
    ranks = sum(map(len, hosts))
    pairs = list(combinations(range(ranks), 2))
    return {
        "hosts": [
            {
                "name": name,
                "ranks": list(members),
                "processor": "EPYC",
                "cores": 16.0,
                "busy_cores": 0.4,
                "stolen_cores": 0.0,
                "load": 0.9,
                "collectives": "NCCL 2.28.3",
                "gpus": {str(i): (i, 0) for i in range(len(members))},
                "kinds": [
                    {"gpus": pair, "kind": "NV18" if pair[1] < 2 else "SYS"}
                    for pair in combinations(range(len(members)), 2)
                ],
                "missing": None,
            }
            for name, members in zip("abcdefgh", hosts, strict=False)
        ],
        "devices": [
            {
                "rank": rank,
                "name": "NVIDIA H100 80GB HBM3",
                "precision": "bf16",
                "number": number,
                "busy": 0,
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
        "data": None,
    }
