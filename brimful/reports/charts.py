"""A SummaryChart as inline SVG: lines, bars, labelled points, or a matrix of counts.

Matplotlib draws with placeholder colours, and each is then replaced by `var(--name)`: one drawing serves the
light page and the dark one. Text stays text, in the page's font. The same chart gives the same bytes.
"""

import io
import re
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from markupsafe import escape

from brimful.base.numbers import SPACE, percent, plain, tick
from brimful.base.summary import Series, SummaryChart

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.text import Annotation
    from matplotlib.transforms import Bbox

SERIES_COLOURS = ("c1", "c2", "c3", "c4", "c5", "c6")
"""Names of the page's colours of curves, bars and points."""
_PLACEHOLDERS = {
    name: f"#0000{place:02x}" for place, name in enumerate(("ink", "muted", "grid", *SERIES_COLOURS), 1)
}
_COLOUR_NAMES = {colour: name for name, colour in _PLACEHOLDERS.items()}
_STYLE = {
    "svg.fonttype": "none",
    "text.parse_math": False,
    "font.size": 9,
    "text.color": _PLACEHOLDERS["ink"],
    "axes.edgecolor": _PLACEHOLDERS["grid"],
    "axes.labelcolor": _PLACEHOLDERS["muted"],
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
    "axes.axisbelow": True,
    "xtick.color": _PLACEHOLDERS["muted"],
    "ytick.color": _PLACEHOLDERS["muted"],
    "xtick.major.size": 0,
    "ytick.major.size": 0,
    "xtick.major.pad": 8,
    "grid.color": _PLACEHOLDERS["grid"],
    "grid.linewidth": 0.7,
    "figure.constrained_layout.use": True,
}
WIDTH_INCHES, HEIGHT_INCHES = 4.5, 2.5
MAX_POINTS = 300
"""Points of a drawn curve; of more, neighbours are averaged."""
MAX_MARKERS = 40
"""Points of a curve that are drawn one by one."""
MAX_NAME_LETTERS, MAX_POINT_LETTERS = 14, 36
"""Letters of a name beside a matrix, and beside a point."""
FONT_ALLOWANCE = 1.15
"""The page's font may be so much wider than the one that labels are measured in."""
LABEL_STEPS_POINTS = tuple(range(0, 601, 4))
"""How far a name may be moved up or down from its point until it touches no other."""
LABEL_GAP_POINTS = 7.0
"""Between a point's centre and its name."""
POINT_RADIUS_POINTS = 4.0


def draw_chart(chart: SummaryChart) -> "Figure":
    """The drawing of a chart, for `to_svg`, or for a test of where its labels are."""
    import matplotlib.style

    # The user's own matplotlibrc decides nothing.
    with matplotlib.style.context(["default", _STYLE]):
        return _DRAW[chart.kind](chart)


def to_svg(chart: SummaryChart) -> str:
    """The chart as an <svg> element for an HTML page, with its numbers as a text for those who can't see."""
    import matplotlib
    import matplotlib.style

    description = describe_chart(chart)
    drawing, file = draw_chart(chart), io.StringIO()
    with (
        warnings.catch_warnings(),
        matplotlib.style.context(["default", _STYLE]),
        matplotlib.rc_context({"svg.hashsalt": description}),
    ):
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")  # the browser has it
        metadata = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        drawing.savefig(file, format="svg", metadata=metadata)
    text = file.getvalue()
    width, height = drawing.get_size_inches() * 72
    box = f'viewBox="0 0 {width:g} {height:g}"'
    head = f'<svg class="chart" {box} role="img" aria-label="{escape(description)}">'
    body = text[text.index(">", text.index("<svg")) + 1 :]
    body = re.sub(r"<style type=.*?</style>", "", body, count=1, flags=re.DOTALL)
    body = re.sub(r'<g id="[^"]*">', "<g>", body)
    body = re.sub(r' (?:d|x|y|width|height|transform)="[^"]*"', _round_numbers, body)
    body = re.sub(r"\s*\n\s*", "\n", body)
    return head + re.sub(r"#0000[0-9a-f]{2}\b", _name_colour, body).strip()


def _round_numbers(attribute: re.Match[str]) -> str:
    return re.sub(r"(\.\d\d)\d+", r"\1", attribute[0])


def _name_colour(colour: re.Match[str]) -> str:
    return f"var(--{_COLOUR_NAMES[colour[0]]})" if colour[0] in _COLOUR_NAMES else colour[0]


def describe_chart(chart: SummaryChart) -> str:
    """What a chart shows, in words."""
    show = percent if chart.share else tick
    parts = []
    for series in chart.series:
        if chart.kind == "lines":
            parts.append(f"{series.name} from {show(series.ys[0])} to {show(series.ys[-1])}")
        else:
            names = (plain(x) for x in series.xs)
            values = ", ".join(f"{name}: {show(y)}" for name, y in zip(names, series.ys, strict=True))
            parts.append(f"{series.name} {values}".strip())
    return f"{chart.title}, {chart.y} by {chart.x}. {'; '.join(parts)}"


