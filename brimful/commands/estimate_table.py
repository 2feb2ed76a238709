"""What `brimful estimate` prints for a person."""

from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from brimful.console import counted, output_console, visible

GIB = 2**30
SHOWN = (1, 8, 64, 256, 1024)
"""Numbers of ranks of the scaling table, beside the run's own; --json has every power of two."""


def show_estimate(result: dict[str, Any]) -> None:
    """Print the estimate."""
    console = output_console()
    model, device, data = result["model"], result["device"], result["data"]
    update, time, run = result["update"], result["time"], result["run"]
    _line(
        console,
        f"{model['name']} {model['architecture']}: {model['parameters'] / 1e6:.1f} M parameters (encoder"
        f" {model['encoder_parameters'] / 1e6:.1f} M), {model['flops_per_token'] / 1e9:.3g} Gflop a token",
    )
    kind = "rank" if device["name"] == "CPU" else "GPU"
    _line(
        console, f"{device['ranks']} x {device['name']}, {device['precision']}; {result['predicted']}", "bold"
    )
    origin = "data" if data["given"] else "assumed text"
    _line(
        console,
        f"{origin}: {_short(data['tokens'])} tokens; sequences of {data['mean_length']:.0f} on average,"
        f" {data['fill']:.1%} of slots filled",
    )
    _heading(console, "run")
    epochs = ", ".join(
        (f"{name}: " if len(run["epochs"]) > 1 else "") + (_short(value) if value else "?")
        for name, value in run["epochs"].items()
    )
    _line(
        console,
        f"{counted(run['updates'], 'update')}, {_short(run['tokens'])} tokens, {epochs} epochs, in"
        f" {_time(3600 * run['hours'])} (ended by its {run['ends_by']})",
    )
    _line(
        console,
        f"an update: {update['rows']:,} rows, {_short(update['tokens'])} tokens, about"
        f" {update['sequences']:,.0f} sequences; {update['micro_batches_per_rank']} x"
        f" {update['rows_per_micro_batch']} rows on each {kind}",
    )
    mfu = f", MFU {time['mfu']:.1%}" if time["mfu"] else ""
    speed = f"{_short(time['tokens_per_second'])} tokens/s{mfu}"
    waiting = f", {_time(time['exposed_seconds'])} of it waiting for links" if device["ranks"] > 1 else ""
    _line(console, f"{_time(time['update_seconds'])} an update{waiting}; {speed}")
    _show_stages(console, result["stages"])
    _show_memory(console, result, kind)
    if device["ranks"] > 1:
        links = result["links"]
        _line(
            console,
            f"each {kind} sends {links['total'] / 1e6:,.0f} MB an update, {links['after'] / 1e6:,.0f} MB of"
            " it after the step",
        )
    disk = result["disk"]
    _line(
        console,
        f"disk: {disk['total'] / 1e9:.3g} GB (shards {disk['shards'] / 1e9:.3g}, checkpoints"
        f" {disk['checkpoints'] / 1e9:.3g}, models {disk['models'] / 1e9:.3g})",
    )
    _show_scaling(console, result, kind)
    _heading(console, "assumed (--assume.NAME replaces)")
    named = [f"{name.replace('_', '-')} {_value(value)}" for name, value in result["assumptions"].items()]
    _line(console, ", ".join(named) or "nothing")
    if result["advice"]:
        _heading(console, "notes")
        for line in result["advice"]:
            _line(console, f"- {line}", "yellow")
    _heading(console, "the run, with your own options for ...")
    _line(console, result["command"])


def _heading(console: Console, title: str) -> None:
    console.print(Text(f"\n{visible(title)}", style="bold"))


def _line(console: Console, text: str, style: str = "") -> None:
    """Print a line, broken between words where the terminal ends."""
    console.print(Text(visible(text), style=style), soft_wrap=False)


def _table(*names: str) -> Table:
    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for number, name in enumerate(names):
        table.add_column(name, justify="right" if number else "left")
    return table


def _show_stages(console: Console, stages: list[dict[str, Any]]) -> None:
    table = _table("stage", "time", "GPU hours", "core hours")
    for stage in stages:
        hours = [stage.get("gpu_hours"), stage.get("core_hours")]
        table.add_row(
            stage["stage"], _time(3600 * stage["hours"]), *(f"{h:,.4g}" if h else "" for h in hours)
        )
    console.print()
    console.print(table)


def _show_memory(console: Console, result: dict[str, Any], kind: str) -> None:
    memory = result["memory"]
    called = "predicted, not measured; " if kind == "GPU" else ""
    _heading(console, f"memory of a {kind} ({called}GiB)")
    table = _table("weights", "gradients", "states", "other", "activations", "process", "all", "available")
    names = (
        *("weights", "gradients", "states", "other", "activations", "process"),
        *("total", "available"),
    )
    table.add_row(*(f"{memory[name] / GIB:.2f}" for name in names))
    console.print(table)


def _show_scaling(console: Console, result: dict[str, Any], kind: str) -> None:
    _heading(console, f"from 1 to 1,024 {kind}s (predicted, not measured)")
    table = _table(f"{kind}s", "tokens/s", "efficiency", "waiting", "same update: tokens/s", "efficiency")
    for row in result["scaling"]:
        if row["ranks"] not in (*SHOWN, result["device"]["ranks"]):
            continue
        same = row["same_update_tokens_per_second"]
        table.add_row(
            f"{row['ranks']:,}",
            _short(row["tokens_per_second"]),
            f"{row['efficiency']:.0%}",
            f"{row['exposed_seconds'] / row['update_seconds']:.0%}",
            _short(same) if same else "fewer rows",
            f"{row['same_update_efficiency']:.0%}" if same else "",
        )
    console.print(table)
    _line(console, "left: updates that grow with the ranks. right: the run's own update, divided among more.")


def _short(number: float) -> str:
    """1.23 M."""
    for size, name in ((1e12, " T"), (1e9, " G"), (1e6, " M"), (1e3, " k")):
        if number >= size:
            return f"{number / size:.3g}{name}"
    return f"{number:.3g}"


def _time(seconds: float) -> str:
    if seconds < 1:
        return f"{1e3 * seconds:.3g} ms"
    for size, name in ((86400 * 2, "days"), (3600, "hours"), (120, "minutes")):
        if seconds >= size:
            return f"{seconds / {'days': 86400, 'hours': 3600, 'minutes': 60}[name]:.3g} {name}"
    return f"{seconds:.3g} s"


def _value(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}"
