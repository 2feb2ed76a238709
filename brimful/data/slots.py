"""S, the sequence slots of a micro-batch: room for nearly all micro-batches to come, and few empty slots.

Kernels of attention visit every slot, so empty ones cost time, and each new S costs a compilation. S is what
the first update of its kind needs (in fine-tuning, the first updates of the run), and about two standard
deviations more. It grows when a micro-batch needs more: no sequence is dropped. Empty sequences add nothing
to any loss. A resumed pretraining may find another S. Then the loss of masked language modelling is the same
to the last bit, and sums over sequences are the same up to rounding. T is the capacity of the rows, and
`count_prediction_slots` gives M: both are a few percent above what is used.
"""

import math
from collections.abc import Hashable

from numpy import ndarray

from brimful.base.console import say

STEP = 8
"""S is a multiple of this, so that matrices with a row for each slot are aligned."""
DEVIATIONS = 2
"""S is above the number of needed slots by this many square roots of that number."""


def count_slots(sequences: ndarray, tokens: ndarray, slots: int, max_length: int) -> int:
    """Count the sequence slots that the fullest of several micro-batches needs, with its filler.

    Args:
        sequences, tokens: int64 (n,), the numbers of sequences and of tokens in each micro-batch.
        slots: T.
        max_length: the most tokens of a filler sequence.
    """
    return int((sequences + -(-(slots - tokens) // max_length)).max())  # filler is rounded up


class SequenceSlots:
    """The S of each kind of micro-batch, by a key.

    Args:
        prints: whether to print a line when an S grows; one rank does.
    """

    def __init__(self, *, prints: bool) -> None:
        self.prints = prints
        self._slots: dict[Hashable, int] = {}

    def find(self, key: Hashable) -> int | None:
        """Find the S of this kind; None before the first `choose`."""
        return self._slots.get(key)

    def choose(self, key: Hashable, needed: int) -> int:
        """Choose the S of this kind, at least `needed`: sequence slots of the micro-batches at hand."""
        before = self.find(key)
        if before is not None and needed <= before:
            return before
        # The number of sequences varies like its square root: two of these cover nearly all that is to come.
        enough = math.ceil(needed + DEVIATIONS * math.sqrt(needed))
        slots = max(STEP, -(-enough // STEP) * STEP)
        self._slots[key] = slots
        if before is not None and self.prints:
            say(
                f"a micro-batch needs {needed:,} sequence slots: from here on there are {slots:,} instead of"
                f" {before:,}, and compiled steps are compiled once more"
            )
        return slots
