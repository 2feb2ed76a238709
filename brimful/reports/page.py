"""The page: what several runs say together, then a section for each of them; what explains is folded."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined

from brimful.base.numbers import list_facts
from brimful.base.summary import (
    MeasuredOn,
    ModelResult,
    Series,
    SummaryChart,
    SummaryTable,
    compare_models,
    judge_models,
    make_table,
)
from brimful.reports.charts import list_legend, to_svg
from brimful.reports.curves import draw_curves
from brimful.reports.load import Run, with_children
from brimful.version import VERSION

MIN_POINTS = 2
"""Models that make a picture."""
SPEEDS = (("milliseconds", "ms a text"), ("texts_per_second", "texts a second, many together"))
"""What the metric is drawn against: a field of ModelResult, and the name of the axis."""

Groups = dict[MeasuredOn, list[ModelResult]]


@dataclass(frozen=True)
class Section:
    """All that the page shows of one run, or of all together."""

    anchor: str
    name: str
    title: str
    verdict: str
    tables: list[SummaryTable]
    charts: list[SummaryChart]
    facts: list[tuple[str, str]]
    config_text: str
    finished: bool
    children: "list[Section]"


def render(runs: Sequence[Run]) -> str:
    """The page as HTML: self-contained, and every text from outside escaped."""
    files = resources.files(__package__)
    environment = Environment(
        autoescape=True,
        loader=FunctionLoader(lambda name: files.joinpath(name).read_text(encoding="utf-8")),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"svg": to_svg, "legend": list_legend}
    sections = [_make_section(run, f"run-{place}") for place, run in enumerate(runs, 1)]
    together = _put_together(runs) if len(runs) > 1 else None
    return environment.get_template("page.html.j2").render(
        title=", ".join(run.name for run in runs),
        together=together,
        sections=sections,
        contents=list(_list_sections([*([together] if together else []), *sections])),
        version=VERSION,
    )


def _list_sections(sections: Sequence[Section]) -> Iterator[Section]:
    """All sections in the order of the page."""
    for section in sections:
        yield section
        yield from _list_sections(section.children)


def _make_section(run: Run, anchor: str) -> Section:
    """All tables, charts and words of a run; its own models are compared first."""
    summary, tables, charts = run.summary, [], []
    if summary is not None:
        if summary.test is not None and len(summary.models) > 1:
            tables += compare_models(summary.test, summary.models)
            charts += draw_scatter(summary.test, summary.models)
        tables += summary.tables
        charts += summary.charts
    return Section(
        anchor=anchor,
        name=run.name,
        title=run.title,
        verdict=run.verdict,
        tables=tables,
        charts=charts + draw_curves(run),
        facts=list(list_facts(run.facts)),
        config_text=run.config_text,
        finished=run.finished,
        children=[_make_section(child, f"{anchor}-{place}") for place, child in enumerate(run.children, 1)],
    )


def _put_together(runs: Sequence[Run]) -> Section:
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
    name = f"{len(runs)} runs"
    return Section("all", name, "", verdict, tables, charts, [], "", True, [])


def group_models(runs: Sequence[Run]) -> Groups:
    """The models of all runs by what they were measured on, each called by the name of its run.

    The same model may be in several runs, such as a teacher: it stands once, with all that any of them says
    of it. A run whose Summary has models, such as a demo's, speaks for the runs inside it.
    """
    names = {run.path: run.name for run in with_children(runs)}
    groups: Groups = {}
    for run in _list_speakers(runs):
        if run.summary is None or run.summary.test is None:
            continue
        group = groups.setdefault(run.summary.test, [])
        renamed = {model.name: _name_model(model, run, names, group) for model in run.summary.models}
        for model in run.summary.models:
            pairs = {renamed.get(name, name): error for name, error in model.pairs.items()}
            _add_model(group, replace(model, name=renamed[model.name], pairs=pairs))
    return groups


def _list_speakers(runs: Sequence[Run]) -> Iterator[Run]:
    """The runs with models, and without them the runs inside a run."""
    for run in runs:
        if run.summary is not None and run.summary.models:
            yield run
        else:
            yield from _list_speakers(run.children)


def _name_model(model: ModelResult, run: Run, names: Mapping[Any, str], group: Sequence[ModelResult]) -> str:
    """The name of a model beside those of other runs: its run's, or its own, with its run's where another
    model of other values has that name."""
    name = run.name if model.is_own else model.name
    if model.folder:
        folder = (run.path / model.folder).resolve()
        name = names.get(folder.parent if folder.name == "model" else folder, name)
    is_taken = any(other.name == name and other.value != model.value for other in group)
    return f"{name}, in {run.name}" if is_taken else name


def _add_model(group: list[ModelResult], model: ModelResult) -> None:
    """Add a model to those of its test rows, or what is known of it to the one that is there."""
    for place, known in enumerate(group):
        if known.name == model.name:
            timed = known if known.milliseconds or not model.milliseconds else model
            group[place] = replace(
                timed,
                pairs=model.pairs | known.pairs,
                error=model.error if known.error is None else known.error,
                megabytes=known.megabytes or model.megabytes,
                parameters=known.parameters or model.parameters,
                seconds=known.seconds or model.seconds,
            )
            return
    group.append(model)


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
            title = f"{test.metric[:1].upper()}{test.metric[1:]} against {axis}"
            note = "From text to answer, on the machine of each run. Bars: standard error."
            charts.append(SummaryChart(title, "points", axis, test.metric, points, note, share=test.share))
    return charts
