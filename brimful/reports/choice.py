"""The models of a page's runs by their metric and by the time of one text: what a user chooses between."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from brimful.reports.charts import Chart, Point, scatter_chart
from brimful.reports.content import branch, metric, title
from brimful.reports.finetune import RUNGS
from brimful.reports.load import Run

if TYPE_CHECKING:
    from brimful.tasks.task import Metric

FEWEST = 3
"""Models that make a picture."""


@dataclass(frozen=True)
class Measured:
    """A model that was measured on a test table, and timed.

    Attributes:
        test: the task, the metric and the number of test texts: only models of the same are compared.
    """

    test: tuple[str, str, float]
    point: Point
    primary: "Metric"


def choice_charts(runs: Sequence[Run]) -> list[Chart]:
    """The metric of the models of all runs, and of the runs inside them, against the time of one text.

    Of several test tables, the one that most models were measured on is shown. The same model may be in
    several runs, such as a teacher; it is drawn once.
    """
    every: dict[tuple[str, str, float], dict[tuple[str, float], Measured]] = {}
    for found in _of_runs(runs):
        every.setdefault(found.test, {}).setdefault((found.point.label, found.point.y), found)
    if not every:
        return []
    chosen = list(max(every.values(), key=len).values())
    if len(chosen) < FEWEST:
        return []
    primary, (_, _, n) = chosen[0].primary, chosen[0].test
    note = (
        f"{n:,.0f} test texts. Times are medians on the CPU of the machine that made the run, from text to"
        " answer; they compare only where that was one machine. Bars: the deviation over seeds."
    )
    kind = primary.title[:1].upper() + primary.title[1:]
    points = [each.point for each in chosen]
    return [
        scatter_chart(
            f"{kind} against the time of one text",
            points,
            "ms a text",
            higher_is_better=primary.best == "highest",
            percent=primary.percent,
            note=note,
        )
    ]


def _of_runs(runs: Iterable[Run]) -> Iterator[Measured]:
    for run in runs:
        yield from _of_run(run)
        yield from _of_runs(run.children)


def _of_run(run: Run) -> Iterator[Measured]:
    """The models of a run of finetune or distil."""
    if run.kind not in ("finetune", "distil") or (task := run.task) is None:
        return
    chosen = run.summary.get("primary_metric")
    primary = next((one for one in task.metrics if one.name == chosen), task.metrics[0])
    n = metric(run.summary, "test.n")
    places = [(run.name, "test", "latency_ms")]
    for key in branch(run.summary, "baselines"):
        places.append((RUNGS.get(key, title(key)), f"baselines.{key}", f"baselines.{key}.latency_ms"))
    if run.kind == "distil":
        places = [
            (run.name, "student", "latency_ms.student"),
            (f"{run.name}, from labels alone", "student_without_distillation", "latency_ms.student"),
            ("Teacher's layers, by logits alone", "student_layer_drop", "latency_ms.student_layer_drop"),
            ("Teacher", "teacher", "latency_ms.teacher"),
            (RUNGS["tfidf"], "tfidf", "latency_ms.tfidf"),
        ]
    for label, place, time in places:
        value, milliseconds = metric(run.summary, f"{place}.{primary.name}"), metric(run.summary, time)
        if n is None or value is None or not milliseconds:
            continue
        spread = metric(run.summary, f"{place}.{primary.name}_std") or 0.0
        yield Measured((task.name, primary.name, n), Point(label, milliseconds, value, spread), primary)
