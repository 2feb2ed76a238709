"""The page: what several runs say together, then a section for each of them; what explains is folded."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from brimful.base.numbers import capitalise, finite_number, format_percent, format_short, list_facts
from brimful.base.summary import (
    MeasuredOn,
    ModelResult,
    Series,
    Summary,
    SummaryChart,
    SummaryTable,
    compare_models,
    judge_models,
    make_table,
)
from brimful.reports.charts import COLOURS, DRAW, to_svg
from brimful.reports.run_records import Run, with_children
from brimful.version import VERSION

MIN_POINTS = 2
"""Points that make a picture."""
SPEEDS = (("milliseconds", "ms a text"), ("texts_per_second", "texts a second, many together"))
"""What the metric is drawn against: a field of ModelResult, and the name of the axis."""
LOSS, VALIDATION = "loss.", "validation."
COUNTERS = ("step", "tokens", "seconds")
"""Keys of metrics.jsonl that only grow, which no chart shows."""
MAX_CURVES = 6
"""Curves of a chart; of more, the first are shown."""


def render(runs: Sequence[Run]) -> str:
    """The page as HTML: self-contained, and every text from outside escaped."""
    environment = Environment(
        autoescape=True,
        loader=PackageLoader("brimful.reports", ""),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "svg": to_svg,
        "percent": format_percent,
        "short": format_short,
        "facts": list_facts,
        "tables": list_tables,
        "charts": list_charts,
    }
    together = [put_together(runs)] if len(runs) > 1 else []
    template = environment.get_template("page.html.j2")
    return template.render(together=together, runs=runs, colours=COLOURS, version=VERSION)


def list_tables(run: Run) -> list[SummaryTable]:
    """All tables of a run: its models side by side, then its own."""
    if run.summary is None:
        return []
    test, models = run.summary.test, run.summary.models
    compared = compare_models(test, models) if test is not None and len(models) > 1 else []
    return compared + run.summary.tables


def list_charts(run: Run) -> list[SummaryChart]:
    """All charts of a run: its models, its own, and its curves."""
    if run.summary is None:
        return draw_curves(run)
    test = run.summary.test
    compared = draw_scatter(test, run.summary.models) if test is not None else []
    drawn = [chart for chart in run.summary.charts if chart.kind in DRAW]
    return compared + drawn + draw_curves(run)


def put_together(runs: Sequence[Run]) -> Run:
    """What several runs say together: their models on the same test rows, else each run's own verdict."""
    groups = group_models(runs)
    compared = sorted((test for test in groups if len(groups[test]) > 1), key=lambda test: -len(groups[test]))
    tables, charts = [], []
    for test in compared:
        tables += compare_models(test, groups[test])
        charts += draw_scatter(test, groups[test])
    rows = [[run.name, run.title, run.verdict] for run in runs]
    tables += make_table("All runs", ["Run", "Kind", "What came out"], rows)
    verdict = f"{len(runs)} runs, of which no two models were measured on the same test rows."
    if compared:
        verdict = judge_models(compared[0], groups[compared[0]])
        lone = len(groups) - len(compared)
        verdict += f" {lone} measured on other test rows stand by themselves." if lone else ""
    summary = Summary("", verdict, tables, charts)
    return Run(path=Path(), name=f"{len(runs)} runs", facts={}, summary=summary)


def group_models(runs: Sequence[Run]) -> dict[MeasuredOn, list[ModelResult]]:
    """The models of all runs by what they were measured on, each called by the name of its run.

    A model that several runs measured, such as a teacher, stands once: as the run that made it says, with the
    times that another run took in turns with its own model.
    """
    names = {run.path: run.name for run in with_children(runs)}
    groups: dict[MeasuredOn, dict[str, ModelResult]] = {}
    for run in runs:
        if run.summary is None or run.summary.test is None:
            continue
        group = groups.setdefault(run.summary.test, {})
        renamed = {model.name: _name_model(model, run, names, group) for model in run.summary.models}
        for model in run.summary.models:
            name = renamed[model.name]
            pairs = {renamed.get(other, other): error for other, error in model.pairs.items()}
            there = group.get(name)
            if there is None or model.is_own:
                group[name] = replace(model, name=name, pairs=pairs, **_times_of(there))
            elif model.folder:  # only times of the same minutes can be compared
                group[name] = replace(there, **_times_of(model))
    return {test: list(group.values()) for test, group in groups.items()}


def _times_of(model: ModelResult | None) -> dict[str, Any]:
    """What a model takes, as far as it was measured."""
    names = ("milliseconds", "texts_per_second", "megabytes")
    return {name: getattr(model, name) for name in names if getattr(model, name, None) is not None}


def _name_model(
    model: ModelResult, run: Run, names: Mapping[Path, str], group: Mapping[str, ModelResult]
) -> str:
    """The name of a model beside those of other runs: its run's, or its own, with its run's where another
    model of other values has that name."""
    name = run.name if model.is_own else model.name
    if model.folder:
        folder = (run.path / model.folder).resolve()
        name = names.get(folder.parent if folder.name == "model" else folder, name)
    is_taken = name in group and group[name].value != model.value
    return f"{name}, in {run.name}" if is_taken else name


def draw_scatter(test: MeasuredOn, models: Sequence[ModelResult]) -> list[SummaryChart]:
    """The metric of the models against their speeds; no chart where fewer than two have one."""
    charts = []
    for field, axis in SPEEDS:
        points = []
        for model in models:
            speed = getattr(model, field)
            if speed:
                errors = [model.error] if model.error else []
                points.append(Series(model.name, [float(speed)], [model.value], errors))
        if len(points) >= MIN_POINTS:
            title = f"{capitalise(test.metric)} against {axis}"
            note = "From text to answer, on the machine of each run. Bars: standard error."
            charts.append(SummaryChart(title, "points", axis, test.metric, points, note, share=test.share))
    return charts


def draw_curves(run: Run) -> list[SummaryChart]:
    """metrics.jsonl as charts: one for all losses, one for each metric of validation and other number."""
    found: dict[str, list[Series]] = {}
    for folder, lines in run.metrics.items():
        for key in dict.fromkeys(key for line in lines for key in line if key not in COUNTERS):
            pairs = [(finite_number(line.get("step")), finite_number(line.get(key))) for line in lines]
            points = [(float(x), float(y)) for x, y in pairs if x is not None and y is not None]
            if len(points) < MIN_POINTS:
                continue
            is_loss = key.startswith(LOSS) or key in ("loss", f"{VALIDATION}loss")
            name = f"{folder} {key.removeprefix(LOSS).replace('.', ' ')}".strip()
            curve = Series(name, [x for x, _ in points], [y for _, y in points])
            found.setdefault("loss" if is_loss else key, []).append(curve)
    charts = []
    for name, curves in found.items():
        more = f"The first {MAX_CURVES} of {len(curves)}." if len(curves) > MAX_CURVES else ""
        is_detail = name != "loss" and not name.startswith(VALIDATION)
        title, shown = capitalise(name.replace(".", ": ")), curves[:MAX_CURVES]
        charts.append(SummaryChart(title, "lines", "updates", name, shown, more, is_detail=is_detail))
    return sorted(charts, key=lambda chart: (chart.is_detail, chart.y != "loss"))
