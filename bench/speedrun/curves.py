"""Held-out loss against time: of one record, and of what docs/speedrun.md tells.

python -m bench.speedrun.curves docs/speedrun.png
"""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.common.study import save_figure
from bench.speedrun.runs import Run
from bench.speedrun.side import OURS
from brimful.storage import read_object

RESULTS = Path("bench/results")
COLOURS = {True: "#c8553d", False: "#2f6fb0"}
"""Of Brimful and of its rivals."""


def curves(axes: Any, runs: Sequence[Run], target: float | None = None, title: str | None = None) -> None:
    """A line for each run, and one for the target."""
    named: set[str] = set()
    for run in runs:
        side = run["side"]
        seconds, losses = zip(*((p["seconds"] / 60, p["loss"]) for p in run["points"]), strict=True)
        label = None if side in named else side
        axes.plot(seconds, losses, "o-", color=COLOURS[side == OURS], label=label)
        named.add(side)
    if target is not None:
        axes.axhline(target, color="#888888", linestyle="--", label="target")
    axes.set(xlabel="minutes from the start of the process", ylabel="held-out loss", title=title)
    axes.legend(frameon=False)


def draw_record(path: Path, record: Mapping[str, Any]) -> None:
    """The runs of one record."""
    save_figure(path, 1, lambda axes: curves(axes, record["runs"], record["target"]["loss"]))


def main(path: Path) -> None:
    """Draw the figure of docs/speedrun.md: the early target with a small model, and the whole track."""
    early = read_object(RESULTS / "speedrun_english_mini_early.json")
    late = read_object(RESULTS / "late_comparison_of_the_speedrun.json")["runs"]

    def draw(left: Any, right: Any) -> None:
        curves(left, early["runs"], early["target"]["loss"], title="both 2 layers of width 128, three seeds")
        curves(right, [late[0], late[-1]], title="4 layers of width 256 against Brimful's 3, one seed")

    save_figure(path, 2, draw)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
