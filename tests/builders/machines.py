"""Reports of `doctor` about machines that are not there."""

from collections.abc import Sequence
from typing import Any


def on_gpus(hosts: Sequence[Sequence[int]] = ((0, 1),)) -> dict[str, Any]:
    """A report of hosts with these ranks, a GPU each."""
    return {
        "hosts": [
            {
                "rank": members[0],
                "name": name,
                "processor": "EPYC",
                "cores": 16.0,
                "load": 0.9,
                "stolen_cores": 0.0,
                "memory": 64 * 10**9,
                "disk": 500 * 10**9,
                "versions": {"python": "3.11.7", "torch": "2.13.0"},
                "lacks": None,
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
            }
            for members in hosts
            for number, rank in enumerate(members)
        ],
        "wrong_sums": [],
    }
