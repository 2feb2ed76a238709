"""metrics.jsonl as charts: losses and validation first, then how the training went."""

import math
import statistics
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from brimful.reports.charts import Chart, Line, line_chart
from brimful.reports.content import number, tick, title
from brimful.reports.load import Metrics, Run

LOSS, VALIDATION = "loss.", "validation."
MOST_TRIALS = 6


def main_charts(run: Run) -> list[Chart]:
    """Losses and validation metrics of a run, of each of its stages, and its trials side by side."""
    charts = []
    for prefix, metrics in _parts(run):
        axis = _Axis(metrics, run.kind)
        charts += [*_losses(prefix, metrics, axis), *_validation(prefix, metrics, axis)]
    if len(run.trials) > 1 or not run.metrics:
        charts += _trials(run)
    return charts


def side_charts(run: Run) -> list[Chart]:
    """Learning rate, gradient norm, loss scaling and throughput of a run and of each of its stages."""
    charts = []
    for prefix, metrics in _parts(run):
        axis = _Axis(metrics, run.kind)
        rate = _line(metrics, "learning_rate", axis, "learning rate")
        norm = _line(metrics, "gradient_norm", axis, "gradient norm", noisy=True)
        scale = _line(metrics, "loss_scale", axis, "loss scale, power of 2")
        if scale:
            scale = replace(scale, ys=[math.log2(value) for value in scale.ys])
        share = _line(metrics, "upper_share", axis, "gradients near float16's end, share")
        clipped = _line(metrics, "clipped_gradients", axis, "gradients clipped to float16's end")
        speed = _throughput(metrics, axis)
        for line, word, summarise in (
            (rate, "peak", max),
            (norm, "median", statistics.median),
            (scale, "median", statistics.median),
            (share, "largest", max),
            (clipped, "in all", sum),
            (speed, "mean", statistics.fmean),
        ):
            if line:
                line = replace(line, caption=f"{word} {tick(summarise(line.ys))}")
                charts.append(line_chart(_heading(prefix, line.label), [line], axis.label, small=True))
    return charts


def _parts(run: Run) -> list[tuple[str, Metrics]]:
    return [(prefix, metrics) for prefix, metrics in (("", run.metrics), *run.stages.items()) if metrics]


def _heading(prefix: str, name: str) -> str:
    return f"{prefix}: {name}" if prefix else name[0].upper() + name[1:]


class _Axis:
    """The horizontal axis: real tokens for pretraining, else updates."""

    def __init__(self, metrics: Metrics, kind: str) -> None:
        known = [(line["step"], line["tokens"]) for line in metrics if _has(line, "step", "tokens")]
        self.steps = [0, *(step for step, _ in known)]
        self.tokens = [0, *(tokens for _, tokens in known)]
        self.by_tokens = kind == "pretrain" and bool(known)
        self.label = "real tokens" if self.by_tokens else "updates"

    def place(self, step: float) -> float:
        return float(np.interp(step, self.steps, self.tokens)) if self.by_tokens else step


def _has(line: Mapping[str, Any], *keys: str) -> bool:
    return all(number(line.get(key)) is not None for key in keys)


def _line(metrics: Metrics, key: str, axis: _Axis, label: str, noisy: bool = False) -> Line | None:
    points = [(axis.place(line["step"]), line[key]) for line in metrics if _has(line, "step", key)]
    if not points:
        return None
    xs, ys = zip(*points, strict=True)
    return Line(label, xs, ys, noisy)


def _keys(metrics: Metrics, prefix: str) -> list[str]:
    """The keys with that prefix, in the order of their first appearance."""
    return list(dict.fromkeys(key for line in metrics for key in line if key.startswith(prefix)))


def _losses(prefix: str, metrics: Metrics, axis: _Axis) -> list[Chart]:
    terms = _keys(metrics, LOSS)
    several = len(terms) > 1
    names = {key: title(key.removeprefix(LOSS)) if several else "training" for key in terms}
    names[f"{VALIDATION}loss"] = "validation"
    lines = [_line(metrics, key, axis, name, key in terms) for key, name in names.items()]
    shown = [line for line in lines if line]
    name = _heading(prefix, "losses" if several else "loss")
    return [line_chart(name, shown, axis.label)] if shown else []


def _validation(prefix: str, metrics: Metrics, axis: _Axis) -> list[Chart]:
    """One chart for all validation metrics but the loss, if they were measured more than once."""
    keys = [key for key in _keys(metrics, VALIDATION) if key != f"{VALIDATION}loss"]
    lines = [_line(metrics, key, axis, title(key.removeprefix(VALIDATION))) for key in keys]
    shown = [line for line in lines if line and len(line.xs) > 1]
    return [line_chart(_heading(prefix, "validation"), shown, axis.label)] if shown else []


def _trials(run: Run) -> list[Chart]:
    """The trials side by side: the task's primary metric on dev, else the training loss."""
    trials = run.trials
    if not trials:
        return []
    names, task = list(trials)[:MOST_TRIALS], run.task
    chosen = run.summary.get("primary_metric")
    metrics = sorted(task.metrics, key=lambda one: one.name != chosen) if task else []
    primary = [(f"{VALIDATION}{one.name}", f"dev {one.title}") for one in metrics[:1]]
    for key, name in (*primary, *_first_loss(trials)):
        noisy = key.startswith(LOSS)
        lines = [_line(trials[trial], key, _Axis(trials[trial], "finetune"), trial, noisy) for trial in names]
        shown = [line for line in lines if line and len(line.xs) > 1]
        if shown:
            more = f" (the first {MOST_TRIALS} of {len(trials)})" if len(trials) > MOST_TRIALS else ""
            return [line_chart(f"Trials: {name}{more}", shown, "updates")]
    return []


def _first_loss(trials: dict[str, Metrics]) -> list[tuple[str, str]]:
    keys = [key for metrics in trials.values() for key in _keys(metrics, LOSS)]
    return [(key, "training loss") for key in keys[:1]]


def _throughput(metrics: Metrics, axis: _Axis) -> Line | None:
    """Tokens a second between two lines of metrics; the logged metric is the mean since the start."""
    lines = [line for line in metrics if _has(line, "step", "tokens", "seconds")]
    rates = []
    for before, line in zip([{"tokens": 0, "seconds": 0.0}, *lines], lines, strict=False):
        seconds = line["seconds"] - before["seconds"]
        if seconds > 0:
            rates.append((axis.place(line["step"]), (line["tokens"] - before["tokens"]) / seconds))
    if not rates:
        return None
    xs, ys = zip(*rates, strict=True)
    return Line("real tokens/s", xs, ys, noisy=True)