def list_legend(chart: SummaryChart) -> list[tuple[str, str]]:
    """The colour and the name of each curve of a chart of lines, with its last value."""
    if chart.kind != "lines":
        return []
    show = percent if chart.share else tick
    names = [f"{series.name} {show(series.ys[-1])}".strip() for series in chart.series]
    return [(_colour_name(place), name) for place, name in enumerate(names)]


def _colour_name(place: int) -> str:
    return SERIES_COLOURS[place % len(SERIES_COLOURS)]


def _new_drawing(height: float = HEIGHT_INCHES) -> "tuple[Figure, Axes]":
    """A transparent drawing with one set of axes."""
    from matplotlib.figure import Figure

    drawing = Figure(figsize=(WIDTH_INCHES, height))
    drawing.patch.set_visible(False)
    axes = drawing.add_subplot()
    axes.patch.set_visible(False)
    return drawing, axes


def _format_axis(axis: Any, share: bool = False) -> None:
    """Few round numbers, as short as they can be."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    axis.set_major_locator(MaxNLocator(4, steps=(1, 2, 5, 10)))
    if share:
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:g}{SPACE}%"))
    else:
        axis.set_major_formatter(FuncFormatter(lambda value, _: tick(value)))


def _draw_lines(chart: SummaryChart) -> "Figure":
    """Curves over one axis, which is logarithmic where they end at very different sizes."""
    from matplotlib.ticker import LogLocator, NullLocator

    drawing, axes = _new_drawing()
    for place, series in enumerate(chart.series):
        xs, ys = _thin(series.xs), _thin(series.ys)
        marker = "o" if len(ys) <= MAX_MARKERS else ""
        colour = _PLACEHOLDERS[_colour_name(place)]
        axes.plot(xs, ys, color=colour, linewidth=1.5, marker=marker, markersize=3)
    _format_axis(axes.xaxis)
    _format_axis(axes.yaxis, chart.share)
    ends = [float(np.mean(series.ys[-5:])) for series in chart.series]
    lowest = min(min(series.ys) for series in chart.series)
    if lowest > 0 and max(ends) > 10 * min(ends):
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(numticks=5))
        axes.yaxis.set_minor_locator(NullLocator())
    axes.grid(axis="y")
    axes.set_xlabel(chart.x)
    return drawing


def _thin(values: Sequence[Any]) -> np.ndarray:
    """At most MAX_POINTS means of neighbours, float64."""
    parts = np.array_split(np.asarray(values, dtype=np.float64), min(len(values), MAX_POINTS))
    return np.array([part.mean() for part in parts])


def _draw_bars(chart: SummaryChart) -> "Figure":
    """Horizontal bars from zero, a row for each name; several series stand below each other."""
    rows = [
        (plain(name), value, place)
        for place, series in enumerate(chart.series)
        for name, value in zip(series.xs, series.ys, strict=True)
    ]
    drawing, axes = _new_drawing(0.25 * len(rows) + 0.2)
    show = percent if chart.share else tick
    longest = max(value for _, value, _ in rows) or 1.0
    for height, (_, value, place) in enumerate(rows):
        axes.barh(height, value, height=0.6, color=_PLACEHOLDERS[_colour_name(place)])
        axes.text(value + 0.015 * longest, height, show(value), va="center")
    axes.set_xlim(0, 1.25 * longest)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_yticks(range(len(rows)), [name for name, _, _ in rows])
    axes.set_ylabel(chart.x)
    axes.xaxis.set_visible(False)
    axes.spines["bottom"].set_visible(False)
    return drawing


def _draw_matrix(chart: SummaryChart) -> "Figure":
    """A matrix of counts, each row shaded by its proportions."""
    from matplotlib.patches import Rectangle

    size = len(chart.series)
    drawing, axes = _new_drawing(max(HEIGHT_INCHES, 0.3 * size + 1.2))
    for row, series in enumerate(chart.series):
        total = sum(series.ys) or 1
        for column, count in enumerate(series.ys):
            colour = _PLACEHOLDERS["c1" if row == column else "c2"]
            place = (column - 0.5, row - 0.5)
            shade = 0.6 * count / total
            axes.add_patch(Rectangle(place, 1, 1, facecolor=colour, alpha=shade, linewidth=0))
            if count:
                axes.text(column, row, tick(count), ha="center", va="center", fontsize=7)
    names = [_shorten(series.name, MAX_NAME_LETTERS) for series in chart.series]
    axes.set_xlim(-0.5, size - 0.5)
    axes.set_ylim(size - 0.5, -0.5)
    is_wide = size * max(map(len, names)) > 3 * MAX_NAME_LETTERS
    axes.set_xticks(range(size), names, rotation=90 if is_wide else 0, fontsize=8)
    axes.set_yticks(range(size), names, fontsize=8)
    axes.set_xlabel(chart.x)
    axes.set_ylabel(chart.y)
    axes.spines["bottom"].set_visible(False)
    return drawing


def _shorten(name: str, most: int) -> str:
    return name if len(name) <= most else f"{name[: most - 1]}…"


def _draw_points(chart: SummaryChart) -> "Figure":
    """Points with their errors and names over a logarithmic x; each series is a point."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    drawing, axes = _new_drawing(max(1.2, 0.16 * len(chart.series)) * HEIGHT_INCHES)
    axes.set_xscale("log")
    xs = [float(series.xs[0]) for series in chart.series]
    for place, series in enumerate(chart.series):
        error = series.errors[0] if series.errors else None
        colour = _PLACEHOLDERS[_colour_name(place)]
        axes.errorbar(xs[place], series.ys[0], yerr=error, color=colour, fmt="o", markersize=5, linewidth=1.2)
    spread = max(xs) / min(xs)
    axes.set_xlim(min(xs) / 1.3, 1.3 * max(xs) * max(2.0, spread**0.5))  # room for names on the right
    axes.margins(y=0.15)
    _format_axis(axes.yaxis, chart.share)
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if spread < 50 else (1,), numticks=5))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.grid(axis="y")
    axes.set_xlabel(chart.x)
    _label_points(drawing, axes, chart.series)
    return drawing


