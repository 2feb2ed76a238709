"""The three kinds of chart on the page: curves, bars, and values with their errors."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from brimful.reports.figures import SPACE, tick
from brimful.reports.svg import SERIES, STAND_IN, drawing_style, new_drawing, to_svg

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

STEPS = (1, 2, 5, 10)
MOST_POINTS = 300
MOST_MARKERS = 40
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

    with drawing_style():
        drawing, axes = new_drawing(*(SMALL if small else LARGE))
        legend, spoken = [], []
        for number, line in enumerate(lines):
            colour = SERIES[number % len(SERIES)]
            last = _draw(axes, line, STAND_IN[colour])
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
        return Chart(title, to_svg(drawing, f"{title} over {x_label}: {'; '.join(spoken)}"), legend)


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
    with drawing_style():
        drawing, axes = _rows(bars, 0.0)
        places = range(len(bars))
        if full:
            axes.barh(places, full, height=0.6, color=STAND_IN["grid"])
        axes.barh(places, [b.value for b in bars], height=0.6, color=[STAND_IN[b.colour] for b in bars])
        longest = full or max(bar.value for bar in bars) or 1.0
        for place, bar in enumerate(bars):
            axes.text((full or bar.value) + longest * 0.015, place, bar.text, va="center")
        axes.set_xlim(0, longest * 1.25)
        axes.xaxis.set_visible(False)
        axes.spines["bottom"].set_visible(False)
        return Chart(title, to_svg(drawing, _spoken(title, bars)), note=note)


def error_chart(title: str, bars: Sequence[Bar], note: str = "") -> Chart:
    """Shares with their errors, on an axis that begins near the lowest: for values close together."""
    from matplotlib.ticker import MaxNLocator, PercentFormatter

    with drawing_style():
        drawing, axes = _rows(bars, 0.3)
        low = min(bar.value - bar.error for bar in bars)
        high = max(bar.value + bar.error for bar in bars)
        room = (high - low) or 0.1
        start = low - 0.25 * room
        for place, bar in enumerate(bars):
            colour = STAND_IN[bar.colour]
            axes.barh(place, bar.value - start, left=start, height=0.6, color=colour)
            if bar.error:
                axes.errorbar(
                    bar.value, place, xerr=bar.error, color=STAND_IN["ink"], capsize=3, linewidth=1.2
                )
            axes.text(bar.value + bar.error + room * 0.03, place, bar.text, va="center")
        axes.set_xlim(start, high + room * 0.3)
        axes.xaxis.set_major_locator(MaxNLocator(4, steps=STEPS))
        axes.xaxis.set_major_formatter(PercentFormatter(1.0, symbol=f"{SPACE}%"))
        axes.grid(axis="x")
        return Chart(title, to_svg(drawing, _spoken(title, bars)), note=note)


def _rows(bars: Sequence[Bar], axis: float) -> "tuple[Figure, Axes]":
    """A drawing with a labelled row for each bar, the first on top."""
    drawing, axes = new_drawing(WIDE, 0.27 * len(bars) + 0.1 + axis)
    axes.set_yticks(range(len(bars)), [bar.label for bar in bars])
    axes.tick_params(axis="y", labelcolor=STAND_IN["ink"])
    axes.set_ylim(len(bars) - 0.5, -0.5)
    return drawing, axes


def _spoken(title: str, bars: Sequence[Bar]) -> str:
    return f"{title}: " + "; ".join(f"{bar.label} {bar.text}" for bar in bars)
