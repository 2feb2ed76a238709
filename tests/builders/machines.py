"""Reports of `doctor` about machines that are not there."""

from collections.abc import Sequence
from copy import deepcopy
from typing import Any

HOST = {"processor": "EPYC", "cores": 16.0, "load": 0.9, "stolen_cores": 0.0, "lacks": None}
HOST |= {"memory": 64 * 10**9, "disk": 500 * 10**9, "versions": {"python": "3.11.7", "torch": "2.13.0"}}
GPU = {"name": "NVIDIA H100 80GB HBM3", "precision": "bf16", "flops": 600e12}
GPU |= {"memory": 80 * 10**9, "taken": 10**9}


def on_gpus(hosts: Sequence[Sequence[int]] = ((0, 1),)) -> dict[str, Any]:
    named = zip("abcdefgh", hosts, strict=False)
    ranks = [(rank, number) for members in hosts for number, rank in enumerate(members)]
    return {
        "hosts": [{**deepcopy(HOST), "rank": members[0], "name": name} for name, members in named],
        "devices": [{**GPU, "rank": rank, "number": number} for rank, number in ranks],
        "wrong_sums": [],
    }
