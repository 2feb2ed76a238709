"""What `brimful doctor` prints for a person: hosts, devices, links, data, and at the end what is wrong."""

import json
from collections.abc import Sequence
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from brimful.console import counted, output_console, visible
from brimful.machine.findings import giga, gradient_seconds, named
from brimful.machine.topology import MEANINGS

MOST = 8
"""Ranks or GPUs up to which a matrix of pairs is printed: it fits 80 columns."""


def show_report(report: dict[str, Any]) -> None:
    """Print the report."""
    console = output_console()
    alike: dict[str, list[dict[str, Any]]] = {}
    for host in report["hosts"]:
        alike.setdefault(_kind(host), []).append(host)
    for hosts in alike.values():
        _show_hosts(console, hosts)
    _heading(console, "devices")
    console.print(_device_table(report))
    _show_choices(console, report)
    if report["links"]:
        _heading(console, "all-reduce between two ranks")
        _show_links(console, report)
    for source in report["data"]:
        _heading(console, source["path"])
        _show_data(console, source, report)
    if report["loader"]:
        _show_loader(console, report["loader"])
    if report["tuning"]:
        _show_tuning(console, report["tuning"])
    _heading(console, "findings")
    for finding in report["findings"]:
        _line(console, f"- {finding['message']}", "yellow")
    if not report["findings"]:
        _line(console, "nothing found")


def _heading(console: Console, title: str) -> None:
    console.print(Text(f"\n{visible(title)}", style="bold"))


def _line(console: Console, text: str, style: str = "") -> None:
    """Print a line, broken between words where the terminal ends."""
    console.print(Text(visible(text), style=style), soft_wrap=False)


def _kind(host: dict[str, Any]) -> str:
    """Equal for hosts that differ in nothing that is printed but their names and free memory."""
    facts = {key: value for key, value in host.items() if key not in ("name", "ranks", "memory", "driver")}
    version = host["driver"] and host["driver"]["version"]
    return json.dumps([facts, version, giga(host["memory"]["total"])], sort_keys=True)


def _show_hosts(console: Console, hosts: Sequence[dict[str, Any]]) -> None:
    """Hosts of one kind, with the memory of the smallest."""
    host = hosts[0]
    names = ", ".join(f"{each['name']} ({named(each['ranks'])})" for each in hosts)
    _line(console, names, "bold")
    available = min(each["memory"]["available"] for each in hosts)
    free = [each["memory"]["shared"] for each in hosts if each["memory"]["shared"] is not None]
    software = host["software"]
    instructions = "".join(f"; {name}" for name in host["instructions"])
    _line(console, f"{host['processor']}, {host['cores']:g} usable cores{instructions}")
    shared = f", /dev/shm {giga(min(free))} free" if free else ""
    _line(
        console,
        f"memory {giga(host['memory']['total'])} GB, {giga(available)} available{shared}",
    )
    build = f"CUDA {software['cuda']}" if software["cuda"] else None
    build = build or (f"ROCm {software['rocm']}" if software["rocm"] else "no CUDA")
    between = [f"NCCL {software['nccl']}"] * bool(software["nccl"]) + ["gloo"] * software["gloo"]
    _line(
        console,
        f"torch {software['torch']} ({build}), Python {software['python']}; between ranks:"
        f" {', '.join(between) or 'nothing'}",
    )
    if host["driver"]:
        _line(console, f"driver {host['driver']['version']}")
    if host["driver_missing"]:
        _line(console, f"topology unknown: {host['driver_missing']}")
    if host["environment"]:
        _line(console, " ".join(f"{name}={value}" for name, value in host["environment"].items()))
    if host["topology"]:
        _show_topology(console, host["topology"])


def _show_topology(console: Console, topology: dict[str, Any]) -> None:
    gpus = topology["gpus"]
    kinds = {tuple(link["between"]): link["kind"] for link in topology["links"]}
    if 1 < len(gpus) <= MOST:
        names = [name.removeprefix("GPU") for name in gpus]
        rows = [["-" if a == b else kinds[tuple(sorted((a, b)))] for b in gpus] for a in gpus]
        console.print(_matrix("GPU", names, rows))
    shown = {kind for between, kind in kinds.items() if set(between) <= set(gpus)}
    for kind, meaning in MEANINGS.items():
        if any(each == kind or (kind == "NV" and each.startswith("NV")) for each in shown):
            _line(console, f"{kind}: {meaning}")
    for line in topology["meaning"]:
        _line(console, line)


def _table(*names: str) -> Table:
    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for name in names:
        table.add_column(name, justify="left" if name in ("device", "host", "setting") else "right")
    return table


