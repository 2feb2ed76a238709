"""How fast models answer on this machine: one text by itself, and many together."""

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from brimful.base.resources import CoreWatch, usable_cores
from brimful.tables.table import Table

LATENCY_TEXTS = 30
"""Texts that a latency is a median over."""
MAX_THROUGHPUT_TEXTS = 500
"""Texts, at most, that a throughput is measured on."""
MAX_SECONDS = 4.0
"""About the longest that either may take of a model, but for the first call."""


class Speed(NamedTuple):
    """How fast a model answers, from text to answer: `latency_ms` is the median of single texts,
    `texts_per_second` the rate of many together, `withheld` how much of that time others had the cores."""

    latency_ms: float
    texts_per_second: float
    withheld: float = 0.0


Answer = Callable[[Table], object]
"""Computes the answers to the texts of a table."""


def speeds_of(answers: Mapping[str, Answer], table: Table) -> dict[str, Speed]:
    """The speed of each model on the first texts of a table, all in turns: other work slows all alike."""
    if not answers:
        return {}
    watch, models = CoreWatch(), answers.values()
    singles = [table.take([row]) for row in range(min(LATENCY_TEXTS, len(table)))]
    latencies = medians_ms([[partial(answer, one) for answer in models] for one in singles], 3)
    most = min(MAX_THROUGHPUT_TEXTS, len(table))
    counts = [min(most, max(1, int(1e3 * MAX_SECONDS / 2 / each))) for each in latencies]
    pairs = zip(models, counts, strict=True)
    calls = [partial(answer, table.take(range(count))) for answer, count in pairs]
    times = medians_ms([calls], 1)
    rates = [1e3 * count / each for count, each in zip(counts, times, strict=True)]
    withheld = watch.look(max(1, round(usable_cores()))).withheld
    found = map(Speed, latencies, rates, [withheld] * len(answers))
    return dict(zip(answers, found, strict=True))


def medians_ms(rounds: Sequence[Sequence[Callable[[], object]]], warm: int) -> list[float]:
    """Median milliseconds of each call of a round, over rounds, after `warm` of them. Each stops after
    `MAX_SECONDS` of its own, with at least one measured call."""
    warmed = rounds[:warm]
    times: list[list[float]] = [[] for _ in rounds[0]]
    for calls in [*warmed, *rounds]:
        for call, taken in zip(calls, times, strict=True):
            if sum(taken) <= MAX_SECONDS:
                started = time.perf_counter()
                call()
                taken.append(time.perf_counter() - started)
    return [1e3 * statistics.median(taken[min(len(warmed), len(taken) - 1) :]) for taken in times]
