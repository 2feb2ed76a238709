"""The verb `brimful doctor`: what the machines have, how fast their parts are, and what is wrong."""

import os
import socket
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import torch

from brimful.commands.doctor_table import show_report
from brimful.commands.doctor_tune import tune
from brimful.commands.pretrain import make_sources, make_stream
from brimful.commands.pretrain_config import SOURCES, PretrainConfig
from brimful.config import build, verb
from brimful.console import progress
from brimful.corpus.shards import PARTS, Corpus
from brimful.data.blocks import PackingConfig
from brimful.data.mixture import DataSource, open_sources, parse_sources
from brimful.data.reader import SequenceReader
from brimful.distributed import World, world
from brimful.errors import BrimfulError, UsageError, is_out_of_memory
from brimful.machine.bursts import compute_speed, memory_speed
from brimful.machine.devices import device_facts, driver_facts
from brimful.machine.findings import find_problems
from brimful.machine.host import host_facts, settings, software
from brimful.machine.links import ALONE, measure_all, measure_pairs
from brimful.machine.reading import disk_speed, loader_speed
from brimful.machine.topology import explain, nvidia_smi, parse_topology
from brimful.nn.flops import step_flops
from brimful.precision.policy import DTYPES
from brimful.text.tokenizer import load as load_tokenizer
from brimful.train.metrics import needed

ROWS = 16
"""Rows of each rank's micro-batch, for which the loader is timed."""


@dataclass(frozen=True, kw_only=True)
class DoctorConfig:
    """Say what this machine has, how fast its parts are, and what is wrong, before a long training."""

    data: Annotated[str | tuple[str | DataSource, ...] | None, SOURCES] = None
    """Folder made by `brimful prepare`, or several, as for pretrain: web:9 mine:1. Reading them is measured
    too."""
    tune: bool = False
    """Also try settings of pretraining in short trainings on --data, for a minute or more, and say which are
    the fastest here. None of them changes what an update holds."""
    model: Literal["tiny", "mini", "small", "base", "large"] = "mini"
    """With --tune: the preset of the model to train."""


@verb(DoctorConfig, show=show_report)
def doctor(config: DoctorConfig) -> dict[str, Any]:
    """Say what these machines have, how fast their parts are, and what is wrong, before a long training.

    Alone it measures this process and, of several GPUs, each in turn. Under torchrun each rank measures its
    own device, all at the same time, and each pair of ranks its link.

    Returns:
        `hosts`: for each host its name, ranks, processor, cores, memory (bytes), software, variables of the
        environment, number of GPUs, driver and topology (None where nvidia-smi gives none; then
        `driver_missing` says why). `host_of_rank`: the index of each rank's host. `devices`: for each device
        its rank, name, the precision and attention backend that auto chooses, flops and bytes per second
        (None: too little memory). `links`: None, or for each of the `pairs` its ranks, latency (seconds) and
        bytes per second, and the bytes per second of `all` ranks together. `data`: for each folder its
        shards, tokens, about how many rows it fills, and the speed of the disk on each host. `loader`: None,
        or tokens per second of each rank, and of a training that does nothing but products. `tuning`: None,
        or what `brimful.commands.doctor_tune.tune` returns. `findings`: what is wrong, each with `kind` and
        `message`.

    Raises:
        BrimfulError: a folder is not prepared; two ranks do not reach each other.
        UsageError: to tune, there is no data.
    """
    if config.tune and config.data is None:
        raise UsageError("--tune needs --data: the folder made by `brimful prepare` that training will read")
    sources = parse_sources(config.data) if config.data is not None else ()
    corpora = open_sources(sources, verify=False) if sources else {}
    parts = 3 + bool(corpora) + config.tune
    with world() as ranks, progress("doctor", parts, shown=ranks.is_main) as advance:
        hosts, host_of_rank = _hosts(ranks)
        advance(note="devices")
        devices = _devices(ranks)
        advance(note="links between ranks")
        links = _links(ranks)
        advance(note="data")
        report: dict[str, Any] = {
            "hosts": hosts,
            "host_of_rank": host_of_rank,
            "devices": devices,
            "links": links,
            "data": [],
            "loader": None,
            "tuning": None,
        }
        if corpora:
            first = hosts[host_of_rank[ranks.rank]]["ranks"][0]
            report["data"] = _data(ranks, corpora, first)
            report["loader"] = _loader(ranks, sources, corpora, first, devices)
            advance(note="settings" if config.tune else "")
        if config.tune:
            planned = build(PretrainConfig, {"data": sources, "model": config.model})
            with _shared_folder(ranks, first) as folder:
                report["tuning"] = tune(planned, corpora, folder, ranks, ahead=ranks.rank == first)
            advance()
    return report | {"findings": [asdict(finding) for finding in find_problems(report)]}


@contextmanager
def _shared_folder(ranks: World, first: int) -> Iterator[Path]:
    """A new folder of this host, the one of its first rank; removed when all ranks are done."""
    with tempfile.TemporaryDirectory(prefix="brimful-") as made:
        yield Path(ranks.gather(made)[first])
        ranks.barrier()


