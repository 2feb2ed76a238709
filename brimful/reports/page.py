"""The page: each run as a section of its own, and before them, if they are several, a table of them all."""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata, resources
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined

from brimful.reports.cards import Headline
from brimful.reports.charts import Chart
from brimful.reports.comparison import Table, comparison_charts, comparison_tables
from brimful.reports.curves import main_charts, side_charts
from brimful.reports.figures import Fact, facts, plain, title
from brimful.reports.headline import headline
from brimful.reports.load import Run

ORIGIN = ("version", "versions", "machine", "environment", "git")
"""Keys of a summary that say where a run came from."""
MOST_ROWS = 200


@dataclass(frozen=True)
class Section:
    """All that the page shows of one run."""

    run: Run
    verdict: Headline
    overview: list[Chart]
    """The verdict as charts of bars."""
    tables: list[Table]
    curves: list[Chart]
    side_curves: list[Chart]
    figures: list[Fact]
    """The whole summary, nested."""
    figures_first: bool
    """Whether those figures are all there is to see."""
    origin: list[Fact]
    children: list["Section"]


def make_section(run: Run) -> Section:
    """Draw and word everything that is shown of a run."""
    demo = run.kind == "demo"
    curves = main_charts(run)
    tables = comparison_tables(run.summary) if demo else _tables_of_records(run.summary)
    overview = comparison_charts(run.summary) if demo else []
    shown = {
        key: value
        for key, value in run.summary.items()
        if not _records(value) and key not in ("kind", *ORIGIN)
    }
    return Section(
        run=run,
        verdict=headline(run),
        overview=overview,
        tables=tables,
        curves=curves,
        side_curves=side_charts(run),
        figures=list(facts(shown)),
        figures_first=not (curves or tables or overview),
        origin=list(facts({key: run.summary[key] for key in ORIGIN if key in run.summary})),
        children=[make_section(child) for child in run.children],
    )


def _records(value: Any) -> bool:
    """Whether a value is a list of mappings, which is a table."""
    return isinstance(value, list) and bool(value) and all(isinstance(item, dict) for item in value)


def _tables_of_records(summary: dict[str, Any]) -> list[Table]:
    """Lists of mappings as tables: the trials of a fine-tuning and their like."""
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
                Table(title(key).capitalize(), [title(name).capitalize() for name in columns], rows, note)
            )
    return tables


def _side_by_side(sections: Sequence[Section]) -> Table:
    """A row for each run, a column for each card that any of them has."""
    labels = list(dict.fromkeys(card.label for section in sections for card in section.verdict.cards))
    rows = []
    for section in sections:
        values = {card.label: card.value for card in section.verdict.cards}
        kind = section.run.kind if section.run.finished else f"{section.run.kind}, unfinished"
        rows.append([section.run.name, kind, *(values.get(label, "–") for label in labels)])
    return Table("The runs side by side", ["Run", "Kind", *labels], rows)


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
        version=metadata.version("brimful"),
    )
