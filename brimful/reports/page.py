"""The page: a section for each run and, before several of them, a table of them all."""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined

from brimful.reports.charts import Chart
from brimful.reports.choice import choice_charts
from brimful.reports.content import Fact, Headline, ReportTable, facts, plain, title
from brimful.reports.curves import main_charts, side_charts
from brimful.reports.demo import demo_charts, demo_tables
from brimful.reports.distil import distilled_tables
from brimful.reports.finetune import (
    SHOWN_KEYS,
    curve_charts,
    finetuned_charts,
    finetuned_tables,
    ladder_tables,
)
from brimful.reports.headline import headline
from brimful.reports.load import Run
from brimful.reports.prepared import prepared_charts, prepared_tables
from brimful.version import VERSION

ORIGIN = ("version", "versions", "machine", "environment", "git")
"""Keys of a summary that say where a run came from."""
MOST_ROWS = 200


@dataclass(frozen=True)
class Section:
    """All that the page shows of one run."""

    run: Run
    verdict: Headline
    overview: list[Chart]
    """The charts that say what came out."""
    tables: list[ReportTable]
    curves: list[Chart]
    side_curves: list[Chart]
    metrics: list[Fact]
    """The whole summary, nested."""
    metrics_first: bool
    """Whether there is nothing else to see."""
    origin: list[Fact]
    children: list["Section"]


def make_section(run: Run) -> Section:
    """All charts and words of a run."""
    curves = main_charts(run)
    tables = _TABLES.get(run.kind, _tables_of_records)(run.summary)
    overview = _OVERVIEWS[run.kind](run.summary) if run.kind in _OVERVIEWS else []
    if run.children or run.kind == "distil":
        overview = [*overview, *choice_charts([run])]
    shown = {
        key: value
        for key, value in run.summary.items()
        if not _records(value) and key not in ("kind", "length_histogram", "confusion", "selection", *ORIGIN)
    }
    return Section(
        run=run,
        verdict=headline(run),
        overview=overview,
        tables=tables,
        curves=curves,
        side_curves=side_charts(run),
        metrics=list(facts(shown)),
        metrics_first=not (curves or tables or overview),
        origin=list(facts({key: run.summary[key] for key in ORIGIN if key in run.summary})),
        children=[make_section(child) for child in run.children],
    )


def _records(value: Any) -> bool:
    """Whether a value is a list of mappings, which is a table."""
    return isinstance(value, list) and bool(value) and all(isinstance(item, dict) for item in value)


def _tables_of_records(summary: dict[str, Any]) -> list[ReportTable]:
    """Lists of mappings as tables, such as the trials of a fine-tuning."""
    tables = []
    for key, records in summary.items():
        if _records(records):
            columns = list(dict.fromkeys(column for record in records for column in record))
            rows = [
                [plain(record[name]) if name in record else "–" for name in columns]
                for record in records[:MOST_ROWS]
            ]
            note = f"The first {MOST_ROWS} of {len(records):,}." if len(records) > MOST_ROWS else ""
            tables.append(
                ReportTable(
                    title(key).capitalize(), [title(name).capitalize() for name in columns], rows, note
                )
            )
    return tables


def _tables_of_finetuning(summary: dict[str, Any]) -> list[ReportTable]:
    rest = {key: value for key, value in summary.items() if key not in SHOWN_KEYS}
    return [*ladder_tables(summary), *_tables_of_records(rest), *finetuned_tables(summary)]


_TABLES = {
    "demo": demo_tables,
    "prepare": prepared_tables,
    "finetune": _tables_of_finetuning,
    "distil": distilled_tables,
}
_OVERVIEWS = {
    "demo": demo_charts,
    "prepare": prepared_charts,
    "finetune": lambda summary: [*curve_charts(summary), *finetuned_charts(summary)],
}


def _side_by_side(sections: Sequence[Section]) -> ReportTable:
    """A row for each run, a column for each card that any of them has."""
    labels = list(dict.fromkeys(card.label for section in sections for card in section.verdict.cards))
    rows = []
    for section in sections:
        values = {card.label: card.value for card in section.verdict.cards}
        kind = section.run.kind if section.run.finished else f"{section.run.kind}, unfinished"
        rows.append([section.run.name, kind, *(values.get(label, "–") for label in labels)])
    return ReportTable("The runs side by side", ["Run", "Kind", *labels], rows)


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
    sections = [make_section(run) for run in runs]
    return environment.get_template("page.html.j2").render(
        title=", ".join(run.name for run in runs),
        sections=sections,
        table_of_runs=_side_by_side(sections) if len(sections) > 1 else None,
        choice=choice_charts(runs) if len(runs) > 1 else [],
        version=VERSION,
    )
