"""Reports of `doctor` about machines that are not there."""

from itertools import combinations

GIB = 1 << 30


def host(name="a", ranks=(0, 1), gpus=2):
    return {
        "name": name,
        "ranks": list(ranks),
        "processor": "EPYC",
        "cores": 16.0,
        "instructions": [],
        "memory": {"total": 64 * GIB, "available": 60 * GIB, "shared": 32 * GIB},
        "software": {
            "torch": "2.13.0",
            "python": "3.12.1",
            "cuda": "13.0",
            "rocm": None,
            "gloo": True,
            "nccl": "2.28.3",
        },
        "environment": {},
        "gpus": gpus,
        "driver": {"version": "580.1", "numbers": {str(i): i for i in range(gpus)}},
        "driver_missing": None,
        "topology": None,
    }


def gpu(rank, index):
    return {
        "rank": rank,
        "uuid": str(index),
        "device": f"cuda:{index}",
        "name": "NVIDIA H100",
        "threads": 8,
        "precision": "bf16",
        "attention": "varlen",
        "compile_lacks": None,
        "memory": {"total": 80 * 10**9, "free": 79 * 10**9},
        "visible": str(index),
        "flops_per_second": 600e12,
        "bytes_per_second": 2.8e12,
    }


def cpu(rank, threads=8):
    return {
        "rank": rank,
        "device": "cpu",
        "name": "CPU",
        "threads": threads,
        "precision": "bf16",
        "attention": "sdpa",
        "compile_lacks": None,
        "flops_per_second": 200e9,
        "bytes_per_second": 20e9,
    }


def on_gpus(hosts=((0, 1),), slow=()):
    """A report of hosts with these ranks, a GPU each; pairs in `slow` at 0.9 GB/s."""
    ranks = sum(map(len, hosts))
    return {
        "hosts": [
            host(name, members, len(members)) for name, members in zip("abcdefgh", hosts, strict=False)
        ],
        "host_of_rank": [number for number, members in enumerate(hosts) for _ in members],
        "devices": [gpu(rank, index) for members in hosts for index, rank in enumerate(members)],
        "links": {
            "pairs": [
                {"ranks": pair, "latency": 1e-5, "bytes_per_second": 0.9e9 if pair in slow else 20e9}
                for pair in combinations(range(ranks), 2)
            ],
            "at_once": False,
            "all": 20e9,
        },
        "data": [],
        "tuning": None,
        "loader": None,
    }


def on_cpu(ranks=2, threads=8):
    report = on_gpus((tuple(range(ranks)),))
    report["devices"] = [cpu(rank, threads) for rank in range(ranks)]
    report["hosts"][0] |= {"driver": None, "gpus": 0}
    return report
