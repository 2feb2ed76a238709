"""What a run prints at its end: verdict, metrics and alternatives, from the same summary as the page."""

from collections.abc import Callable, Mapping
from typing import Any

from brimful.base.terminal import output_console
from brimful.reports.content import ReportTable, kind_of
from brimful.reports.distil import distilled_tables
from brimful.reports.evaluated import evaluated_tables
from brimful.reports.finetune import ladder_tables
from brimful.reports.headline import OF_TASK, headline_of
from brimful.reports.terminal_tables import print_tables

Summary = Mapping[str, Any]
TABLES: dict[str, Callable[..., list[ReportTable]]] = {
    "finetune": ladder_tables,
    "distil": distilled_tables,
    "evaluate": evaluated_tables,
}
"""The alternatives, by the verb, given the metrics of the task."""


def show_run(summary: Summary) -> None:
    """Print the end of a run: the verdict, its metrics, the alternatives. All else is in summary.json."""
    console = output_console()
    kind, task = kind_of(summary), None
    if kind in OF_TASK:
        from brimful.tasks.registry import known_task  # imports torch, which other runs don't need

        task = known_task(str(summary.get("task")))
    verdict = headline_of(kind, summary, task)
    for sentence in verdict.sentences:
        console.print(sentence, highlight=False)
    for card in verdict.cards:
        note = f"  ({card.note})" if card.note else ""
        console.print(f"  {card.label}: {card.value}{note}", highlight=False)
    metrics = () if task is None else task.metrics
    print_tables(TABLES[kind](summary, metrics) if kind in TABLES else [])
