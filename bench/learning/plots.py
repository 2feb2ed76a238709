"""Figures of the learning bench: a thin line for each seed, a thick one for an arm's mean."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bench.common.study import COLOURS, Run, by_arm, paired, save_figure


def _curve(axes: Any, runs: Sequence[Run], x: str, colour: str, label: str, style: str = "-") -> None:
    """Held-out loss against `x` of the points, in thousands where these are many."""
    scale = 1000 if x in ("sequences", "tokens") else 1
    xs = np.array([[point[x] / scale for point in run["points"]] for run in runs])
    losses = np.array([[point["loss"] for point in run["points"]] for run in runs])
    for one, loss in zip(xs, losses, strict=True):
        axes.plot(one, loss, style, color=colour, linewidth=0.7, alpha=0.5)
    axes.plot(
        xs.mean(0), losses.mean(0), style, color=colour, linewidth=1.8, marker="o", markersize=3, label=label
    )


def draw_same(path: Path, runs: Sequence[Run], against: str) -> None:
    """Losses against sequences; how far the seeds' paired differences are from zero; losses against time."""
    arms = by_arm(runs)
    styles = ("-", "--", ":")

    def draw(left: Any, middle: Any, right: Any) -> None:
        for (arm, each), colour, style in zip(arms.items(), COLOURS, styles, strict=False):
            _curve(left, each, "sequences", colour, arm, style)
            _curve(right, each, "cpu_seconds", colour, arm, style)
        steps = [point["step"] for point in arms[against][0]["points"]]
        losses = {
            arm: np.array([[point["loss"] for point in run["points"]] for run in each])
            for arm, each in arms.items()
        }
        noise = losses[against].std(0, ddof=1)
        middle.fill_between(
            steps, -noise, noise, color="#dddddd", label=f"± deviation of the seeds, {against}"
        )
        for (arm, each), colour in zip(losses.items(), COLOURS, strict=False):
            if arm != against:
                points = [paired(each[:, i], losses[against][:, i]) for i in range(len(steps))]
                mean, error = np.array(points).T
                middle.errorbar(steps, mean, error, color=colour, capsize=3, label=f"{arm} - {against}")
        left.set(xlabel="thousand sequences", ylabel="held-out loss")
        middle.set(xlabel="updates", ylabel="difference, with its standard error")
        right.set(xlabel="CPU seconds of training")
        left.legend(frameon=False)
        middle.legend(frameon=False, fontsize=8, loc="lower left", bbox_to_anchor=(0, 1))

    save_figure(path, 3, draw)


def draw_arms(path: Path, runs: Sequence[Run]) -> None:
    """Losses against sequences and against time."""

    def draw(left: Any, right: Any) -> None:
        for (arm, each), colour in zip(by_arm(runs).items(), COLOURS, strict=False):
            _curve(left, each, "sequences", colour, arm)
            _curve(right, each, "cpu_seconds", colour, arm)
        left.set(xlabel="thousand sequences", ylabel="held-out loss")
        right.set(xlabel="CPU seconds of training")
        left.legend(frameon=False)

    save_figure(path, 2, draw)


def draw_steps(path: Path, runs: Sequence[Run], panels: Mapping[str, Sequence[str]], level: float) -> None:
    """Running means of training losses, a tenth of the run wide, against updates: a panel for each group of
    arms, all seeds, and a level to compare."""
    arms = by_arm(runs)

    def draw(*axes: Any) -> None:
        for panel, (title, names) in zip(axes, panels.items(), strict=True):
            for name, colour in zip(names, COLOURS[1:], strict=False):
                for index, run in enumerate(arms[name]):
                    width = max(1, len(run["steps"]) // 10)
                    xs = [step["step"] for step in run["steps"]][width - 1 :]
                    losses = [step["loss"] for step in run["steps"]]
                    means = np.convolve(losses, np.full(width, 1 / width), "valid")
                    panel.plot(xs, means, color=colour, linewidth=1.3, label=None if index else name)
            panel.axhline(level, color="#888888", linestyle="--", linewidth=1, label="frequencies alone")
            panel.set(xlabel="updates", title=title)
            panel.legend(frameon=False, fontsize=8)
        axes[0].set_ylabel("training loss, running mean")
        bottom = min(panel.get_ylim()[0] for panel in axes)
        for panel in axes:
            panel.set_ylim(bottom, level + 0.3)

    save_figure(path, len(panels), draw)
