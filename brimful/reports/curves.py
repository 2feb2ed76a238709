"""metrics.jsonl as charts: any number over the updates, losses and validation first."""

from collections.abc import Mapping
from typing import Any

from brimful.base.numbers import in_words, number
from brimful.base.summary import Series, SummaryChart
from brimful.reports.load import Run

LOSS, VALIDATION = "loss.", "validation."
PROPORTIONS = ("accuracy", "validation.accuracy", "fill", "data_wait", "lag", "communication", "withheld")
"""Keys whose numbers are shown in percent."""
COUNTERS = ("step", "tokens", "seconds")
"""Keys that only grow, which no chart shows."""
MAX_CURVES = 6
"""Curves of a chart; of more, the first are shown."""


def draw_curves(run: Run) -> list[SummaryChart]:
    """A chart for the losses, one for each metric of validation, and one for each other number."""
    found: dict[str, list[Series]] = {}
    for folder, lines in run.metrics.items():
        if folder and lines == run.metrics.get(""):  # the trial that the run kept
            continue
        for key in dict.fromkeys(key for line in lines for key in line):
            curve = _read_curve(lines, key, folder)
            if curve is not None and key not in COUNTERS:
                found.setdefault(_chart_of(key), []).append(curve)
    charts = []
    for name, curves in found.items():
        more = f"The first {MAX_CURVES} of {len(curves)}." if len(curves) > MAX_CURVES else ""
        is_detail = name != "loss" and not name.startswith(VALIDATION)
        title = in_words(name.replace(".", ": "))
        shown = curves[:MAX_CURVES]
        share = name in PROPORTIONS
        chart = SummaryChart(title, "lines", "updates", name, shown, more, share=share, is_detail=is_detail)
        charts.append(chart)
    return sorted(charts, key=lambda chart: (chart.is_detail, chart.y != "loss"))


def _chart_of(key: str) -> str:
    """The chart that shows a key: all losses stand in one."""
    is_loss = key.startswith(LOSS) or key in ("loss", f"{VALIDATION}loss")
    return "loss" if is_loss else key


def _read_curve(lines: list[dict[str, Any]], key: str, folder: str) -> Series | None:
    """A number over the updates; None where fewer than two lines have it."""
    points = [(line["step"], line[key]) for line in lines if _has_number(line, key)]
    if len(points) < 2:
        return None
    shown = key.removeprefix(LOSS).replace(".", " ").replace("_", " ")
    name = " ".join(part for part in (folder, shown) if part)
    return Series(name, [float(x) for x, _ in points], [float(y) for _, y in points])


def _has_number(line: Mapping[str, Any], key: str) -> bool:
    return number(line.get("step")) is not None and number(line.get(key)) is not None
