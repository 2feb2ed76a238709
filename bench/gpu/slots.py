"""S of bench/gpu for lengths whose S is not written down in step.py, from the code of training."""

from pathlib import Path

import numpy as np

from bench.common.lengths import cut, quantile_sample, read_histogram
from bench.common.workload import CAPACITY
from brimful.data.batch import filler_lengths
from brimful.data.config import PackingConfig, Phase
from brimful.data.rows import expected_slots
from brimful.data.slots import SequenceSlots
from brimful.packing.histogram import count_lengths
from brimful.packing.pack_first import best_fit

ROW, UPDATE = 1024, 2048
"""Slots of a row and rows of an update: training chooses S for micro-batches of an update's rows."""
PLANNED = 250_000
"""Sequences of the plan that S is chosen from, about as many as of a block of training."""


def chosen_slots(histogram: Path | None, tokens: int, longest: int, lengths: list[int]) -> int:
    """S as training has it for micro-batches of `tokens` slots, at least what these lengths need."""
    capacity = min(ROW, tokens)
    packing = PackingConfig(max_length=longest, capacity=capacity)
    sample = cut(quantile_sample(read_histogram(histogram, CAPACITY), PLANNED, seed=0), longest)
    plan = best_fit(count_lengths(np.array(sample)), capacity, packing.depth)
    each = [np.add.reduceat(plan.lengths.astype(np.int64) ** n, plan.offsets[:-1]) for n in range(3)]
    phase, rows = Phase(1, packing, max(UPDATE, tokens // capacity)), tokens // capacity

    def sampled() -> int:
        return expected_slots(*each, plan.repeats.astype(np.float64), phase, rows, seed=0)

    needed = len(lengths) + len(filler_lengths(tokens - sum(lengths), longest))
    return SequenceSlots(shown=False).choose({"bench": sampled}, needed)
