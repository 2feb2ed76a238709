"""The charts of a page: curves, bars, values with their errors, and histograms, as inline SVG.

Matplotlib draws with placeholder colours, and each is then replaced by `var(--name)`: one drawing serves the
light page and the dark one. Text stays text, in the page's font. The same drawing gives the same bytes.
"""

import io
import re
import warnings
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from markupsafe import escape

from brimful.reports.content import SPACE, short, tick

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SERIES = ("c1", "c2", "c3", "c4", "c5", "c6")
"""Names of the colours of curves and bars."""
_STAND_IN = {name: f"#0000{number:02x}" for number, name in enumerate(("ink", "muted", "grid", *SERIES), 1)}
_NAMES = {colour: name for name, colour in _STAND_IN.items()}
_STYLE = {
    "svg.fonttype": "none",
    "text.parse_math": False,
    "font.size": 9,
    "text.color": _STAND_IN["ink"],
    "axes.edgecolor": _STAND_IN["grid"],
    "axes.labelcolor": _STAND_IN["muted"],
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
    "axes.axisbelow": True,
    "xtick.color": _STAND_IN["muted"],
    "ytick.color": _STAND_IN["muted"],
    "xtick.major.size": 0,
    "ytick.major.size": 0,
    "grid.color": _STAND_IN["grid"],
    "grid.linewidth": 0.7,
    "figure.constrained_layout.use": True,
}


STEPS = (1, 2, 5, 10)
MOST_POINTS = 300
MOST_MARKERS = 40
MOST_LETTERS = 14
"""Of a label beside a square of counts."""
LARGE, SMALL, WIDE = (4.5, 2.5), (3.0, 1.75), 4.5
"""Inches: a main chart, a side chart, and the width of a chart of bars."""


@dataclass(frozen=True)
class Line:
    """One curve: its name in the legend, and its points."""

    label: str
    xs: Sequence[float]
    ys: Sequence[float]
    noisy: bool = False
    """Draw the values faintly, and their moving average over them."""
    caption: str = ""
    """What the legend says; by default the label and the last value."""


@dataclass(frozen=True)
class Bar:
    """One value: what it is of, how it reads, and its error."""

    label: str
    value: float
    text: str
    error: float = 0.0
    colour: str = "c1"


@dataclass(frozen=True)
class Point:
    """One model among others: where it stands, and the error of y."""

    label: str
    x: float
    y: float
    error: float = 0.0


@dataclass(frozen=True)
class Chart:
    """A finished drawing."""

    title: str
    svg: str
    legend: list[tuple[str, str]] = field(default_factory=list)
    """(colour, label) of each curve."""
    note: str = ""


def line_chart(title: str, lines: Sequence[Line], x_label: str, *, small: bool = False) -> Chart:
    """Curves over one axis, which is logarithmic where they end at very different sizes."""
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

    with _drawing_style():
        drawing, axes = _new_drawing(*(SMALL if small else LARGE))
        legend, spoken = [], []
        for number, line in enumerate(lines):
            colour = SERIES[number % len(SERIES)]
            last = _draw(axes, line, _STAND_IN[colour])
            legend.append((colour, line.caption or f"{line.label} {tick(last)}"))
            spoken.append(f"{line.label} from {tick(line.ys[0])} to {tick(last)}")
        ends = [float(np.mean(line.ys[-5:])) for line in lines]
        if min(min(line.ys) for line in lines) > 0 and max(ends) > 10 * min(ends):
            axes.set_yscale("log")
            axes.yaxis.set_major_locator(LogLocator(numticks=5))
            axes.yaxis.set_minor_locator(NullLocator())
        else:
            axes.yaxis.set_major_locator(MaxNLocator(3 if small else 4, steps=STEPS))
        axes.xaxis.set_major_locator(MaxNLocator(3 if small else 5, steps=STEPS, integer=True))
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_formatter(FuncFormatter(lambda value, _: tick(value)))
        axes.grid(axis="y")
        axes.set_xlim(left=0)
        axes.set_xlabel(x_label)
        return Chart(title, _to_svg(drawing, f"{title} over {x_label}: {'; '.join(spoken)}"), legend)