def _hosts(ranks: World) -> tuple[list[dict[str, Any]], list[int]]:
    """The hosts of all ranks, and the index of each rank's host."""
    # torchrun's number of the node tells apart containers of one name.
    keys = ranks.gather((os.environ.get("GROUP_RANK", "0"), socket.gethostname()))
    order = list(dict.fromkeys(keys))
    host_of_rank = [order.index(key) for key in keys]
    is_first = keys.index(keys[ranks.rank]) == ranks.rank
    facts = ranks.gather(_host() if is_first else None)
    hosts = []
    for number, key in enumerate(order):
        members = [rank for rank, host in enumerate(host_of_rank) if host == number]
        hosts.append({"name": key[1], "ranks": members} | facts[members[0]])
    names = [host["name"] for host in hosts]
    for number, host in enumerate(hosts):
        if names.count(host["name"]) > 1:
            host["name"] += f" {number}"
    return hosts, host_of_rank


def _host() -> dict[str, Any]:
    """What is the same for all ranks of a host."""
    found: dict[str, Any] = host_facts() | {
        "software": software(),
        "environment": settings(os.environ),
        "gpus": torch.cuda.device_count(),
        "driver": None,
        "driver_missing": None,
        "topology": None,
    }
    try:
        found["driver"] = driver_facts()
        topology = parse_topology(nvidia_smi("topo", "-m"))
    except BrimfulError as error:
        return found | {"driver_missing": str(error)}
    pairs = [{"between": sorted(names), "kind": kind} for names, kind in topology.links.items()]
    found["topology"] = {
        "gpus": topology.gpus,
        "links": [pair for at, pair in enumerate(pairs) if pair not in pairs[:at]],
        "cpus": topology.cpus,
        "numa": topology.numa,
        "nics": topology.nics,
        "meaning": explain(topology),
    }
    return found


def _devices(ranks: World) -> list[dict[str, Any]]:
    """The devices of all ranks, with their speeds."""
    devices = [ranks.device]
    if ranks.size == 1 and ranks.device.type == "cuda":
        devices = [torch.device("cuda", index) for index in range(torch.cuda.device_count())]
    found = []
    for device in devices:
        facts = {"rank": ranks.rank} | device_facts(device)
        dtype = DTYPES[facts["precision"]]
        ranks.barrier()
        facts["flops_per_second"] = _unless_full(partial(compute_speed, device, dtype))
        ranks.barrier()
        facts["bytes_per_second"] = _unless_full(partial(memory_speed, device))
        found.append(facts)
    return [facts for each in ranks.gather(found) for facts in each]


def _unless_full(measure: Callable[[], float]) -> float | None:
    """What is measured, or None if memory runs out."""
    try:
        return measure()
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        return None


def _links(ranks: World) -> dict[str, Any] | None:
    """The speed of each pair of ranks, and of all together."""
    if ranks.size == 1:
        return None
    pairs = [pair for each in ranks.gather(measure_pairs(ranks)) for pair in each]
    return {
        "pairs": [
            {"ranks": pair.ranks, "latency": pair.latency, "bytes_per_second": pair.speed}
            for pair in sorted(pairs, key=lambda pair: pair.ranks)
        ],
        "at_once": ranks.size > ALONE,
        "all": measure_all(ranks),
    }


def _data(ranks: World, corpora: Mapping[str, Corpus], first: int) -> list[dict[str, Any]]:
    """The folders, and how fast each host's first rank reads them."""
    found = []
    for corpus in corpora.values():
        files = [
            corpus.directory / "shards" / f"{shard.name}.{part}" for shard in corpus.shards for part in PARTS
        ]
        ranks.barrier()
        speed = disk_speed(files) if ranks.rank == first else None
        train = corpus.part("train")
        tokens = train.tokens if train else 0
        found.append(
            {
                "path": str(corpus.directory),
                "shards": len(corpus.shards),
                "documents": corpus.documents,
                "tokens": corpus.tokens,
                "rows": tokens // PackingConfig().capacity,
                "disk": [each._asdict() for each in ranks.gather(speed) if each is not None],
            }
        )
    return found


def _loader(
    ranks: World,
    data: tuple[DataSource, ...],
    corpora: Mapping[str, Corpus],
    first: int,
    devices: Sequence[Mapping[str, Any]],
) -> dict[str, Any]:
    """Tokens per second of each rank's share of the stream that pretrain reads by default, all at once; and
    those that the default model could train on if it did nothing but products, at the device's rate."""
    rows = {"rows_per_update": ROWS * ranks.size, "rows_per_micro_batch": ROWS}
    config = build(PretrainConfig, {"data": data, **rows})
    tokenizer = load_tokenizer(next(iter(corpora.values())).tokenizer_path)
    with ExitStack() as stack:
        plans = stack.enter_context(_shared_folder(ranks, first))
        sources = make_sources(config, corpora, plans, ahead=ranks.rank == first)
        reader = SequenceReader(tokenizer, config.masking)
        stream = make_stream(config, sources, reader, rank=ranks.rank, world=ranks.size)
        stack.enter_context(closing(stream))
        ranks.barrier()
        (batch,), _ = stream.take(stream.start())
        speed = loader_speed(stream)
    model = config.encoder_config(tokenizer)
    flops = step_flops(model, needed(batch, model)) / batch.real_tokens
    own = devices[ranks.rank]["flops_per_second"]
    return {
        "tokens_per_second": ranks.gather(speed),
        "model": "mini",
        "products_alone": ranks.gather(own and own / flops),
    }
