"""The tables of the study of loss scalers."""

import statistics
from collections.abc import Callable, Sequence

from bench.common.study import Run, by_arm, paired, spread, table

NEAR = 2.0
"""Octaves within which a scale is near another."""


def turn(trace: Sequence[float]) -> int | None:
    """The first update whose scale moved against the first move: the wrong start is over. None: never."""
    first = 0.0
    for update in range(1, len(trace)):
        move = trace[update] - trace[update - 1]
        if move * first < 0:
            return update
        first = first or move
    return None


def recovery(run: Run) -> int | None:
    """Updates from the end of a shock until the scale is near its median over the 20 updates before it."""
    trace, start = run["trace"], start_of_shock(run)
    before = statistics.median(trace[max(0, start - 20) : start])
    end = start + run["shock"]
    for update in range(end, len(trace)):
        if abs(trace[update] - before) <= NEAR:
            return update - end
    return None


def start_of_shock(run: Run) -> int:
    """The first update of the shock, which is in the middle."""
    return (run["updates"] - run["shock"]) // 2


def span(values: Sequence[float | None]) -> str:
    """The least and the greatest; a value that is None counts as "never"."""
    known = sorted(value for value in values if value is not None)
    ends = dict.fromkeys(f"{value:,}" for value in (*known[:1], *known[-1:]))
    parts = [" to ".join(ends)] if known else []
    if missing := len(values) - len(known):
        parts.append(f"never in {missing}" if known else "never")
    return ", ".join(parts) or "-"


def count_outcomes(runs: list[Run], outcome: str) -> str:
    """How many of the runs had an outcome."""
    return f"{sum(run['outcome'] == outcome for run in runs)} of {len(runs)}"


def span_skipped(runs: list[Run]) -> str:
    """Updates that were skipped, those before a shock left out."""
    skipped = []
    for run in runs:
        start = start_of_shock(run) if run["shock"] else 0
        skipped.append(sum(update >= start for update in run["skipped"]))
    return span(skipped)


def span_clipped(runs: list[Run]) -> str:
    """Numbers that were clipped, which only ALS does."""
    return span([run["clipped"] for run in runs]) if runs[0]["scaler"] == "ALS" else "-"


def span_turns(runs: list[Run]) -> str:
    return "-" if runs[0]["scaler"] == "constant" else span([turn(run["trace"]) for run in runs])


def span_recoveries(runs: list[Run]) -> str:
    return "-" if runs[0]["scaler"] == "constant" else span([recovery(run) for run in runs])


COLUMNS: dict[str, Callable[[list[Run]], str]] = {
    "stalled": lambda runs: count_outcomes(runs, "stalled"),
    "diverged": lambda runs: count_outcomes(runs, "diverged"),
    "skipped": span_skipped,
    "skipped since the shock": span_skipped,
    "updates that overflowed": lambda runs: span([run["overflows"] for run in runs]),
    "numbers clipped": span_clipped,
    "zero gradients": lambda runs: f"{statistics.fmean(run['zeros'] for run in runs):.1%}",
    "updates to the turn": span_turns,
    "updates to recover": span_recoveries,
}
COLUMNS_OF_STUDIES = {
    "window": ("stalled", "diverged", "updates that overflowed", "zero gradients"),
    "start": ("skipped", "updates that overflowed", "numbers clipped", "updates to the turn"),
    "shock": ("diverged", "skipped since the shock", "updates that overflowed", "updates to recover"),
    "formats": ("stalled", "diverged", "updates that overflowed", "zero gradients"),
}


def results(study: str, runs: Sequence[Run]) -> str:
    """A study's table: a row for each arm, over its seeds. Losses of float32 have the same seed and shock."""
    reference = {(run["seed"], run["shock"]): run["final"] for run in runs if run["format"] == "fp32"}
    columns = COLUMNS_OF_STUDIES[study]
    rows = []
    for arm, each in by_arm(runs).items():
        whole = [run for run in each if run["final"] is not None]
        final = against = "-"
        if whole:
            final = "{:.3f} ± {:.3f}".format(*spread([run["final"] for run in whole]))
            others = [reference[run["seed"], run["shock"]] for run in whole]
            against = "{:+.3f} ± {:.3f}".format(*paired([run["final"] for run in whole], others))
        rows.append([arm, final, against, *(COLUMNS[column](each) for column in columns)])
    return table(["", "final loss", "minus fp32", *columns], rows)
