"""How fast an export answers on this processor, which the gate measures beside what it loses."""

import time
from collections.abc import Callable
from typing import Any

from brimful.judging.baselines import TIMED, median_ms
from brimful.processors import processor, usable_cores
from brimful.tables.table import Table

ROWS = 500
"""Texts, at most, that the throughput is measured on."""


def speed_of(answer: Callable[[Table], object], table: Table) -> dict[str, Any]:
    """The speed of a candidate, with tokenization.

    Args:
        answer: computes the outputs of a table's texts.

    Returns:
        `texts_per_second` of many together, `p50_ms` of one by itself, `processor` and `cores`.
    """
    many = table.take(range(min(ROWS, len(table))))
    singles = [table.take([row]) for row in range(min(TIMED, len(table)))]
    p50 = median_ms(answer, singles, 3)
    started = time.perf_counter()
    answer(many)
    return {
        "texts_per_second": len(many) / (time.perf_counter() - started),
        "p50_ms": p50,
        "processor": processor(),
        "cores": round(usable_cores()),
    }
