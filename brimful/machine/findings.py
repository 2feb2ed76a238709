"""What is wrong with the machines of a run, each in one line: what, where, and what to do about it."""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from brimful.console import counted
from brimful.machine.advice import Speeds, ranks_without, reference_speed, slow_pairs
from brimful.machine.bursts import slow_ones
from brimful.machine.host import slowing
from brimful.machine.topology import ranges

Report = dict[str, Any]
"""What `brimful doctor` returns, without `findings`: see `brimful.commands.doctor.doctor`."""

TAKEN = 0.2
"""The fraction of a GPU's memory that others may hold without being named."""
SHARED_BYTES = 1 << 30
"""What NCCL may need of /dev/shm on a host with several ranks."""
OF_A_HOST = ("NCCL_SOCKET_IFNAME", "NCCL_IB_HCA", "NCCL_TOPO_FILE", "NCCL_DEBUG_FILE", "NCCL_HOSTID")
"""Variables that name something of a host, and may differ."""
PARAMETERS = 100_000_000
"""A model whose gradients make a link's speed tangible."""


@dataclass(frozen=True)
class Finding:
    """`kind` is for programs, `message` for people."""

    kind: str
    message: str


def find_problems(report: Report) -> list[Finding]:
    """All findings, in the order in which a person would act on them."""
    checks: list[Callable[[Report], Iterator[Finding]]] = [
        _no_cuda,
        _differences,
        _idle_gpus,
        _taken_memory,
        _threads,
        _variables,
        _shared_memory,
        _compiler,
        _slow_devices,
        _slow_links,
        _little_data,
    ]
    return [finding for check in checks for finding in check(report)]


def _no_cuda(report: Report) -> Iterator[Finding]:
    for host in report["hosts"]:
        if host["driver"] is None or any(one["device"] != "cpu" for one in _devices(report, host)):
            continue
        software = host["software"]
        gpus = counted(len(host["driver"]["numbers"]), "GPU")
        if software["cuda"] is None and software["rocm"] is None:
            message = (
                f"{host['name']} has {gpus}, and torch {software['torch']} is a build without CUDA:"
                " pip install torch from the default index (pytorch.org/get-started)"
            )
        else:
            message = (
                f"{host['name']} has {gpus}, and torch sees none: look at CUDA_VISIBLE_DEVICES, and whether"
                f" driver {host['driver']['version']} is new enough for CUDA {software['cuda']}"
            )
        yield Finding("gpu_not_used", message)


def _differences(report: Report) -> Iterator[Finding]:
    """Ranks that are not alike: the slowest or the oldest decides for all."""
    devices = report["devices"]
    compared = {
        "device": [one["name"] for one in devices],
        "number format": [one["precision"] for one in devices],
    }
    for what, values in compared.items():
        if len(set(values)) > 1:
            parts = [f"{value} on {_ranks(devices, values, value)}" for value in dict.fromkeys(values)]
            yield Finding("different", f"ranks differ in their {what}: {'; '.join(parts)}")
    hosts = report["hosts"]
    for what, each in (
        ("torch", [host["software"]["torch"] for host in hosts]),
        ("NCCL", [host["software"]["nccl"] for host in hosts]),
        ("driver", [host["driver"] and host["driver"]["version"] for host in hosts]),
    ):
        if len(set(each)) > 1:
            parts = [f"{value or 'none'} on {host['name']}" for host, value in zip(hosts, each, strict=True)]
            yield Finding("different", f"hosts differ in {what}: {', '.join(parts)}; install the same")
    for name in sorted({name for host in hosts for name in host["environment"]}):
        each = [host["environment"].get(name) for host in hosts]
        if name.startswith("NCCL_") and name not in OF_A_HOST and len(set(each)) > 1:
            parts = [
                f"{value or 'not set'} on {host['name']}" for host, value in zip(hosts, each, strict=True)
            ]
            yield Finding("different", f"hosts differ in {name}: {', '.join(parts)}; set it alike")


def _ranks(devices: Sequence[dict[str, Any]], values: Sequence[str], value: str) -> str:
    return named({one["rank"] for one, other in zip(devices, values, strict=True) if other == value})