def _matrix(corner: str, names: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    table = _table(corner, *names)
    for name, row in zip(names, rows, strict=True):
        table.add_row(name, *row)
    return table


def _device_table(report: dict[str, Any]) -> Table:
    several = ["host"] * (len(report["hosts"]) > 1)
    sizes = ["memory GB"] * any("memory" in one for one in report["devices"])
    fast = any((one["flops_per_second"] or 0) >= 1e12 for one in report["devices"])
    scale, flops = (1e12, "TFLOP/s") if fast else (1e9, "GFLOP/s")
    table = _table("rank", *several, "device", *sizes, flops, "copy GB/s")
    for one in report["devices"]:
        host = report["hosts"][report["host_of_rank"][one["rank"]]]
        speed, copies = one["flops_per_second"], one["bytes_per_second"]
        table.add_row(
            str(one["rank"]),
            *[host["name"]] * len(several),
            _device_name(one, host),
            *[giga(one["memory"]["total"]) if "memory" in one else ""] * len(sizes),
            giga(speed * 1e9 / scale) if speed else "-",
            giga(copies) if copies else "-",
        )
    return table


def _device_name(one: dict[str, Any], host: dict[str, Any]) -> str:
    """With the number of nvidia-smi and its topology, which may not be CUDA's."""
    if one["device"] == "cpu":
        return f"CPU, {counted(one['threads'], 'thread')}"
    numbers = host["driver"]["numbers"] if host["driver"] else {}
    name = one["name"].removeprefix("NVIDIA ")
    return f"GPU{numbers[one['uuid']]} {name}" if one["uuid"] in numbers else name


def _show_choices(console: Console, report: dict[str, Any]) -> None:
    devices = report["devices"]
    if len(devices) > 1:
        spreads = []
        for key, what in (("flops_per_second", "computing"), ("bytes_per_second", "copying")):
            values = [one[key] for one in devices if one[key]]
            if values:
                spreads.append(f"{what} {max(values) / min(values):.2f}")
        how = "at the same time, as in training" if len(report["host_of_rank"]) > 1 else "in turns"
        _line(console, f"fastest over slowest: {', '.join(spreads)}; measured {how}")
    choices = dict.fromkeys((one["precision"], one["attention"], one["compile_lacks"]) for one in devices)
    for precision, attention, lacks in choices:
        compiled = "a compiler is there; on a CPU steps run eagerly by default"
        if devices[0]["device"] != "cpu":
            compiled = "a compiler is there, and steps are compiled"
        if lacks:
            compiled = f"needs {lacks}; steps run eagerly"
        _line(console, f"auto: precision {precision}, attention {attention}; torch.compile: {compiled}")


def _show_links(console: Console, report: dict[str, Any]) -> None:
    links, host_of_rank = report["links"], report["host_of_rank"]
    ranks = len(host_of_rank)
    pairs = {tuple(pair["ranks"]): pair for pair in links["pairs"]}
    if 2 < ranks <= MOST:
        names = [str(rank) for rank in range(ranks)]
        speeds = {pair: giga(facts["bytes_per_second"]) for pair, facts in pairs.items()}
        rows = [["-" if a == b else speeds[min(a, b), max(a, b)] for b in range(ranks)] for a in range(ranks)]
        console.print(_matrix("GB/s", names, rows))
    for within, where in ((True, "within a host"), (False, "between hosts")):
        some = [facts for (a, b), facts in pairs.items() if (host_of_rank[a] == host_of_rank[b]) is within]
        if some:
            speed = _spread([facts["bytes_per_second"] / 1e9 for facts in some], ".3g")
            latency = _spread([1e6 * facts["latency"] for facts in some], ",.0f")
            _line(console, f"{where}: {speed} GB/s; {latency} us for a few bytes")
    together = f"all ranks together: {giga(links['all'])} GB/s; " if ranks > 2 else ""
    seconds = gradient_seconds(links["all"], ranks)
    _line(console, f"{together}the gradients of 100 M parameters take {seconds:.2g} s an update")
    if ranks > 2:
        at_once = f"{ranks // 2} pairs at the same time, which may share a network"
        _line(console, f"measured {at_once if links['at_once'] else 'one pair at a time'}")


def _spread(values: Sequence[float], form: str) -> str:
    """0.9 to 20; or one number."""
    lowest, highest = format(min(values), form), format(max(values), form)
    return lowest if lowest == highest else f"{lowest} to {highest}"


def _show_data(console: Console, source: dict[str, Any], report: dict[str, Any]) -> None:
    _line(
        console,
        f"{counted(source['shards'], 'shard')}, {counted(source['documents'], 'document')},"
        f" {counted(source['tokens'], 'token')}",
    )
    ranks = len(report["host_of_rank"])
    if ranks > 1:
        _line(console, f"any number of shards serves {ranks} ranks: every rank maps all, and rows are dealt")
    for host, disk in zip(report["hosts"], source["disk"], strict=True):
        where = f"{host['name']}: " if len(report["hosts"]) > 1 else ""
        _line(
            console,
            f"{where}disk {giga(disk['bytes_per_second'])} GB/s in order"
            f" ({disk['bytes'] / 1e6:,.1f} MB read), {disk['reads_per_second']:,.0f} random reads of 4 KiB a"
            f" second{_cached(disk['cached'])}",
        )


def _cached(fraction: float | None) -> str:
    if fraction is None:
        return "; from the disk or from memory, the file system does not say"
    return f"; {fraction:.0%} of it was in memory and could not be dropped" if fraction > 0.1 else ""


def _show_loader(console: Console, loader: dict[str, Any]) -> None:
    _heading(console, "loader")
    speed = _spread(loader["tokens_per_second"], ",.0f")
    _line(console, f"{speed} tokens a second for each rank, measured without training")
    if most := [speed for speed in loader["products_alone"] if speed]:
        _line(
            console,
            f"the default model ({loader['model']}) could train on about {max(most):,.0f} of them, if it did"
            " nothing but products at the rate above",
        )


def _show_tuning(console: Console, tuning: dict[str, Any]) -> None:
    _heading(console, f"settings for pretrain --model {tuning['model']}")
    table = _table("setting", "value", "tokens/s", "waits for data", "use")
    for tried in tuning["tried"]:
        for number, one in enumerate(tried["candidates"]):
            table.add_row(
                "" if number else tried["setting"],
                str(one["value"]),
                f"{one['tokens_per_second']:,.0f}",
                f"{one['data_wait']:.0%}",
                "*" if one["value"] == tried["best"] else "",
            )
    console.print(table)
    ratio = tuning["after"] / tuning["before"]
    if not tuning["options"]:
        _line(console, "the present settings are the fastest that were tried")
        return
    _line(console, f"use {tuning['options']}")
    _line(console, f"measured again beside the present settings: {ratio:.2f} times as fast")