def _draw(axes: "Axes", line: Line, colour: str) -> float:
    """Draw one curve; returns where it ends."""
    xs, ys = _thin(line.xs), _thin(line.ys)
    style: dict[str, Any] = {}
    if line.noisy and len(ys) >= 20:
        axes.plot(xs, ys, color=colour, linewidth=0.8, alpha=0.35)
        ys = _moving_average(ys)
    elif len(ys) <= MOST_MARKERS and not line.noisy:
        style = {"marker": "o", "markersize": 4, "markeredgewidth": 0}
    axes.plot(xs, ys, color=colour, linewidth=1.7, **style)
    return float(ys[-1])


def _thin(values: Sequence[float]) -> np.ndarray:
    """At most MOST_POINTS means of neighbours."""
    parts = np.array_split(np.asarray(values, dtype=np.float64), min(len(values), MOST_POINTS))
    return np.array([part.mean() for part in parts])


def _moving_average(values: np.ndarray) -> np.ndarray:
    half = max(1, len(values) // 50)
    width = 2 * half + 1
    return np.convolve(np.pad(values, half, mode="edge"), np.full(width, 1 / width), mode="valid")


def bar_chart(title: str, bars: Sequence[Bar], note: str = "", *, full: float = 0.0) -> Chart:
    """Horizontal bars from zero; with `full`, each on a track of that length."""
    with _drawing_style():
        drawing, axes = _rows(bars, 0.0)
        places = range(len(bars))
        if full:
            axes.barh(places, full, height=0.6, color=_STAND_IN["grid"])
        axes.barh(places, [b.value for b in bars], height=0.6, color=[_STAND_IN[b.colour] for b in bars])
        longest = full or max(bar.value for bar in bars) or 1.0
        for place, bar in enumerate(bars):
            axes.text((full or bar.value) + longest * 0.015, place, bar.text, va="center")
        axes.set_xlim(0, longest * 1.25)
        axes.xaxis.set_visible(False)
        axes.spines["bottom"].set_visible(False)
        return Chart(title, _to_svg(drawing, _spoken(title, bars)), note=note)


def histogram_chart(title: str, values: np.ndarray, counts: np.ndarray, unit: str, note: str = "") -> Chart:
    """Columns over bins that double in width: 1, 2 to 3, 4 to 7 ...

    Args:
        values: whole numbers from 1 on, (n,).
        counts: how often each occurs, (n,).
        unit: what the values count.
    """
    bins = np.log2(values).astype(int)
    heights = np.bincount(bins, counts)[bins.min() :]
    lows = 2 ** np.arange(bins.min(), bins.min() + len(heights))
    with _drawing_style():
        drawing, axes = _new_drawing(*LARGE)
        axes.bar(range(len(heights)), heights, width=0.9, color=_STAND_IN["c1"])
        for place, height in enumerate(heights):
            axes.text(place, height, f"{short(height)}\n", ha="center", va="baseline", fontsize=7)
        axes.set_xticks(range(len(lows)), [short(low) for low in lows], fontsize=7)
        axes.set_ylim(0, heights.max() * 1.15)
        axes.yaxis.set_visible(False)
        axes.set_xlabel(f"{unit}, from the number below each column to the next")
        columns = zip(lows, heights, strict=True)
        spoken = "; ".join(f"{low} to {2 * low - 1}: {height:,.0f}" for low, height in columns)
        return Chart(title, _to_svg(drawing, f"{title} by {unit}: {spoken}"), note=note)


def error_chart(title: str, bars: Sequence[Bar], note: str = "") -> Chart:
    """Proportions with their errors, on an axis that begins near the lowest: for values close together."""
    from matplotlib.ticker import MaxNLocator, PercentFormatter

    with _drawing_style():
        drawing, axes = _rows(bars, 0.3)
        low = min(bar.value - bar.error for bar in bars)
        high = max(bar.value + bar.error for bar in bars)
        room = (high - low) or 0.1
        start = low - 0.25 * room
        for place, bar in enumerate(bars):
            colour = _STAND_IN[bar.colour]
            axes.barh(place, bar.value - start, left=start, height=0.6, color=colour)
            if bar.error:
                axes.errorbar(
                    bar.value, place, xerr=bar.error, color=_STAND_IN["ink"], capsize=3, linewidth=1.2
                )
            axes.text(bar.value + bar.error + room * 0.03, place, bar.text, va="center")
        axes.set_xlim(start, high + room * 0.3)
        axes.xaxis.set_major_locator(MaxNLocator(4, steps=STEPS))
        axes.xaxis.set_major_formatter(PercentFormatter(1.0, symbol=f"{SPACE}%"))
        axes.grid(axis="x")
        return Chart(title, _to_svg(drawing, _spoken(title, bars)), note=note)


def scatter_chart(
    title: str,
    points: Sequence[Point],
    x_label: str,
    *,
    more_is_faster: bool = False,
    higher_is_better: bool = True,
    percent: bool = False,
    note: str = "",
) -> Chart:
    """Labelled points over a logarithmic x, and the line of those that none surpasses.

    Args:
        more_is_faster: whether a larger x is better, not a smaller.
    """
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator, PercentFormatter

    sign = 1.0 if higher_is_better else -1.0
    front: list[Point] = []
    for point in sorted(points, key=lambda one: (-one.x if more_is_faster else one.x, -sign * one.y)):
        if not front or sign * point.y > sign * front[-1].y:
            front.append(point)
    with _drawing_style():
        drawing, axes = _new_drawing(LARGE[0], max(1.2, 0.15 * len(points)) * LARGE[1])
        axes.set_xscale("log")
        axes.plot([p.x for p in front], [p.y for p in front], color=_STAND_IN["muted"], linewidth=1.0)
        for point in points:
            colour = _STAND_IN["c1" if point in front else "c2"]
            bar = point.error or None
            axes.errorbar(point.x, point.y, yerr=bar, color=colour, fmt="o", markersize=5, linewidth=1.2)
        low, high = min(p.x for p in points), max(p.x for p in points)
        axes.set_xlim(low / 1.6, high * 1.6 * (high / low) ** 0.35)  # room for the last label
        heights = _label_heights(points, *axes.get_ylim())
        axes.set_ylim(top=max(axes.get_ylim()[1], max(heights)))
        for point, height in zip(points, heights, strict=True):
            moved = {"arrowstyle": "-", "color": _STAND_IN["muted"], "linewidth": 0.6, "relpos": (0, 0.5)}
            axes.annotate(
                point.label,
                (point.x, point.y),
                xytext=(point.x * (high / low) ** 0.03 if high > low else point.x * 1.05, height),
                va="center",
                arrowprops=moved if height > point.y else None,
            )
        axes.xaxis.set_major_locator(LogLocator(numticks=6))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.yaxis.set_major_locator(MaxNLocator(5, steps=STEPS))
        if percent:
            ys = [point.y for point in points]
            decimals = 0 if max(ys) - min(ys) > 0.03 else 1
            axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals, symbol=f"{SPACE}%"))
        axes.grid(axis="y")
        axes.set_xlabel(x_label)
        ordered = sorted(points, key=lambda one: one.x)
        spoken = "; ".join(f"{p.label} {tick(p.y)} at {tick(p.x)} {x_label}" for p in ordered)
        return Chart(title, _to_svg(drawing, f"{title}: {spoken}"), note=note)


