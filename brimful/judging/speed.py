"""How fast a model answers on this machine: one text by itself, and many together."""

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from brimful.tables.table import Table

TIMED = 30
"""Texts that a latency is a median over."""
MOST, SECONDS = 500, 4.0
"""Texts that a throughput is measured on, at most, and about the longest that this may take."""


class Speed(NamedTuple):
    """What a user waits for, from text to answer: `latency_ms` is the median of one text by itself, and
    `texts_per_second` of many together."""

    latency_ms: float
    texts_per_second: float


def speed_of(answer: Callable[[Table], object], table: Table) -> Speed:
    """The speed of a model on the first texts of a table.

    Args:
        answer: computes the answers to the texts of a table.
    """
    singles = [table.take([row]) for row in range(min(TIMED, len(table)))]
    latency = median_ms(answer, singles, 3)
    count = max(TIMED, min(MOST, int(1e3 * SECONDS / latency)))
    many = table.take(range(min(count, len(table))))
    return Speed(latency, 1e3 * len(many) / median_ms(answer, [many], 1))


def median_ms(call: Callable[[Any], object], values: Sequence[Any], warm: int = 10) -> float:
    """Median milliseconds of `call` over `values`, after `warm` calls."""
    times = []
    for value in [*values[:warm], *values]:
        started = time.perf_counter()
        call(value)
        times.append(1e3 * (time.perf_counter() - started))
    return statistics.median(times[min(warm, len(values)) :])
