"""The figure of the precision bench: constant scales, and the traces of the others."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.common.study import COLOURS, Run, by_arm, save_figure
from bench.precision.run import SHOCK
from bench.precision.tables import trial_of


def _window(axes: Any, runs: Sequence[Run]) -> None:
    for arm, each in by_arm(runs).items():
        losses = [run["final"] for run in each if run["final"] is not None]
        if arm == "fp32":
            axes.axhspan(min(losses), max(losses), color="#dddddd", label="float32, all seeds")
            continue
        exponent = each[0]["exponent"]
        axes.plot([exponent] * len(losses), losses, "o", color=COLOURS[1], markersize=3)
        axes.bar(
            exponent,
            sum(run["outcome"] == "diverged" for run in each) / len(each),
            width=1.2,
            color=COLOURS[2],
            alpha=0.35,
        )
    axes.set(xlabel="constant scale, 2^", ylabel="final losses; bars: share that diverged")
    axes.legend(frameon=False, fontsize=8)


def _traces(axes: Any, runs: Sequence[Run], title: str) -> None:
    arms = {arm: each for arm, each in by_arm(runs).items() if each[0]["scaler"] != "constant"}
    for number, (arm, each) in enumerate(arms.items()):
        style = "-" if each[0]["scaler"] == "ALS" else "--"
        for index, run in enumerate(each):
            axes.plot(
                run["trace"],
                style,
                color=f"C{number}",
                linewidth=1.2 if index == 0 else 0.4,
                alpha=1.0 if index == 0 else 0.4,
                label=None if index else arm,
            )
    axes.set(xlabel="updates", ylabel="scale, 2^", title=title)
    axes.legend(frameon=False, fontsize=6, loc="upper center", bbox_to_anchor=(0.5, -0.12), ncols=2)


def draw(path: Path, studies: dict[str, list[Run]]) -> None:
    """Constant scales; traces from wrong starts; traces about a shock. All seeds, the first one thick."""

    def panels(left: Any, middle: Any, right: Any) -> None:
        _window(left, studies["window"])
        _traces(middle, studies["start"], "wrong starts")
        shocked = [run for run in studies["shock"] if run["scaler"] != "constant"]
        first, last = trial_of(shocked[0]).shocked
        right.axvspan(first, last, color="#dddddd")
        _traces(right, shocked, f"losses x {SHOCK:g} in the middle")

    save_figure(path, 3, panels, height=5.2)
