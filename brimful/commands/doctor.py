"""The verb `brimful doctor`: how fast the machines of a training are, and which ranks to train on."""

import os
import shutil
import socket
import tempfile
import time
from collections.abc import Mapping
from contextlib import closing
from itertools import combinations
from pathlib import Path
from typing import Any

import torch

from brimful.base.config import build, verb
from brimful.base.distributed import World, world
from brimful.base.errors import BrimfulError
from brimful.base.processors import Watch, processor, usable_cores
from brimful.corpus.shards import PARTS, Corpus
from brimful.corpus.text.tokenizer import load as load_tokenizer
from brimful.data.mixture import open_sources, parse_sources
from brimful.data.reader import SequenceReader
from brimful.machine.bursts import burst
from brimful.machine.config import DoctorConfig
from brimful.machine.findings import find_problems, show_report
from brimful.machine.host import collectives, gpus, nvidia_smi
from brimful.machine.links import measure_links, ranks_to_train_on, slow_pairs
from brimful.machine.reading import disk_speed, loader_speed
from brimful.machine.topology import parse_topology
from brimful.precision.policy import DTYPES, resolve
from brimful.stages.pretrain_config import PretrainConfig
from brimful.stages.pretrain_data import make_sources, make_stream

WATCHED_SECONDS = 1.0
"""For how long other processes are watched."""
ROWS = 16
"""Rows of each rank's micro-batch, for which the loader is timed."""


@verb(DoctorConfig, show=show_report)
def doctor(config: DoctorConfig) -> dict[str, Any]:
    """Say how fast these machines are, whether their sums are right, and which ranks to train on.

    Alone it measures this process and, of several GPUs, each in turn. Under torchrun each rank measures its
    own device, all at the same time, and each pair of ranks its link.

    Returns:
        `hosts`: name, ranks, processor, usable cores, those that others keep busy and those that a virtual
        machine's host withholds (`stolen`), load average, collectives, GPUs, and the `kinds` of links between
        them or why these are `missing`. `devices`: rank, name, precision, `flops` and `bytes` per
        second, and of a GPU its number, memory, and what others take. `links`: None, or `pairs`, the bytes
        per second of `all`, whether all sums are `right`, and the ranks to `train_on`. `data`: None, or bytes
        per second of each host's disk, tokens per second of each rank's loader. `findings`: lines.

    Raises:
        BrimfulError: a folder is not prepared; two ranks do not reach each other.
    """
    sources = parse_sources(config.data) if config.data is not None else ()
    corpora = open_sources(sources, verify=False) if sources else {}  # refused before anything is measured
    with world() as ranks:
        hosts, host_of_rank = _hosts(ranks)
        report: dict[str, Any] = {
            "hosts": hosts,
            "devices": _devices(ranks, hosts[host_of_rank[ranks.rank]]),
            "links": _links(ranks, host_of_rank) if ranks.size > 1 else None,
            "data": None,
        }
        if corpora:
            rows = {"rows_per_update": ROWS * ranks.size, "rows_per_micro_batch": ROWS}
            planned = build(PretrainConfig, {"data": sources, **rows})
            report["data"] = _data(ranks, planned, corpora, hosts[host_of_rank[ranks.rank]]["ranks"][0])
    return report | {"findings": find_problems(report)}


def _hosts(ranks: World) -> tuple[list[dict[str, Any]], list[int]]:
    """The hosts of all ranks, and the index of each rank's host."""
    # torchrun's number of the node tells apart containers of one name.
    keys = ranks.gather((socket.gethostname(), os.environ.get("GROUP_RANK", "0")))
    order = list(dict.fromkeys(keys))
    facts = ranks.gather(_host() if keys.index(keys[ranks.rank]) == ranks.rank else None)
    members = [[rank for rank, each in enumerate(keys) if each == key] for key in order]
    names = [name if len(order) == 1 else f"{name} {number}" for name, number in order]
    hosts = [{"name": n, "ranks": m} | facts[m[0]] for n, m in zip(names, members, strict=True)]
    return hosts, [order.index(key) for key in keys]


