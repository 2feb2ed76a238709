"""How fast a model answers on this machine: one text by itself, and many together."""

import math
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from brimful.tables.table import Table

TIMED = 30
"""Texts that a latency is a median over."""
MOST = 500
"""Texts, at most, that a throughput is measured on."""
SECONDS = 4.0
"""About the longest that either may take, but for the first call."""


class Speed(NamedTuple):
    """How fast a model answers, from text to answer: `latency_ms` is the median of single texts,
    `texts_per_second` the rate of many together."""

    latency_ms: float
    texts_per_second: float


def speed_of(answer: Callable[[Table], object], table: Table) -> Speed:
    """The speed of a model on the first texts of a table.

    Args:
        answer: computes the answers to the texts of a table.
    """
    singles = [table.take([row]) for row in range(min(TIMED, len(table)))]
    latency = median_ms(answer, singles, 3, SECONDS)
    count = min(MOST, len(table), max(1, int(1e3 * SECONDS / 2 / latency)))
    return Speed(latency, 1e3 * count / median_ms(answer, [table.take(range(count))], 1, SECONDS))


def median_ms(
    call: Callable[[Any], object], values: Sequence[Any], warm: int = 10, seconds: float = math.inf
) -> float:
    """Median milliseconds of `call` over `values`, after `warm` calls. It stops after `seconds`, with at
    least one measured call."""
    times, spent, left = list[float](), 0.0, min(warm, len(values))
    for value in [*values[:warm], *values]:
        if times and spent > seconds:
            break
        started = time.perf_counter()
        call(value)
        took = time.perf_counter() - started
        spent += took
        if left and spent <= seconds:
            left -= 1
        else:
            times.append(1e3 * took)
    return statistics.median(times)
