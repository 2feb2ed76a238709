"""Tables in Markdown of the precision bench's runs: a row for each arm, over its seeds."""

import statistics
from collections.abc import Callable, Sequence

from bench.common.study import Run, by_arm, paired, spread, table
from bench.precision.measures import Outcome, near_share, oscillation, recovery, steady, turn
from bench.precision.run import Trial

Column = tuple[str, Callable[[Sequence[Run]], str]]
NONE = "-"


def trial_of(run: Run) -> Trial:
    """The settings of a run."""
    return Trial(**{name: run[name] for name in Trial.__dataclass_fields__})


def _range(values: Sequence[float | None], digits: int = 0) -> str:
    """The least and the greatest; "never" for those that are None."""
    known = [value for value in values if value is not None]
    never = len(values) - len(known)
    parts = []
    if known:
        least, most = f"{min(known):,.{digits}f}", f"{max(known):,.{digits}f}"
        parts.append(least if least == most else f"{least} to {most}")
    if never:
        parts.append("never" if never == len(values) else f"never in {never}")
    return ", ".join(parts) or NONE


def _percent(values: Sequence[float | None]) -> str:
    known = [value for value in values if value is not None]
    return f"{statistics.fmean(known):.1%}" if known else NONE


def _final(runs: Sequence[Run]) -> str:
    losses = [run["final"] for run in runs if run["final"] is not None]
    return "{:.3f} ± {:.3f}".format(*spread(losses)) if losses else NONE


def _against(runs: Sequence[Run], references: Sequence[Run]) -> str:
    """Mean difference of final losses from float32 with the same seed and shock, and its standard error."""
    losses = {(run["seed"], run["shock"]): run["final"] for run in references}
    pairs = [(run["final"], losses[run["seed"], run["shock"]]) for run in runs if run["final"] is not None]
    return "{:+.3f} ± {:.3f}".format(*paired(*zip(*pairs, strict=True))) if pairs else NONE


def _share(runs: Sequence[Run], outcome: Outcome) -> str:
    return f"{sum(run['outcome'] == outcome for run in runs)} of {len(runs)}"


def _adapts(runs: Sequence[Run]) -> bool:
    return runs[0]["scaler"] != "constant"


def _whole(runs: Sequence[Run]) -> list[Run]:
    return [run for run in runs if run["final"] is not None]


def _of_als(count: str) -> Callable[[Sequence[Run]], str]:
    """Of what only ALS counts."""
    return lambda runs: _range([run[count] for run in runs]) if runs[0]["scaler"] == "ALS" else NONE


def _of_trace(
    measure: Callable[[list[float]], float | None], digits: int = 0
) -> Callable[[Sequence[Run]], str]:
    return lambda runs: _range([measure(run["trace"]) for run in _whole(runs)], digits)


def _error(name: str) -> Callable[[Sequence[Run]], str]:
    def value(runs: Sequence[Run]) -> str:
        errors = [run[name] for run in _whole(runs)]
        return "{:.1%} ± {:.1%}".format(*spread(errors)) if errors else NONE

    return value


def _recovered(runs: Sequence[Run]) -> str:
    if not _adapts(runs):
        return NONE
    return _range([recovery(run["trace"], *trial_of(run).shocked) for run in _whole(runs)])


def _skipped_since(runs: Sequence[Run]) -> str:
    return _range([sum(update >= trial_of(run).shocked[0] for update in run["skipped"]) for run in runs])


def _bound(runs: Sequence[Run]) -> str:
    """What was claimed of ALS's turn: log2(start / steady) + 5 moves of the scale."""
    turned = [run for run in runs if run["scaler"] == "ALS" and turn(run["trace"]) is not None]
    bounds = [run["interval"] * (abs(run["exponent"] - steady(run["trace"])) + 5) for run in turned]
    return _range(bounds, 1)


STALLED: Column = ("stalled", lambda runs: _share(runs, "stalled"))
DIVERGED: Column = ("diverged", lambda runs: _share(runs, "diverged"))
ENDED: Column = ("updates made", lambda runs: _range([run["ended"] for run in runs]))
SKIPPED: Column = ("skipped", lambda runs: _range([len(run["skipped"]) for run in runs]))
SKIPPED_SINCE: Column = ("skipped since the shock", _skipped_since)
OVERFLOWS: Column = ("updates that overflowed", lambda runs: _range([run["overflows"] for run in runs]))
CLIPPED: Column = ("numbers clipped", _of_als("clipped"))
NAN: Column = ("NaN set to 0", _of_als("nan"))
ZEROS: Column = ("zero gradients", lambda runs: _percent([run["zeros"] for run in runs]))
SHOCK_ZEROS: Column = ("in the shock", lambda runs: _percent([run["shock_zeros"] for run in runs]))
RECOVERED: Column = ("updates to recover", _recovered)

COLUMNS: dict[str, list[Column]] = {
    "window": [STALLED, DIVERGED, ENDED, OVERFLOWS, ZEROS],
    "start": [STALLED, DIVERGED, SKIPPED, OVERFLOWS, CLIPPED, NAN, ZEROS],
    "shock": [STALLED, DIVERGED, SKIPPED_SINCE, OVERFLOWS, CLIPPED, NAN, ZEROS, SHOCK_ZEROS, RECOVERED],
    "formats": [STALLED, DIVERGED, SKIPPED, OVERFLOWS, ZEROS],
    "convolution": [
        DIVERGED,
        SKIPPED,
        OVERFLOWS,
        CLIPPED,
        ("held-out error", _error("error")),
        ("averaged weights", _error("averaged_error")),
    ],
}
SCALES: list[Column] = [
    ("updates to the turn", _of_trace(turn)),
    ("claimed at most", _bound),
    ("steady, 2^", _of_trace(steady, 1)),
    ("farthest from it, octaves", _of_trace(oscillation, 1)),
    ("near it", lambda runs: _percent([near_share(run["trace"]) for run in _whole(runs)])),
]


def results(study: str, runs: Sequence[Run]) -> str:
    """A study's table."""
    columns, references = COLUMNS[study], [run for run in runs if run["format"] == "fp32"]
    rows = [
        [arm, _final(each), _against(each, references), *(value(each) for _, value in columns)]
        for arm, each in by_arm(runs).items()
    ]
    return table(["", "final loss", "minus fp32", *(title for title, _ in columns)], rows)


def scales(runs: Sequence[Run]) -> str:
    """What became of the scales of arms that adapt them."""
    arms = {arm: each for arm, each in by_arm(runs).items() if _adapts(each) and _whole(each)}
    rows = [[arm, *(value(each) for _, value in SCALES)] for arm, each in arms.items()]
    return table(["", *(title for title, _ in SCALES)], rows)
