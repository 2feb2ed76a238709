"""S, the sequence slots of a micro-batch: room for nearly all micro-batches to come, and few empty slots.

Kernels of attention visit every slot, so empty ones cost time, and each new S costs a compilation. S is the
most that a sample of micro-batches needs. It grows when a micro-batch needs more: no sequence is dropped.
Empty sequences add nothing to any loss. A resume samples again and may find another S: the loss of masked
language modelling is the same to the last bit, sums over sequences are to rounding. T is the capacity of the
rows, and `prediction_slots` gives M: both are a few percent above what is used, with no need of a sample.
"""

from collections.abc import Callable, Hashable, Mapping

import numpy as np

from brimful.base.console import say

STEP = 8
"""S is a multiple of this, so that matrices with a row for each slot are aligned."""
GROWTH = 1 / 16
"""How far above its need S grows, so that it grows seldom."""
SAMPLED, MOST_UPDATES = 1024, 256
"""Micro-batches of a sample, and the most updates that they are of. A sample takes tenths of a second."""


def slots_needed(sequences: np.ndarray, tokens: np.ndarray, slots: int, max_length: int) -> np.ndarray:
    """Sequence slots that micro-batches need, for their sequences and the filler: int64 (n,).

    Args:
        sequences, tokens: int64 (n,), what each micro-batch holds.
        slots: T.
        max_length: the longest that a filler sequence may be.
    """
    return sequences + -(-(slots - tokens) // max_length)


def sampled_updates(micro_batches: int) -> int:
    """How many updates of this many micro-batches make a sample."""
    return min(MOST_UPDATES, -(-SAMPLED // micro_batches))


class SequenceSlots:
    """The S of each kind of micro-batch, by a key.

    Args:
        shown: whether to print a line when an S grows; one rank does.
    """

    def __init__(self, *, shown: bool) -> None:
        self.shown = shown
        self._slots: dict[Hashable, int] = {}

    def known(self, key: Hashable) -> int:
        """The S of this kind; 0 before the first `choose`."""
        return self._slots.get(key, 0)

    def choose(self, kinds: Mapping[Hashable, Callable[[], int]], needed: int) -> int:
        """The S of micro-batches in which these kinds mix: the largest of theirs, at least `needed`.

        Args:
            kinds: for each key, what makes a sample and gives the slots that it needs.
            needed: sequence slots of the micro-batches at hand.
        """
        new = [key for key in kinds if key not in self._slots]
        for key in new:
            self._slots[key] = _rounded(kinds[key]())
        largest = max(kinds, key=self.known)
        before = self._slots[largest]
        if needed > before:
            grown = _rounded(needed) if new else _rounded(max(needed * (1 + GROWTH), kinds[largest]()))
            self._slots[largest] = grown
            if not new and self.shown:
                say(
                    f"a micro-batch needs {needed:,} sequence slots: from here on there are {grown:,} instead"
                    f" of {before:,}, and compiled steps are compiled once more"
                )
        return self._slots[largest]


def _rounded(slots: float) -> int:
    """The next multiple of `STEP`, at least one."""
    return max(1, -int(-slots // STEP)) * STEP
