"""The picture that a user decides by: accuracy against what serving a model gives.

Each model with rows of `accuracy` and `latency` is a point, by its capacity and by its p99 at half of it. An
error bar is the standard error of the accuracy, from the number of test texts.

    python -m bench.serve.picture RESULT.json [RESULT.json ...] --names MODEL=NAME ... --out PICTURE.png
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

SHARE = 0.5
"""Of the capacity, at which the p99 counts."""


class Point(NamedTuple):
    """A served model; `error` is the standard error of its accuracy."""

    name: str
    accuracy: float
    error: float
    texts_per_second: float
    p99_ms: float


def points(results: Sequence[Path], names: dict[str, str]) -> list[Point]:
    """The named models of result files, each by the first side that was measured."""
    found = []
    for file in results:
        rows = json.loads(file.read_text(encoding="utf-8"))["rows"]
        for accuracy in (row for row in rows if row["question"] == "accuracy" and row["model"] in names):
            mine = [
                row for row in rows if (row["model"], row["side"]) == (accuracy["model"], accuracy["side"])
            ]
            (capacity,) = (row for row in mine if row["question"] == "capacity")
            (late,) = (row for row in mine if row.get("share") == SHARE and not row["searched"])
            share = accuracy["accuracy"]
            error = (share * (1 - share) / accuracy["texts"]) ** 0.5
            speed = capacity["texts_per_second"], late["p99_ms"]
            found.append(Point(names[accuracy["model"]], share, error, *speed))
    return found


def panel(axes: Axes, found: Sequence[Point], values: Sequence[float], label: str) -> None:
    """The accuracy of each point against one of its values."""
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    for number, (point, value) in enumerate(zip(found, values, strict=True)):
        look = {"fmt": "o", "color": f"C{number}", "capsize": 2, "lw": 1, "label": point.name}
        axes.errorbar(value, point.accuracy, point.error, **look)
    axes.set_xlabel(label)
    axes.margins(x=0.1, y=0.15)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("results", nargs="+", type=Path)
    parser.add_argument("--names", nargs="+", required=True, metavar="MODEL=NAME")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args(arguments)
    found = points(options.results, dict(pair.split("=", 1) for pair in options.names))
    figure = Figure(figsize=(10.4, 4.2), dpi=100, layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    panel(left, found, [point.texts_per_second for point in found], "texts a second, at most")
    panel(right, found, [point.p99_ms for point in found], "p99 at half of that, ms")
    right.invert_xaxis()
    left.set_ylabel("accuracy")
    figure.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=3, frameon=False)
    figure.savefig(options.out)


if __name__ == "__main__":
    main()
