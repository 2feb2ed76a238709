"""Algorithms side by side on one histogram: the published tables, and the proven bound beside them."""

import time
from collections.abc import Callable
from functools import cached_property, partial
from typing import Any

import numpy as np

from brimful.base.randomness import derive_key, hash_words, permutation
from brimful.packing.bounds import lower_bound
from brimful.packing.config import Algorithm, Depth
from brimful.packing.cutting.stock import cutting_stock
from brimful.packing.histogram import Plan, count_lengths
from brimful.packing.least_squares import nnlshp
from brimful.packing.online import pack_stream
from brimful.packing.pack_first import best_fit, lpfhp, spfhp

PLANNERS: dict[Algorithm, Callable[[np.ndarray, int, Depth], Plan]] = {
    "spfhp": spfhp,
    "lpfhp": lpfhp,
    "nnlshp": nnlshp,
    "ennlshp": partial(nnlshp, cover=True),
    "best-fit": best_fit,
    "cutting-stock": cutting_stock,
}
"""All but `online`, which packs a stream of sequences and does not see their histogram."""

NNLSHP_DEPTHS = (2, 3)
DEPTHS: tuple[Depth, ...] = (2, 3, 4, 8, 16, None)
STREAM = 200_000
"""The most sequences that `online` packs."""
LARGEST_CAPACITY = 65_536


def best_fit_by_capacity(counts: np.ndarray, capacity: int) -> list[dict[str, Any]]:
    """Best-fit's efficiency at every depth, for rows of `capacity`, twice that, and so on to 65,536."""
    plans = []
    rows = 2
    while capacity <= LARGEST_CAPACITY and rows > 1:
        for depth in DEPTHS:
            plan = best_fit(counts, capacity, depth)
            plans.append({"capacity": capacity, "depth": depth, "efficiency": plan.efficiency})
        rows = plan.rows
        capacity *= 2
    return plans


def draw_lengths(counts: np.ndarray, most: int) -> np.ndarray:
    """int64: all lengths of the histogram in random order, or `most` random draws if it has more."""
    total = int(counts.sum())
    key = derive_key("stream")
    if total <= most:
        places = permutation(total, key)
    else:
        places = (hash_words(key, np.arange(most)) % np.uint64(total)).astype(np.int64)
    return np.searchsorted(np.cumsum(counts), places, side="right")


class Comparison:
    """Plans of one histogram at one capacity.

    Args:
        counts: int64 (longest + 1,), number of sequences of each length.
    """

    def __init__(self, counts: np.ndarray, capacity: int) -> None:
        self.counts = counts
        self.capacity = capacity
        self._bounds: dict[tuple[int, Depth], int] = {}

    def run(self, algorithm: Algorithm, depth: Depth) -> tuple[dict[str, Any], Plan]:
        """A plan, and its record as `--json` prints it.

        Raises:
            BrimfulError: a sequence fits no row, or the algorithm cannot plan this depth.
        """
        counts = self.counts
        if algorithm == "online":
            counts = count_lengths(self._stream)
            lengths = self._stream.tolist()
            started = time.perf_counter()
            rows = list(pack_stream(lengths, self.capacity, depth))
            seconds = time.perf_counter() - started
            patterns = [[lengths[number] for number in row] for row in rows]
            minimum = lower_bound(counts, self.capacity, depth)
            plan = Plan.of(self.capacity, patterns, [1] * len(rows), minimum)
        else:
            PLANNERS[algorithm](np.array([0, 1]), 8, 1)  # loads the compiled loops
            started = time.perf_counter()
            plan = PLANNERS[algorithm](counts, self.capacity, depth)
            seconds = time.perf_counter() - started
        bound = self._lower_bound(counts, depth, plan.lower_bound if algorithm == "cutting-stock" else None)
        return {
            "algorithm": algorithm,
            "capacity": self.capacity,
            "depth": depth,
            "rows": plan.rows,
            "sequences": plan.sequences,
            "tokens": plan.tokens,
            "efficiency": plan.efficiency,
            "packing_factor": plan.packing_factor,
            "seconds": seconds,
            "lower_bound": bound,
            "rows_above_bound": plan.rows - bound,
        }, plan

    @cached_property
    def _stream(self) -> np.ndarray:
        return draw_lengths(self.counts, STREAM)

    def _lower_bound(self, counts: np.ndarray, depth: Depth, known: int | None) -> int:
        """The bound from cutting stock's linear program, whichever algorithm made the plan."""
        key = (int(counts.sum()), depth)
        if key not in self._bounds:
            self._bounds[key] = known or cutting_stock(counts, self.capacity, depth).lower_bound
        return self._bounds[key]
