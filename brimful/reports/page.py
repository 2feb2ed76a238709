"""The page: a comparison of several runs, then a section for each run, with details folded."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined

from brimful.base.numbers import capitalise, finite_number, format_percent, format_short, list_facts
from brimful.base.summary import (
    MeasuredOn,
    ModelResult,
    Series,
    Summary,
    SummaryChart,
    SummaryTable,
    judge_models,
    make_table,
)
from brimful.base.types import Values
from brimful.reports.charts import COLOURS, DRAW, to_svg
from brimful.reports.model_table import compare_models
from brimful.reports.run_records import Run, walk_runs
from brimful.version import VERSION

MIN_POINTS = 2
"""Points of a chart."""
SPEEDS = (("milliseconds", "ms a text"), ("texts_per_second", "texts a second, many together"))
"""Fields of ModelResult that the metric is drawn against, and the names of their axes."""
LOSS, VALIDATION = "loss.", "validation."
COUNTERS = ("step", "tokens", "seconds")
"""Keys of metrics.jsonl that only grow: no chart shows them."""
MAX_CURVES = 6
"""Curves of a chart; if there are more, the first are shown."""


def render(runs: Sequence[Run]) -> str:
    """Return the page as HTML: self-contained, and every text from outside escaped."""
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
    together = []
    if len(runs) > 1:
        together = [put_together(runs)]
    template = environment.get_template("page.html.j2")
    return template.render(together=together, runs=runs, colours=COLOURS, version=VERSION)


def list_tables(run: Run) -> list[SummaryTable]:
    """Return all tables of a run: its models side by side, then its own."""
    if run.summary is None:
        return []
    test, models = run.summary.test, run.summary.models
    if test is None or len(models) < 2:
        return run.summary.tables
    return compare_models(test, models) + run.summary.tables


def list_charts(run: Run) -> list[SummaryChart]:
    """Return all charts of a run: its models, its own, and its curves."""
    charts: list[SummaryChart] = []
    if run.summary is not None:
        if run.summary.test is not None:
            charts += draw_scatter(run.summary.test, run.summary.models)
        for chart in run.summary.charts:
            if chart.kind in DRAW:  # summaries of earlier versions may have other kinds
                charts.append(chart)
    return charts + draw_curves(run)


def put_together(runs: Sequence[Run]) -> Run:
    """Return a comparison of several runs: their models on the same test rows, and each run's verdict."""
    groups = group_models(runs)
    compared, tables, charts = [], [], []
    for test in sorted(groups, key=lambda test: -len(groups[test])):
        if len(groups[test]) > 1:
            compared.append(test)
            tables += compare_models(test, groups[test])
            charts += draw_scatter(test, groups[test])
    rows = [[run.name, run.title, run.verdict] for run in runs]
    tables += make_table("All runs", ["Run", "Kind", "What came out"], rows)
    verdict = f"{len(runs)} runs, of which no two models were measured on the same test rows."
    if compared:
        verdict = judge_models(compared[0], groups[compared[0]])
        lone = len(groups) - len(compared)
        if lone:
            verdict += f" {lone} measured on other test rows stand by themselves."
    summary = Summary("", verdict, tables, charts)
    return Run(path=Path(), name=f"{len(runs)} runs", facts={}, summary=summary)


def group_models(runs: Sequence[Run]) -> dict[MeasuredOn, list[ModelResult]]:
    """Group the models of all runs by the test rows of their metric, each under the name of its run.

    A model that several runs measured, such as a teacher, stands once, with the metric from the run that made
    it. Its times are from the run that measured it in turns with its own model.
    """
    names = {run.path: run.name for run in walk_runs(runs)}
    groups: dict[MeasuredOn, dict[str, ModelResult]] = {}
    for run in runs:
        if run.summary is None or run.summary.test is None:
            continue
        group = groups.setdefault(run.summary.test, {})
        # All names first: models name each other in their pairs.
        renamed = {model.name: _name_model(model, run, names, group) for model in run.summary.models}
        for model in run.summary.models:
            name = renamed[model.name]
            pairs = {renamed.get(other, other): error for other, error in model.pairs.items()}
            earlier = group.get(name)
            if earlier is None or model.is_own:
                group[name] = replace(model, name=name, pairs=pairs, **_read_costs(earlier))
            elif model.folder:  # only times of the same minutes can be compared
                group[name] = replace(earlier, **_read_costs(model))
    return {test: list(group.values()) for test, group in groups.items()}


def _read_costs(model: ModelResult | None) -> Values:
    """Return the times and the size of a model, as far as they were measured."""
    costs = {}
    for name in ("milliseconds", "texts_per_second", "megabytes"):
        value = getattr(model, name, None)
        if value is not None:
            costs[name] = value
    return costs


def _name_model(
    model: ModelResult, run: Run, names: Mapping[Path, str], group: Mapping[str, ModelResult]
) -> str:
    """Return the name of a model among models of other runs: the name of the run that made it, else its own.

    The name of its run is added where a model with another value has the same name.
    """
    name = run.name if model.is_own else model.name
    if model.folder:
        folder = (run.path / model.folder).resolve()
        if folder.name == "model":  # the folder of a run's model stands for the run
            folder = folder.parent
        name = names.get(folder, name)
    if name in group and group[name].value != model.value:
        return f"{name}, in {run.name}"
    return name


def draw_scatter(test: MeasuredOn, models: Sequence[ModelResult]) -> list[SummaryChart]:
    """Draw the metric of the models against their speeds; no chart where fewer than two have one."""
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
    """Draw metrics.jsonl: one chart for all losses, one for each metric of validation and other number."""
    curves_of: dict[str, list[Series]] = {}
    for folder, lines in run.metrics.items():
        for key, (xs, ys) in _read_points(lines).items():
            if len(xs) < MIN_POINTS:  # a number that was logged once
                continue
            name = f"{folder} {key.removeprefix(LOSS).replace('.', ' ')}".strip()
            if key.startswith(LOSS) or key == f"{VALIDATION}loss":
                key = "loss"
            curves_of.setdefault(key, []).append(Series(name, xs, ys))
    charts = []
    for name, curves in curves_of.items():
        note = ""
        if len(curves) > MAX_CURVES:
            note = f"The first {MAX_CURVES} of {len(curves)}."
        is_detail = name != "loss" and not name.startswith(VALIDATION)
        title, drawn = capitalise(name.replace(".", ": ")), curves[:MAX_CURVES]
        charts.append(SummaryChart(title, "lines", "updates", name, drawn, note, is_detail=is_detail))
    return sorted(charts, key=lambda chart: (chart.is_detail, chart.y != "loss"))


Points = dict[str, tuple[list[float], list[float]]]
"""Updates, and values there, of each number in a metrics.jsonl."""


def _read_points(lines: Sequence[Values]) -> Points:
    """Return the points of each curve in a metrics.jsonl."""
    points: Points = {}
    for line in lines:
        step = finite_number(line.get("step"))
        for key, number in line.items():
            value = finite_number(number)
            if step is not None and value is not None and key not in COUNTERS:
                xs, ys = points.setdefault(key, ([], []))
                xs.append(float(step))
                ys.append(float(value))
    return points
