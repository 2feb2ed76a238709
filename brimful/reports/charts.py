"""A SummaryChart as inline SVG: lines over x, or points with their names.

Matplotlib draws with placeholder colours, and each is then replaced by `var(--name)`: one drawing serves the
light page and the dark one. Text stays text, in the page's font. The same chart gives the same bytes.
"""

import io
import math
import re
import warnings
from typing import Any

import matplotlib
import matplotlib.style
from markupsafe import escape
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator

from brimful.base.numbers import NARROW_SPACE, format_percent, format_short
from brimful.base.summary import SummaryChart

COLOURS = ("c1", "c2", "c3", "c4", "c5", "c6")
"""Names of the page's colours of curves and points."""
_PLACEHOLDERS = {name: f"#0000{i:02x}" for i, name in enumerate(("ink", "muted", "grid", *COLOURS), 1)}
"""Colours that occur nowhere else in a drawing, by the names of the page's colours."""
_STYLE = {
    "axes.prop_cycle": f"cycler('color', {list(_PLACEHOLDERS.values())[-len(COLOURS) :]})",
    "svg.fonttype": "none",
    "text.parse_math": False,
    "font.size": 9,
    "text.color": _PLACEHOLDERS["ink"],
    "axes.edgecolor": _PLACEHOLDERS["grid"],
    "axes.labelcolor": _PLACEHOLDERS["muted"],
    "axes.facecolor": "none",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
    "xtick.color": _PLACEHOLDERS["muted"],
    "ytick.color": _PLACEHOLDERS["muted"],
    "xtick.major.size": 0,
    "ytick.major.size": 0,
    "grid.color": _PLACEHOLDERS["grid"],
    "figure.facecolor": "none",
    "figure.constrained_layout.use": True,
}
WIDTH_INCHES, HEIGHT_INCHES = 4.5, 2.5
MAX_NAME_LETTERS = 32
"""Letters of a point's name."""


def to_svg(chart: SummaryChart) -> str:
    """Return the chart as an <svg> element for an HTML page, with its numbers as text for screen readers."""
    description = describe_chart(chart)
    drawing, file = draw_chart(chart), io.StringIO()
    with (
        warnings.catch_warnings(),
        matplotlib.style.context(["default", _STYLE]),
        matplotlib.rc_context({"svg.hashsalt": description}),
    ):
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")  # the browser has it
        drawing.savefig(file, format="svg", metadata=dict.fromkeys(("Date", "Creator", "Format", "Type")))
    text = file.getvalue()
    # The page gives the size and the description, so only what is inside of <svg> is kept.
    width, height = drawing.get_size_inches() * 72
    head = f'<svg class="chart" viewBox="0 0 {width:g} {height:g}" role="img"'
    body = text[text.index(">", text.index("<svg")) + 1 :]
    body = re.sub(r'<g id="[^"]*">', "<g>", body)  # every chart has the same
    for name, colour in _PLACEHOLDERS.items():
        body = body.replace(colour, f"var(--{name})")
    return f'{head} aria-label="{escape(description)}">{body.strip()}'


def describe_chart(chart: SummaryChart) -> str:
    """Return what a chart shows, in words."""
    show = format_percent if chart.share else format_short
    parts = []
    for series in chart.series:
        if chart.kind == "lines":
            parts.append(f"{series.name} from {show(series.ys[0])} to {show(series.ys[-1])}")
        else:
            pairs = zip(series.xs, series.ys, strict=True)
            values = ", ".join(f"{format_short(float(x))}: {show(y)}" for x, y in pairs)
            parts.append(f"{series.name} {values}".strip())
    return f"{chart.title}, {chart.y} by {chart.x}. {'; '.join(parts)}"


def draw_chart(chart: SummaryChart) -> Figure:
    """Draw a chart, for `to_svg`, or for a test of where its labels are."""
    with matplotlib.style.context(["default", _STYLE]):  # the user's own matplotlibrc decides nothing
        drawing = Figure(figsize=(WIDTH_INCHES, HEIGHT_INCHES))
        DRAW[chart.kind](chart, drawing, drawing.add_subplot())
        return drawing


def _draw_lines(chart: SummaryChart, drawing: Figure, axes: Axes) -> None:
    """Draw curves over one axis, which is logarithmic where they end at very different sizes."""
    ends, lowest = list[float](), math.inf
    for series in chart.series:
        axes.plot(series.xs, series.ys)
        ends.append(series.ys[-1])
        lowest = min(lowest, *series.ys)
    _format_axis(axes.xaxis)
    _format_axis(axes.yaxis, chart.share, is_logarithmic=lowest > 0 and max(ends) > 10 * min(ends))
    axes.grid(axis="y")
    axes.set_xlabel(chart.x)


def _draw_points(chart: SummaryChart, drawing: Figure, axes: Axes) -> None:
    """Draw points with their errors over a logarithmic x; each series is a point.

    The names stand in a column to the right, in the order of the points, so that they do not overlap.
    """
    # A line of 0.22 inches for each name.
    drawing.set_figheight(max(HEIGHT_INCHES, 0.22 * len(chart.series) + 0.8))
    for series in chart.series:
        axes.errorbar(series.xs, series.ys, yerr=series.errors or None, fmt="o", markersize=5)
    axes.margins(x=0.15, y=0.15)
    _format_axis(axes.xaxis, is_logarithmic=True)
    _format_axis(axes.yaxis, chart.share)
    axes.grid(axis="y")
    axes.set_xlabel(chart.x)
    line = {"arrowstyle": "-", "color": _PLACEHOLDERS["muted"], "linewidth": 0.6, "relpos": (0, 0.5)}
    ordered = sorted(chart.series, key=lambda point: point.ys[0])
    for place, point in enumerate(ordered):
        name = point.name
        if len(name) > MAX_NAME_LETTERS:
            name = f"{name[: MAX_NAME_LETTERS - 1]}…"
        axes.annotate(
            name,
            (float(point.xs[0]), point.ys[0]),
            xytext=(1.06, (place + 0.5) / len(ordered)),
            textcoords="axes fraction",
            va="center",
            fontsize=8,
            arrowprops=line,
        )


def _format_axis(axis: Any, share: bool = False, *, is_logarithmic: bool = False) -> None:
    """Give an axis few round numbers, as short as possible."""
    if is_logarithmic:
        axis.axes.set(**{f"{axis.axis_name}scale": "log"})
        low, high = axis.get_view_interval()
        axis.set_major_locator(LogLocator(subs=(1, 2, 5) if high < 50 * low else (1,), numticks=5))
        axis.set_minor_locator(NullLocator())
    else:
        axis.set_major_locator(MaxNLocator(4, steps=(1, 2, 5, 10)))

    def format_tick(value: float, _: int) -> str:
        if share:
            return f"{100 * value:g}{NARROW_SPACE}%"
        return format_short(value)

    axis.set_major_formatter(format_tick)


DRAW = {"lines": _draw_lines, "points": _draw_points}
"""Functions that draw each kind of SummaryChart."""
