"""The page: which model to ship, then a section for each run; what repeats or explains is folded."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from itertools import count
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined

from brimful.reports.charts import Chart
from brimful.reports.choice import Choice, choice_headline, choice_of, choice_table, scatter_of
from brimful.reports.content import Fact, Headline, ReportTable, capitalized, facts, metric, plain, title
from brimful.reports.curves import main_charts, side_charts
from brimful.reports.demo import accuracy_charts, difference_tables, work_charts
from brimful.reports.distil import distilled_tables
from brimful.reports.evaluated import evaluated_tables
from brimful.reports.finetune import (
    SHOWN_KEYS,
    abstain_tables,
    calibration_charts,
    confusion_charts,
    curve_charts,
    label_tables,
    ladder_tables,
    metrics_table,
    odd_tables,
    trial_tables,
)
from brimful.reports.headline import headline
from brimful.reports.load import Run
from brimful.reports.prepared import prepared_charts, prepared_tables
from brimful.version import VERSION

ORIGIN = ("version", "versions", "machine", "environment", "git")
"""Keys of a summary that say where a run came from."""
MOST_ROWS = 200
COLUMNS = 6
"""Of the grid that charts lie in."""
PRODUCT = ("pretrain", "finetune", "evaluate", "distil", "run")
"""The kinds of runs whose section is open: the first of each kind."""


@dataclass(frozen=True)
class PageBlock:
    """Tables and charts with a heading; folded unless it decides something."""

    title: str
    tables: list[ReportTable]
    charts: list[Chart]
    is_open: bool = True
    anchor: str = ""

    @property
    def spans(self) -> list[int]:
        """The columns that each chart takes, so that every row of charts is full: one to three in a row."""
        n = len(self.charts)
        if n == 1:
            return [COLUMNS]
        halves = min(n, {0: 0, 1: 4, 2: 2}[n % 3])
        return [COLUMNS // 2] * halves + [COLUMNS // 3] * (n - halves)


@dataclass(frozen=True)
class Section:
    """All that the page shows of one run."""

    run: Run
    anchor: str
    verdict: Headline
    blocks: list[PageBlock]
    metrics: list[Fact]
    """The whole summary, nested."""
    origin: list[Fact]
    is_open: bool
    children: list["Section"]


def make_section(run: Run, anchor: str, is_open: bool = True, nested: bool = False) -> Section:
    """All charts and words of a run."""
    top, blocks = headline(run), _blocks(run)
    choice = None if nested else choice_of([run])
    if choice is not None and len(choice.candidates) > 1:
        top = _with_choice(top, choice, run)
        charts = scatter_of(choice)
        if run.kind in ("finetune", "distil", "evaluate"):  # those have a table of their own
            blocks[0] = replace(blocks[0], charts=[*charts, *blocks[0].charts])
        else:
            charts += accuracy_charts(run.summary) if run.kind == "demo" else []
            blocks = [PageBlock("Models", [choice_table(choice)], charts), *blocks]
    shown = [block for block in blocks if block.tables or block.charts]
    if nested:
        shown = [_folded(block, place) for place, block in enumerate(shown)]
    hidden = ("kind", "length_histogram", "confusion", "selection", *ORIGIN)
    summary = {k: v for k, v in run.summary.items() if not _records(v) and k not in hidden}
    firsts = _first_of_kinds(run.children)
    return Section(
        run=run,
        anchor=anchor,
        verdict=top,
        blocks=[replace(block, anchor=f"{anchor}-{place}") for place, block in enumerate(shown)],
        metrics=list(facts(summary)),
        origin=list(facts({key: run.summary[key] for key in ORIGIN if key in run.summary})),
        is_open=is_open,
        children=[
            make_section(child, f"{anchor}-run-{place}", place in firsts, nested=True)
            for place, child in enumerate(run.children)
        ],
    )


def _first_of_kinds(runs: Sequence[Run]) -> set[int]:
    """The places of the runs that are shown open: of each kind of the product the first."""
    kinds = [run.kind for run in runs]
    return {kinds.index(kind) for kind in PRODUCT if kind in kinds}


def _with_choice(top: Headline, choice: Choice, run: Run) -> Headline:
    """The verdict, with the model to ship; a demo's is that of its models."""
    ship = choice_headline(choice)
    if run.kind == "demo":
        return Headline([*ship.sentences, *top.sentences], [*ship.cards, *top.cards][:4])
    return Headline([*top.sentences, *ship.sentences], top.cards or ship.cards)


def _folded(block: PageBlock, place: int) -> PageBlock:
    """A block of a run inside a run: the first stays open."""
    return replace(block, is_open=block.is_open and place == 0)


def _blocks(run: Run) -> list[PageBlock]:
    """The tables and charts of a run, what decides first."""
    shown = _SHOWN.get(run.kind, ())
    rest = {key: value for key, value in run.summary.items() if key not in shown}
    return [
        *(_OF_KIND[run.kind](run) if run.kind in _OF_KIND else []),
        PageBlock("Curves", [], main_charts(run)),
        PageBlock("Learning rate, gradients, speed", [], side_charts(run), is_open=False),
        PageBlock("Tables", _tables_of_records(rest), [], is_open=False),
    ]


def _demo(run: Run) -> list[PageBlock]:
    return [
        PageBlock("Packing and time", [], work_charts(run.summary)),
        PageBlock("Differences and data", difference_tables(run.summary), [], is_open=False),
    ]


def _prepared(run: Run) -> list[PageBlock]:
    return [PageBlock("Corpus", prepared_tables(run.summary), prepared_charts(run.summary))]