def _label_heights(points: Sequence[Point], low: float, high: float) -> list[float]:
    """Where the labels stand: at the height of their points, moved apart where two would touch.

    Args:
        low, high: the limits of the axis.
    """
    apart = 0.065 * (high - low)
    heights = {}
    last = -np.inf
    for index in sorted(range(len(points)), key=lambda i: points[i].y):
        last = max(points[index].y, last + apart)
        heights[index] = last
    return [float(heights[index]) for index in range(len(points))]


def heat_chart(title: str, labels: Sequence[str], counts: Sequence[Sequence[float]], note: str = "") -> Chart:
    """A square of counts by label (rows) and prediction (columns), each row shaded by its proportions."""
    from matplotlib.patches import Rectangle

    size = len(labels)
    names = [name if len(name) <= MOST_LETTERS else name[: MOST_LETTERS - 1] + "…" for name in labels]
    with _drawing_style():
        drawing, axes = _new_drawing(LARGE[0], max(LARGE[1], 0.3 * size + 0.9))
        for row, values in enumerate(counts):
            for column, value in enumerate(values):
                strength = 0.6 * value / (sum(values) or 1)
                colour = _STAND_IN["c1" if row == column else "c2"]
                axes.add_patch(
                    Rectangle((column - 0.5, row - 0.5), 1, 1, facecolor=colour, alpha=strength, linewidth=0)
                )
                if value:
                    axes.text(column, row, f"{value:,.0f}", ha="center", va="center", fontsize=8)
        axes.set_xlim(-0.5, size - 0.5)
        axes.set_ylim(size - 0.5, -0.5)
        turned = max(map(len, names)) * size > MOST_LETTERS * 3
        axes.set_xticks(range(size), names, rotation=60 if turned else 0, ha="right" if turned else "center")
        axes.set_yticks(range(size), names)
        axes.set_xlabel("prediction")
        axes.set_ylabel("label")
        axes.spines["bottom"].set_visible(False)
        spoken = "; ".join(
            f"{label} as {guess} {value:,.0f}"
            for label, values in zip(labels, counts, strict=True)
            for guess, value in zip(labels, values, strict=True)
            if value
        )
        return Chart(title, _to_svg(drawing, f"{title}: {spoken}"), note=note)


