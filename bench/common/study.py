"""What studies of trainings share: arms and seeds, runs that are kept, paired differences, tables.

An arm is one way to train. All arms have the same seeds, so differences are taken within a seed.
"""

import json
import math
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from brimful.base.storage import atomic_file

Run = dict[str, Any]


def kept(file: Path, make: Callable[[], Run]) -> Run:
    """The result of a run: from `file` if the run is done, else made now and written there."""
    if not file.is_file():
        found = make()
        with atomic_file(file) as temporary:
            temporary.write_text(json.dumps(found), encoding="utf-8")
    return json.loads(file.read_text(encoding="utf-8"))


def by_arm(runs: Sequence[Run]) -> dict[str, list[Run]]:
    """The runs of each arm, in the order of their seeds."""
    arms: dict[str, list[Run]] = {}
    for run in sorted(runs, key=lambda run: run["seed"]):
        arms.setdefault(run["arm"], []).append(run)
    return arms


def spread(values: Sequence[float]) -> tuple[float, float]:
    """Mean, and standard deviation of the sample."""
    if len(values) < 2 or any(map(math.isnan, values)):
        return statistics.fmean(values), math.nan
    return statistics.mean(values), statistics.stdev(values)


def paired(values: Sequence[float], others: Sequence[float]) -> tuple[float, float]:
    """Mean difference of values with the same seeds, and its standard error."""
    mean, deviation = spread([a - b for a, b in zip(values, others, strict=True)])
    return mean, deviation / math.sqrt(len(values))


def table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [titles, ["---"] * len(titles), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