def _finetuned(run: Run) -> list[PageBlock]:
    summary, metrics = run.summary, run.task_metrics
    titles, shares = {one.name: one.title for one in metrics}, {one.name for one in metrics if one.percent}
    return [
        PageBlock("Alternatives", ladder_tables(summary, metrics), curve_charts(summary)),
        PageBlock(
            "Metrics and labels",
            [*metrics_table(summary, titles, shares), *label_tables(summary)],
            confusion_charts(summary),
        ),
        PageBlock("Probabilities", abstain_tables(summary), calibration_charts(summary)),
        PageBlock("Rows to look at", odd_tables(summary), [], is_open=False),
        PageBlock("Trials", trial_tables(summary, shares), [], is_open=False),
    ]


def _distilled(run: Run) -> list[PageBlock]:
    return [PageBlock("Alternatives", distilled_tables(run.summary, run.task_metrics), [])]


def _evaluated(run: Run) -> list[PageBlock]:
    return [PageBlock("Models", evaluated_tables(run.summary, run.task_metrics), [])]


_OF_KIND: dict[str, Callable[[Run], list[PageBlock]]] = {
    "demo": _demo,
    "prepare": _prepared,
    "finetune": _finetuned,
    "distil": _distilled,
    "evaluate": _evaluated,
}


_SHOWN: dict[str, tuple[str, ...]] = {"finetune": SHOWN_KEYS, "evaluate": ("text", "models")}
"""Lists of a summary that have a table of their own."""


def _records(value: Any) -> bool:
    """Whether a value is a list of mappings, which is a table."""
    return isinstance(value, list) and bool(value) and all(isinstance(item, dict) for item in value)


def _tables_of_records(summary: dict[str, Any]) -> list[ReportTable]:
    """Lists of mappings as tables, such as the phases of a pretraining."""
    tables = []
    for key, records in summary.items():
        if _records(records):
            columns = list(dict.fromkeys(column for record in records for column in record))
            rows = [
                [plain(record[name]) if name in record else "–" for name in columns]
                for record in records[:MOST_ROWS]
            ]
            note = f"The first {MOST_ROWS} of {len(records):,}." if len(records) > MOST_ROWS else ""
            heads = [capitalized(title(name)) for name in columns]
            tables.append(ReportTable(capitalized(title(key)), heads, rows, note))
    return tables


def _verdict_of_all(sections: Sequence[Section], choice: Choice | None) -> Headline:
    """What several runs say together: which model to ship, else which pretraining has the lowest loss, else
    what came out of the last of them."""
    if choice is not None and len(choice.candidates) > 1:
        return choice_headline(choice)
    losses = [
        (loss, section.run)
        for section in sections
        if section.run.kind == "pretrain"
        and (loss := metric(section.run.summary, "validation.loss")) is not None
    ]
    if len(losses) > 1:
        losses.sort(key=lambda one: one[0])
        (best, first), *others = losses
        rest = ", ".join(f"{run.name} {loss:.2f}" for loss, run in others)
        same = len({str(run.config.get("data")) for _, run in losses}) == 1
        doubt = "" if same else " They are of different data, so they compare only with one vocabulary."
        return Headline(
            [f"{first.name} has the lowest loss on held-out text: {best:.2f}; {rest}.{doubt}"], []
        )
    finished = [section for section in sections if section.run.finished] or sections
    last = finished[-1]
    return Headline([f"{last.run.name}: {sentence}" for sentence in last.verdict.sentences[:1]], [])


def _side_by_side(sections: Sequence[Section]) -> list[ReportTable]:
    """A table for each kind of which there are several runs: a row for each, a column for each card."""
    tables = []
    for kind in dict.fromkeys(section.run.kind for section in sections):
        alike = [section for section in sections if section.run.kind == kind]
        labels = list(dict.fromkeys(card.label for section in alike for card in section.verdict.cards))
        if len(alike) < 2 or not labels:
            continue
        rows = []
        for section in alike:
            values = {card.label: card.value for card in section.verdict.cards}
            name = section.run.name + ("" if section.run.finished else ", unfinished")
            rows.append([name, *(values.get(label, "–") for label in labels)])
        note = "They compare only where their data are the same."
        tables.append(ReportTable(f"Runs of {kind}", ["Run", *labels], rows, note, decides=True))
    return tables


@dataclass(frozen=True)
class ContentsEntry:
    """A line of the table of contents."""

    anchor: str
    name: str


def _contents(sections: Sequence[Section], summary: PageBlock | None) -> list[ContentsEntry]:
    """The parts of the page: of one run without others inside it the blocks, else the runs."""
    entries = [ContentsEntry(summary.anchor, summary.title)] if summary else []
    for section in sections:
        if len(sections) > 1:
            entries.append(ContentsEntry(section.anchor, section.run.name))
        else:
            entries += [ContentsEntry(block.anchor, block.title) for block in section.blocks]
        entries += [ContentsEntry(child.anchor, child.run.name) for child in section.children]
    return entries if len(entries) > 1 else []


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
    several = len(runs) > 1
    firsts = _first_of_kinds(runs) if several else {0}
    numbers = count(1)
    sections = [
        make_section(run, f"run-{next(numbers)}", place in firsts, nested=several)
        for place, run in enumerate(runs)
    ]
    choice = choice_of(runs) if several else None
    summary = None
    if several:
        compared = choice is not None and len(choice.candidates) > 1
        tables = [*([choice_table(choice)] if choice and compared else []), *_side_by_side(sections)]
        charts = scatter_of(choice) if choice else []
        if tables or charts:
            summary = PageBlock("All runs", tables, charts, anchor="all")
    return environment.get_template("page.html.j2").render(
        title=", ".join(run.name for run in runs),
        sections=sections,
        verdict_of_all=_verdict_of_all(sections, choice) if several else None,
        summary=summary,
        contents=_contents(sections, summary),
        version=VERSION,
    )
