"""Tables of the learning bench's runs, in Markdown."""

import math
import statistics
from collections.abc import Sequence

from bench.common.study import Run, by_arm, paired, spread, table


def final(runs: Sequence[Run]) -> list[float]:
    """The held-out loss at the end; NaN for a run that ended before."""
    return [math.nan if run["error"] else run["points"][-1]["loss"] for run in runs]


def compared(runs: Sequence[Run], against: str) -> str:
    """A row for each arm: its size, its time, its loss, and how far that is from the arm `against`."""
    arms = by_arm(runs)
    rows = []
    for arm, each in arms.items():
        losses = final(each)
        mean, deviation = spread(losses)
        seconds = statistics.mean(run["cpu_seconds"] for run in each)
        tokens = statistics.mean(run["tokens"] for run in each)
        difference = (
            "" if arm == against else "{:+.4f} ± {:.4f}".format(*paired(losses, final(arms[against])))
        )
        rows.append(
            [
                arm,
                f"{each[0]['updates']:,}",
                f"{statistics.mean(run['points'][-1]['sequences'] for run in each):,.0f}",
                f"{statistics.mean(run['fill'] for run in each):.1%}",
                f"{mean:.4f} ± {deviation:.4f}",
                difference,
                f"{seconds:.0f}",
                f"{tokens / seconds:,.0f}",
            ]
        )
    titles = [
        "",
        "updates",
        "sequences",
        "real slots",
        "held-out loss",
        f"minus {against}",
        "CPU s",
        "tokens/CPU-s",
    ]
    return table(titles, rows)


def on_the_way(runs: Sequence[Run], against: str) -> str:
    """The loss after each share of the updates, mean ± deviation, and paired differences from an arm."""
    arms = by_arm(runs)
    points = len(arms[against][0]["points"])
    titles = ["share of the updates", *arms, *(f"{arm} minus {against}" for arm in arms if arm != against)]
    rows = []
    for index in range(points):
        losses = {arm: [run["points"][index]["loss"] for run in each] for arm, each in arms.items()}
        share = arms[against][0]["points"][index]["step"] / arms[against][0]["updates"]
        means = ["{:.3f} ± {:.3f}".format(*spread(each)) for each in losses.values()]
        differences = [
            "{:+.4f} ± {:.4f}".format(*paired(each, losses[against]))
            for arm, each in losses.items()
            if arm != against
        ]
        rows.append([f"{share:.0%}", *means, *differences])
    return table(titles, rows)


def _last_tenth(run: Run) -> list[float]:
    """Of the training losses."""
    losses = [step["loss"] for step in run["steps"]]
    return losses[-max(1, len(losses) // 10) :]


def outcomes(runs: Sequence[Run]) -> str:
    """A row for each arm: every seed's losses at the end, or where it ended; its largest gradient."""
    rows = []
    for arm, each in by_arm(runs).items():
        losses = [
            f"not finite before {run['updates']}" if run["error"] else f"{loss:.3f}"
            for run, loss in zip(each, final(each), strict=True)
        ]
        worst = max(step["norm"] for run in each for step in run["steps"])
        lowest = ", ".join(f"{min(point['loss'] for point in run['points']):.3f}" for run in each)
        ends = ", ".join(f"{statistics.fmean(_last_tenth(run)):.2f}" for run in each)
        mean, deviation = spread(final(each))
        rows.append([arm, ", ".join(losses), f"{mean:.3f} ± {deviation:.3f}", lowest, ends, f"{worst:.3g}"])
    titles = [
        "",
        "held-out loss",
        "mean",
        "lowest on the way",
        "last training losses",
        "largest gradient",
    ]
    return table(titles, rows)
