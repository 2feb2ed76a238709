"""The picture of `brimful pack`: the length histogram, and what fills the rows."""

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from brimful.base.errors import BrimfulError
from brimful.base.extras import require
from brimful.base.storage import atomic_file
from brimful.packing.histogram import Plan

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FORMATS = (".png", ".svg", ".pdf")
BANDS = 4
"""The longest sequences of a row are drawn one by one; the others are one band."""
BARS, COLUMNS = 512, 2000
WIDE = (11.0, 4.2)
COLOURS = ("#2f6fb0", "#5f9fd4", "#92c0e6", "#c2dcf1", "#e3effa")
TOKENS, EMPTY = "#3a7d44", "#c8553d"


def percent(ratio: float) -> str:
    """A ratio in percent with three decimals; 100.000 only if it is exactly 1."""
    return f"{ratio if ratio == 1 else min(ratio, 0.99999):.3%}".removesuffix("%")


def check_picture(path: str) -> None:
    """Check that a file name ends in a known format, and that it can be drawn.

    Raises:
        BrimfulError: its ending is not in `FORMATS`, or matplotlib is missing.
    """
    require("--plot", "matplotlib")
    if Path(path).suffix.lower() not in FORMATS:
        raise BrimfulError(f"plot is {path}: a picture is a {', '.join(FORMATS)} file")


def draw_plan(path: str, counts: np.ndarray, plan: Plan) -> None:
    """Draw the histogram and the plan's rows into a file.

    Args:
        counts: int64 (longest + 1,), number of sequences of each length.
        plan: at least one row.
    """
    import matplotlib.style
    from matplotlib.figure import Figure

    style = {"axes.spines.top": False, "axes.spines.right": False, "svg.hashsalt": "brimful"}
    with matplotlib.style.context(["default", style]):
        figure = Figure(figsize=WIDE, layout="constrained")
        left, right = figure.subplots(1, 2)
        _draw_lengths(left, counts)
        _draw_rows(right, plan)
        with atomic_file(path) as temporary:
            kind = Path(path).suffix.lower()[1:]
            figure.savefig(
                temporary, format=kind, dpi=150, metadata={"Date": None} if kind == "svg" else None
            )


def _draw_lengths(axes: "Axes", counts: np.ndarray) -> None:
    """The proportion of sequences by length, and the proportion of all tokens that they hold."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    longest = int(np.flatnonzero(counts).max(initial=1))
    edges = np.linspace(1, longest + 1, min(longest, BARS) + 1).round() - 0.5
    lengths = np.arange(len(counts))
    for numbers, name, colour, style in (
        (counts, "sequences", COLOURS[0], "-"),
        (counts * lengths, "tokens", TOKENS, "--"),
    ):
        proportion = np.histogram(lengths, edges, weights=numbers)[0] / max(1, int(numbers.sum()))
        axes.stairs(proportion * 100, edges, color=colour, linestyle=style, linewidth=1.5, label=name)
    axes.set_yscale("log", nonpositive="clip")  # the longest are often a hundred times as frequent
    axes.set_ylim(top=100)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlim(0, longest + 1)
    axes.set_xlabel("tokens in a sequence")
    axes.set_ylabel("%")
    axes.set_title(f"{int(counts.sum()):,} sequences", loc="left", fontsize=11)
    axes.legend(frameon=False, loc="upper center", ncols=2)


def _draw_rows(axes: "Axes", plan: Plan) -> None:
    """All rows side by side, ordered by their longest sequence. A column is a row, longest sequence below.

    Of many patterns, `COLUMNS` at equal distances are drawn.
    """
    sizes = np.diff(plan.offsets)
    bands = np.zeros((BANDS + 1, len(sizes)))
    for band in range(BANDS):
        has = sizes > band
        bands[band, has] = plan.lengths[plan.offsets[:-1][has] + band]
    each = np.repeat(np.arange(len(sizes)), sizes)
    bands[BANDS] = np.bincount(each, plan.lengths, minlength=len(sizes)) - bands.sum(0)
    order = np.lexsort(-bands[::-1])
    ends = np.cumsum(plan.repeats[order]) / plan.rows * 100
    if len(order) > COLUMNS:
        edges = np.linspace(0, 100, COLUMNS + 1)
        order = order[np.searchsorted(ends, (edges[1:] + edges[:-1]) / 2)]
    else:
        edges = np.concatenate([[0], ends])
    names = ["longest sequence", "second", "third", "fourth", "all others"]
    below = np.zeros(len(order))
    for values, name, colour in zip(bands[:, order], names, COLOURS, strict=True):
        if values.any():
            axes.stairs(below + values, edges, baseline=below, fill=True, color=colour, label=name)
        below = below + values
    if plan.efficiency < 1:
        full = np.full(len(order), plan.capacity)
        axes.stairs(full, edges, baseline=below, fill=True, color=EMPTY, label="empty")
    axes.set_xlim(0, 100)
    axes.set_ylim(0, plan.capacity)
    axes.set_xlabel("% of the rows")
    axes.set_ylabel("tokens in a row")
    axes.set_title(
        f"{plan.rows:,} rows, {percent(plan.efficiency)} % full, {plan.packing_factor:.2f} sequences a row",
        loc="left",
        fontsize=11,
    )
    axes.legend(frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.12), ncols=6, fontsize=8)