def _idle_gpus(report: Report) -> Iterator[Finding]:
    for host in report["hosts"]:
        if host["gpus"] > len(host["ranks"]):
            ranks = counted(len(host["ranks"]), "rank")
            yield Finding(
                "idle_gpus",
                f"{host['name']} has {host['gpus']} GPUs for {ranks}, and a rank trains on one: torchrun"
                f" --nproc-per-node {host['gpus']} -m brimful ... uses all, and with doctor measures the"
                " links between them",
            )


def _taken_memory(report: Report) -> Iterator[Finding]:
    for one in report["devices"]:
        memory = one.get("memory")
        if memory and memory["free"] < (1 - TAKEN) * memory["total"]:
            taken, total = giga(memory["total"] - memory["free"]), giga(memory["total"])
            yield Finding(
                "memory_taken",
                f"{_place(report, one)}: {taken} of {total} GB are taken; nvidia-smi names the"
                " processes that hold them",
            )


def _threads(report: Report) -> Iterator[Finding]:
    for host in report["hosts"]:
        threads = [one["threads"] for one in _devices(report, host) if one["device"] == "cpu"]
        cores, ranks = max(1, int(host["cores"])), len(threads)
        if not threads:
            continue
        fitting = max(1, cores // ranks)
        todo = f"set OMP_NUM_THREADS={fitting}"
        if sum(threads) > cores:
            problem = "more than there are"
            if ranks > cores:
                todo = f"start at most {counted(cores, 'rank')} there"
        elif 2 * max(threads) < fitting:  # two logical cores may share what one thread computes with
            problem = "less than half of them"
        else:
            continue
        yield Finding(
            "threads",
            f"{host['name']} computes with {counted(sum(threads), 'thread')} in {counted(ranks, 'rank')} on"
            f" {counted(cores, 'core')}, {problem}: {todo}",
        )


def _variables(report: Report) -> Iterator[Finding]:
    lines = {line: None for host in report["hosts"] for line in slowing(host["environment"])}
    for line in lines:
        yield Finding("variable", line)


def _shared_memory(report: Report) -> Iterator[Finding]:
    for host in report["hosts"]:
        on_gpus = [one for one in _devices(report, host) if one["device"] != "cpu"]
        shared = host["memory"]["shared"]
        if len(on_gpus) > 1 and shared is not None and shared < SHARED_BYTES:
            yield Finding(
                "shared_memory",
                f"{host['name']}: /dev/shm has {shared / 1e6:,.0f} MB left, and NCCL may need a gigabyte:"
                " start the container with --shm-size=8g or --ipc=host",
            )


def _compiler(report: Report) -> Iterator[Finding]:
    """A CPU's steps run eagerly by default, so nothing is lost there."""
    for lack in dict.fromkeys(one["compile_lacks"] for one in report["devices"] if one["device"] != "cpu"):
        if lack:
            yield Finding("compiler", f"steps run eagerly: compiling needs {lack}")


def _slow_devices(report: Report) -> Iterator[Finding]:
    for name in dict.fromkeys(one["name"] for one in report["devices"]):
        alike = [one for one in report["devices"] if one["name"] == name]
        said: dict[str, list[str]] = {}
        for key, what, unit in (
            ("flops_per_second", "computes", "GFLOP/s"),
            ("bytes_per_second", "copies memory", "GB/s"),
        ):
            measured = [one for one in alike if one[key]]
            speeds = [one[key] for one in measured]
            for index in slow_ones(speeds):
                said.setdefault(_place(report, measured[index]), []).append(
                    f"{what} at {giga(speeds[index])} {unit}, the fastest at {giga(max(speeds))}"
                )
        for place, slow in said.items():
            yield Finding(
                "slow_device",
                f"{place} {'; it '.join(slow)}. All ranks wait for the slowest: look for other processes,"
                " heat and power limits there",
            )
    for one in report["devices"]:
        if not one["flops_per_second"] or not one["bytes_per_second"]:
            yield Finding("no_memory", f"{_place(report, one)} has too little free memory to be measured")


def _slow_links(report: Report) -> Iterator[Finding]:
    links = report["links"]
    if links is None:
        return
    names = [report["hosts"][number]["name"] for number in report["host_of_rank"]]
    speeds: Speeds = {
        (pair["ranks"][0], pair["ranks"][1]): pair["bytes_per_second"] for pair in links["pairs"]
    }
    slow = slow_pairs(speeds, report["host_of_rank"])
    if not slow:
        return
    ranks = len(names)
    kept = ranks_without(slow, speeds, ranks)
    outside = sorted(set(range(ranks)) - set(kept))
    lowest, highest = min(speeds[pair] for pair in slow), max(speeds[pair] for pair in slow)
    reference = reference_speed(speeds, report["host_of_rank"])
    rate = giga(lowest) if lowest > 0.9 * highest else f"{giga(lowest)} to {giga(highest)}"
    takes, less = (gradient_seconds(speed, ranks) for speed in (lowest, reference))
    reach = "reaches" if len(outside) == 1 else "reach"
    network = "NCCL_DEBUG=INFO says which interface is used"
    if report["devices"][0]["device"] == "cpu":
        network = "GLOO_SOCKET_IFNAME names the interface to use"
    yield Finding(
        "slow_links",
        f"{_with_hosts(outside, names)} {reach} others at {rate} GB/s ({len(slow)} of"
        f" {counted(len(speeds), 'pair')}), the rest at {giga(reference)}: the gradients of"
        f" {PARAMETERS // 10**6} M parameters take {takes:.2g} s an update instead of {less:.2g}."
        f" Unless that is little of an update, train on {_with_hosts(kept, names)}{_how(report, kept)}, or"
        f" look at the network ({network})",
    )


def _with_hosts(ranks: Sequence[int], names: Sequence[str]) -> str:
    """ranks 0-3 (a), 4, 5 (b); without hosts if there is one."""
    if len(set(names)) == 1:
        return named(ranks)
    by_host: dict[str, list[int]] = {}
    for rank in ranks:
        by_host.setdefault(names[rank], []).append(rank)
    noun = "rank" if len(ranks) == 1 else "ranks"
    return f"{noun} " + ", ".join(f"{ranges(some)} ({name})" for name, some in by_host.items())


def _how(report: Report, ranks: Sequence[int]) -> str:
    """How to start these ranks alone, if they are on one host."""
    hosts = {report["host_of_rank"][rank] for rank in ranks}
    if len(hosts) > 1:
        return ""
    devices = [one for one in report["devices"] if one["rank"] in ranks]
    numbers = [one["visible"] for one in devices if "visible" in one]
    chosen = f"CUDA_VISIBLE_DEVICES={','.join(numbers)} " if numbers else ""
    return f" ({chosen}torchrun --nproc-per-node {len(ranks)})"


def _little_data(report: Report) -> Iterator[Finding]:
    ranks = len(report["host_of_rank"])
    for source in report["data"]:
        if source["rows"] < ranks:
            yield Finding(
                "little_data",
                f"{source['path']} fills about {counted(source['rows'], 'row')}, fewer than there are ranks"
                f" ({ranks}): an update that gives each rank a row reads it more than once",
            )


def _devices(report: Report, host: dict[str, Any]) -> list[dict[str, Any]]:
    return [one for one in report["devices"] if one["rank"] in host["ranks"]]


def _place(report: Report, one: dict[str, Any]) -> str:
    """rank 3 (host b, cuda:1)."""
    host = report["hosts"][report["host_of_rank"][one["rank"]]]["name"]
    where = f"{host}, {one['device']}" if len(report["hosts"]) > 1 else one["device"]
    return f"rank {one['rank']} ({where})"


def named(ranks: Collection[int]) -> str:
    """rank 1; ranks 0-3, 5."""
    return f"{'rank' if len(ranks) == 1 else 'ranks'} {ranges(ranks)}"


def gradient_seconds(speed: float, ranks: int) -> float:
    """Seconds of the all-reduce of the float32 gradients of `PARAMETERS` parameters at a bus bandwidth."""
    return 2 * (ranks - 1) / ranks * 4 * PARAMETERS / speed


def giga(number: float) -> str:
    """A number in units of 10^9, to three digits."""
    number /= 1e9
    return f"{number:,.0f}" if number >= 100 else f"{number:.3g}"
