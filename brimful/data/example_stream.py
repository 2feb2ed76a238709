"""Micro-batches of examples: a stream of updates for fine-tuning and distillation.

An update holds exactly B examples, so a mean over it is the same as without packing. Order and cursor work as
in `rows`: examples come in a keyed permutation, anew each epoch, and an update at the end of an epoch is
filled up from the next one.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
from numpy import ndarray

from brimful.base.randomness import derive_key, permutation
from brimful.base.types import Cursor
from brimful.data.batch import PackedBatch
from brimful.data.example_batches import make_batch, make_rounded_batch
from brimful.data.examples import Examples
from brimful.data.slots import SequenceSlots, count_slots
from brimful.packing.assignment import assign
from brimful.packing.histogram import count_lengths
from brimful.packing.pack_first import best_fit

SAMPLED_UPDATES = 64
"""The first updates of a run, whose fullest micro-batch says what S is."""


@lru_cache(maxsize=2)  # an update may need the orders of two epochs
def _draw_order(examples: int, seed: int, epoch: int) -> ndarray:
    return permutation(examples, derive_key(seed, "examples", epoch))


@dataclass(eq=False, kw_only=True)
class ExampleStream:
    """Updates of exactly `sequences` examples, in micro-batches of at most `tokens` tokens, or as many as an
    example may have.

    Attributes:
        fixed_shapes: fill every micro-batch up to `tokens`, and S up to a constant, for compilers and CUDA
            graphs; see `slots`.
    """

    examples: Examples = field(kw_only=False)
    sequences: int
    tokens: int
    seed: int
    fixed_shapes: bool = False
    rank: int = 0
    world: int = 1

    def __post_init__(self) -> None:
        self.tokens = max(self.tokens, self.examples.max_length)
        self._slots = SequenceSlots(prints=self.rank == 0)

    def start(self) -> Cursor:
        """The cursor of a new run."""
        return {"epoch": 0, "example": 0}

    def advise_smaller(self) -> str:
        """Say what to set where a micro-batch does not fit in memory."""
        return "lower micro_batch_tokens"

    def tokens_by_source(self, cursor: Cursor) -> dict[str, int]:
        """Empty: there are no sources."""
        return {}

    def take(self, cursor: Cursor) -> tuple[list[PackedBatch], Cursor]:
        """Make this rank's micro-batches of the update at `cursor`, and the cursor of the next update."""
        update, following = self.plan_update(cursor)
        own = update[self.rank :: self.world]
        if not self.fixed_shapes:
            return [make_rounded_batch(self.examples, index) for index in own], following
        if self._slots.find("examples") is None:
            self._slots.choose("examples", self._count_first_slots())
        # S follows from the whole update, so all ranks choose the same.
        S = self._slots.choose("examples", self._count_slots(update))
        return [make_batch(self.examples, index, self.tokens, S) for index in own], following

    def plan_update(self, cursor: Cursor) -> tuple[list[ndarray], Cursor]:
        """Deal the examples of the update at `cursor` to micro-batches, by best-fit; and the next cursor."""
        epoch, start = cursor["epoch"], cursor["example"]
        chosen = []
        missing = self.sequences
        while missing:
            order = _draw_order(len(self.examples), self.seed, epoch)
            chosen.append(order[start : start + missing])
            missing -= len(chosen[-1])
            start += len(chosen[-1])
            if start == len(order):
                epoch, start = epoch + 1, 0
        key = derive_key(self.seed, "micro-batches", epoch, start)
        index = np.concatenate(chosen)
        lengths = self.examples.lengths[index]
        row_offsets, order = assign(best_fit(count_lengths(lengths), self.tokens), lengths, key)
        return np.split(index[order], row_offsets[1:-1]), {"epoch": epoch, "example": start}

    def _count_first_slots(self) -> int:
        """Count what the first updates need. A resume finds the same S, and so the same bits of sums."""
        needed, cursor = 0, self.start()
        for _ in range(SAMPLED_UPDATES):
            update, cursor = self.plan_update(cursor)
            needed = max(needed, self._count_slots(update))
        return needed

    def _count_slots(self, update: Sequence[ndarray]) -> int:
        """Count the sequence slots that the micro-batches of an update need."""
        tokens = np.array([self.examples.lengths[index].sum() for index in update])
        sequences = np.array(list(map(len, update)))
        return count_slots(sequences, tokens, self.tokens, self.examples.max_length)