def _label_points(drawing: "Figure", axes: "Axes", points: Sequence[Series]) -> None:
    """Write each point's name beside it, as near as it touches no other name, no point, no error bar and no
    border; where the bars leave no room, a name may cross them."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    FigureCanvasAgg(drawing).draw()  # fixes where everything is
    drawing.set_layout_engine("none")
    taken = [_box_of_point(drawing, axes, point) for point in points]
    bars = [_box_of_bar(axes, point) for point in points if point.errors]
    for place in sorted(range(len(points)), key=lambda place: -points[place].ys[0]):
        others = [box for index, box in enumerate(taken) if index != place]
        label = _annotate(axes, points[place], LABEL_GAP_POINTS, 0)
        size = label.get_window_extent().expanded(FONT_ALLOWANCE, FONT_ALLOWANCE)
        label.remove()
        free = []
        for move, side in _list_label_places(size.width * 72 / drawing.dpi):
            right, up = side * drawing.dpi / 72, move * drawing.dpi / 72
            box = size.translated(right - LABEL_GAP_POINTS * drawing.dpi / 72, up)
            inside = axes.bbox.x0 <= box.x0 and box.x1 <= drawing.bbox.x1
            inside = inside and axes.bbox.y0 <= box.y0 and box.y1 <= drawing.bbox.y1
            if inside and not any(box.overlaps(other) for other in others):
                free.append((any(box.overlaps(bar) for bar in bars), abs(move), side, move, box))
        if free:
            _, _, side, move, box = min(free, key=lambda each: each[:2])
            _annotate(axes, points[place], side, move)
            taken.append(box)


def _list_label_places(width: float) -> list[tuple[float, float]]:
    """How far a name of so many points may be above its point and to the right of it, the nearest first."""
    moves = sorted({sign * step for step in LABEL_STEPS_POINTS for sign in (1, -1)}, key=abs)
    places: list[tuple[float, float]] = []
    for move in moves:
        places += [(move, LABEL_GAP_POINTS), (move, -width)]
        if abs(move) > 2 * POINT_RADIUS_POINTS:
            places.append((move, -width / 2))
    return places


def _box_of_point(drawing: "Figure", axes: "Axes", point: Series) -> "Bbox":
    """The pixels that a point takes."""
    from matplotlib.transforms import Bbox

    x, y = axes.transData.transform((float(point.xs[0]), point.ys[0]))
    radius = POINT_RADIUS_POINTS * drawing.dpi / 72
    return Bbox([[x - radius, y - radius], [x + radius, y + radius]])


def _box_of_bar(axes: "Axes", point: Series) -> "Bbox":
    """The pixels that the error bar of a point takes, a line without width."""
    from matplotlib.transforms import Bbox

    x, y, error = float(point.xs[0]), point.ys[0], point.errors[0]
    return Bbox(axes.transData.transform([(x, y - error), (x, y + error)]))


def _annotate(axes: "Axes", point: Series, side: float, move: float) -> "Annotation":
    """A name `side` points to the right of its point and `move` points above it, with a thin line if far."""
    line = {"arrowstyle": "-", "color": _PLACEHOLDERS["muted"], "linewidth": 0.6}
    return axes.annotate(
        _shorten(point.name, MAX_POINT_LETTERS),
        (float(point.xs[0]), point.ys[0]),
        xytext=(side, move),
        textcoords="offset points",
        va="center",
        fontsize=8,
        arrowprops=line if abs(move) > 2 * POINT_RADIUS_POINTS else None,
    )


_DRAW = {"lines": _draw_lines, "bars": _draw_bars, "points": _draw_points, "matrix": _draw_matrix}