def _host() -> dict[str, Any]:
    """What is the same for all ranks of a host."""
    watch = Watch()
    time.sleep(WATCHED_SECONDS)
    use = watch.look()
    found: dict[str, Any] = {"processor": processor(), "cores": usable_cores()}
    found |= {"busy_cores": use.others, "stolen_cores": use.stolen, "load": use.load}
    found |= {"collectives": collectives(), "gpus": {}, "kinds": [], "missing": None}
    if shutil.which("nvidia-smi") is None and not torch.cuda.is_available():
        return found  # no GPU, and nothing to know of one
    try:
        found["gpus"] = gpus()
        kinds = parse_topology(nvidia_smi("topo", "-m"))
    except BrimfulError as error:
        return found | {"missing": str(error)}
    return found | {"kinds": [{"gpus": pair, "kind": kind} for pair, kind in kinds.items()]}


def _devices(ranks: World, host: dict[str, Any]) -> list[dict[str, Any]]:
    """The devices of all ranks, with their speeds."""
    devices, found = [ranks.device], []
    if ranks.size == 1 and ranks.device.type == "cuda":
        devices = [torch.device("cuda", index) for index in range(torch.cuda.device_count())]
    for device in devices:
        precision = resolve("auto", device)
        facts = {"rank": ranks.rank, "name": host["processor"], "precision": precision}
        if device.type == "cuda":
            about = torch.cuda.get_device_properties(device)
            free, total = torch.cuda.mem_get_info(device)
            number, busy = host["gpus"].get(str(getattr(about, "uuid", "")), (device.index, 0))
            facts |= {"name": about.name, "memory": total, "taken": total - free}
            facts |= {"number": number, "busy": busy}
        ranks.barrier()
        found.append(facts | burst(device, DTYPES[precision]))
    return [facts for each in ranks.gather(found) for facts in each]


def _links(ranks: World, host_of_rank: list[int]) -> dict[str, Any]:
    """The link of each pair of ranks, and of all together."""
    right, speeds = dict[tuple[int, ...], bool](), dict[tuple[int, ...], float]()
    for link in (link for each in ranks.gather(measure_links(ranks)) for link in each):
        right[link.ranks] = right.get(link.ranks, True) and link.right
        speeds[link.ranks] = min(speeds.get(link.ranks, link.speed), link.speed)
    pairs = list(combinations(range(ranks.size), 2))
    slow = slow_pairs({pair: speeds[pair] for pair in pairs}, host_of_rank)
    return {
        "pairs": [
            {"ranks": pair, "bytes_per_second": speeds[pair], "right": right[pair], "slow": pair in slow}
            for pair in pairs
        ],
        "all": speeds[tuple(range(ranks.size))],
        "right": all(right.values()),
        "train_on": ranks_to_train_on(ranks.size, {pair for pair in pairs if right[pair]} - slow),
    }


def _data(ranks: World, config: PretrainConfig, corpora: Mapping[str, Corpus], first: int) -> dict[str, Any]:
    """How fast `first`, a rank of each host, reads the shards, and each rank makes its part of the stream."""
    shards = [each.directory / "shards" / shard.name for each in corpora.values() for shard in each.shards]
    reads, files = ranks.rank == first, [Path(f"{shard}.{part}") for shard in shards for part in PARTS]
    ranks.barrier()
    disk = ranks.gather(disk_speed(files) if reads else None)
    tokenizer = load_tokenizer(next(iter(corpora.values())).tokenizer_path)
    with tempfile.TemporaryDirectory(prefix="brimful-") as made:
        sources = make_sources(config, corpora, Path(ranks.gather(made)[first]), ahead=reads)
        reader = SequenceReader(tokenizer, config.masking)
        with closing(make_stream(config, sources, reader, rank=ranks.rank, world=ranks.size)) as stream:
            speeds = ranks.gather(loader_speed(stream))
        ranks.barrier()
    return {"disk": [each for each in disk if each is not None], "loader": speeds}