def _rows(bars: Sequence[Bar], axis: float) -> "tuple[Figure, Axes]":
    """A drawing with a labelled row for each bar, the first on top."""
    drawing, axes = _new_drawing(WIDE, 0.27 * len(bars) + 0.1 + axis)
    axes.set_yticks(range(len(bars)), [bar.label for bar in bars])
    axes.tick_params(axis="y", labelcolor=_STAND_IN["ink"])
    axes.set_ylim(len(bars) - 0.5, -0.5)
    return drawing, axes


def _spoken(title: str, bars: Sequence[Bar]) -> str:
    return f"{title}: " + "; ".join(f"{bar.label} {bar.text}" for bar in bars)


def _drawing_style() -> AbstractContextManager[None]:
    """The context in which drawings are made and written, whatever the user's own matplotlibrc says."""
    import matplotlib.style

    return matplotlib.style.context(["default", _STYLE])


def _new_drawing(width: float, height: float) -> "tuple[Figure, Axes]":
    """A transparent drawing of that many inches, with one set of axes."""
    from matplotlib.figure import Figure

    drawing = Figure(figsize=(width, height))
    drawing.patch.set_visible(False)
    axes = drawing.add_subplot()
    axes.patch.set_visible(False)
    return drawing, axes


def _to_svg(drawing: "Figure", description: str) -> str:
    """The drawing as an <svg> element for an HTML page; the description is for those who can't see it."""
    import matplotlib

    file = io.StringIO()
    with warnings.catch_warnings(), matplotlib.rc_context({"svg.hashsalt": description}):
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")  # the browser has it
        drawing.savefig(file, format="svg", metadata=dict.fromkeys(("Date", "Creator", "Format", "Type")))
    text = file.getvalue()
    width, height = drawing.get_size_inches() * 72
    box = f'viewBox="0 0 {width:g} {height:g}"'
    head = f'<svg class="chart" {box} role="img" aria-label="{escape(description)}">'
    body = text[text.index(">", text.index("<svg")) + 1 :]
    body = re.sub(r"<style type=.*?</style>", "", body, count=1, flags=re.DOTALL)
    body = re.sub(r'<g id="[^"]*">', "<g>", body)
    body = re.sub(r' (?:d|x|y|width|height|transform)="[^"]*"', _round, body)
    body = re.sub(r"\s*\n\s*", "\n", body)
    return head + re.sub(r"#0000[0-9a-f]{2}\b", _variable, body).strip()


def _round(attribute: re.Match[str]) -> str:
    return re.sub(r"(\.\d\d)\d+", r"\1", attribute[0])


def _variable(colour: re.Match[str]) -> str:
    return f"var(--{_NAMES[colour[0]]})" if colour[0] in _NAMES else colour[0]
