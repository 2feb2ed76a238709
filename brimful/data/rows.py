"""Planned rows -> masked micro-batches: pretraining's stream of updates.

The stream is endless. Its state is a cursor, a small JSON value, and `take(cursor)` is a pure function of it:
a resume costs nothing and gives the same bits. Every update is full: at the end of a block or an epoch it
takes the rest from the next.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, groupby, pairwise
from typing import Any, Literal, NamedTuple

import numpy as np

from brimful.data.batch import PackedBatch
from brimful.data.blocks import Block, PackingConfig
from brimful.data.masking import prediction_slots
from brimful.data.reader import BlockSlice, SequenceReader
from brimful.data.sources import Rows, Source, mix
from brimful.packing.assignment import assign
from brimful.packing.dealing import deal
from brimful.packing.histogram import count_lengths
from brimful.packing.pack_first import best_fit
from brimful.randomness import derive_key

ROWS_PER_GROUP = 4
"""The fewest rows among which attention costs are balanced; with fewer, more ranks could be balanced."""

Cursor = dict[str, Any]
"""The state of a stream, in JSON values."""


@lru_cache
def _mask_key(seed: int, source: str, epoch: int) -> np.uint64:
    return derive_key(seed, "masking", source, epoch)


class Row(NamedTuple):
    """The sequences `chosen` (int64) of a block, which share a row; or, where updates are counted in
    sequences, the sequences of that block in a micro-batch."""

    source: int
    epoch: int
    block: Block
    chosen: np.ndarray

    @property
    def lengths(self) -> np.ndarray:
        """int32: tokens of each sequence."""
        return self.block.sequences.length[self.chosen]


@dataclass(frozen=True)
class Phase:
    """A phase of a run.

    Attributes:
        steps: its updates.
        packing: of the blocks that begin in it. The capacity is the same in all phases.
        size: of an update, in rows or in sequences.
        counted: the unit of `size`; the same in all phases.
    """

    steps: int
    packing: PackingConfig
    size: int
    counted: Literal["rows", "sequences"] = "rows"


class RowStream:
    """Updates of a number of rows, or of sequences, in micro-batches of `rows_per_micro_batch` rows.

    Micro-batch i of an update belongs to rank `i % world`, so the sequences of an update do not depend on the
    number of ranks. Rows are dealt to micro-batches so that ranks have about the same attention cost. Each
    row comes from the source that is furthest behind its proportion of the tokens.

    Args:
        sources: of the mixture. Where updates are counted in sequences, each row of their blocks holds one.
        phases: in their order; the last phase never ends.
        seed: decides masks, and neighbours where updates are counted in sequences.
        fixed_shapes: pad S to a constant (T and M are constant anyway), for compilers and CUDA graphs.
    """

    def __init__(
        self,
        reader: SequenceReader,
        sources: Sequence[Source],
        phases: Sequence[Phase],
        *,
        seed: int,
        rows_per_micro_batch: int,
        fixed_shapes: bool = False,
        rank: int = 0,
        world: int = 1,
    ) -> None:
        self.reader = reader
        self.sources = sources
        self.phases = phases
        self.seed = seed
        self.rows_per_micro_batch = rows_per_micro_batch
        self.fixed_shapes = fixed_shapes
        self.rank = rank
        self.world = world
        self._ends = list(accumulate(phase.steps for phase in phases))
        self._tokens_per_word = max(source.corpus.tokens_per_word for source in sources)

    def start(self) -> Cursor:
        """The cursor of a new run."""
        return {"update": 0, "sources": {source.name: source.start() for source in self.sources}}

    def take(self, cursor: Cursor) -> tuple[list[PackedBatch], Cursor]:
        """This rank's micro-batches of the update at `cursor`, and the cursor of the next update.

        Raises:
            BrimfulError: the cursor belongs to another plan (the data or the packing changed).
        """
        mine, following = self.micro_batches(cursor, slice(self.rank, None, self.world))
        return [self.batch(rows, cursor["update"]) for rows in mine], following

    def tokens_by_source(self, cursor: Cursor) -> dict[str, int]:
        """Real tokens that each source has given so far."""
        return {name: place["tokens"] for name, place in cursor["sources"].items()}

    def micro_batches(self, cursor: Cursor, which: slice = slice(None)) -> tuple[list[list[Row]], Cursor]:
        """The rows of the update's micro-batches (all of them, or `which`), and the cursor of the next
        update."""
        rows, order, following = self._chosen(cursor)
        phase, key = self.phase(cursor["update"]), derive_key(self.seed, "update", cursor["update"])
        if phase.counted == "rows":
            order = self._dealt(order, np.concatenate([part.costs for part in rows]), key)
            ends = np.arange(self.rows_per_micro_batch, len(order), self.rows_per_micro_batch)
        else:
            order, ends = self._packed(order, np.concatenate([part.tokens for part in rows]), phase, key)
        return [
            _rows(rows, group, apart=phase.counted == "rows") for group in np.split(order, ends)[which]
        ], following

    def following(self, cursor: Cursor) -> Cursor:
        """The cursor of the next update."""
        return self._chosen(cursor)[-1]

    def _chosen(self, cursor: Cursor) -> tuple[list[Rows], np.ndarray, Cursor]:
        """An update's rows by block, their order among all of them, and the cursor of the next update."""
        update, names = cursor["update"], [source.name for source in self.sources]
        phase = self.phase(update)
        places = [cursor["sources"][name] for name in names]
        rows, order, places = mix(self.sources, places, phase.size, phase.packing.max_length)
        return rows, order, {"update": update + 1, "sources": dict(zip(names, places, strict=True))}

    def close(self) -> None:
        """Stop planning ahead; then the stream cannot be read any more."""
        for source in self.sources:
            source.close()

    def phase(self, update: int) -> Phase:
        """The phase that an update, counted from 0, is in."""
        return self.phases[min(bisect_right(self._ends, update), len(self.phases) - 1)]

    def _packed(
        self, order: np.ndarray, lengths: np.ndarray, phase: Phase, key: np.uint64
    ) -> tuple[np.ndarray, np.ndarray]:
        """An update's sequences in an order that fills micro-batches well, and where each micro-batch but the
        first begins."""
        packing, lengths = phase.packing, lengths[order]
        plan = best_fit(count_lengths(lengths), packing.capacity, packing.depth)
        offsets, packed = assign(plan, lengths, key)
        return order[packed], offsets[self.rows_per_micro_batch : -1 : self.rows_per_micro_batch]

    def _dealt(self, order: np.ndarray, costs: np.ndarray, key: np.uint64) -> np.ndarray:
        """An update's rows in an order that balances attention costs among n groups of micro-batches.

        Group i has the micro-batches i, n + i, 2 n + i ... n is a power of two where the numbers of rows and
        micro-batches allow it.
        """
        each, groups = self.rows_per_micro_batch, self._groups(len(order))
        if groups == 1:
            return order
        dealt, _ = deal(costs[order], groups, len(order) // groups, key)
        return order[dealt[0].reshape(groups, -1, each).swapaxes(0, 1).ravel()]

    def _groups(self, rows: int) -> int:
        """The number of groups of micro-batches among which rows are dealt; 1: they are not dealt."""
        micro_batches, left = divmod(rows, self.rows_per_micro_batch)
        most = 0 if left else min(micro_batches, rows // ROWS_PER_GROUP)
        divisors = [n for n in range(1, most + 1) if micro_batches % n == 0]
        powers = [n for n in divisors if n & (n - 1) == 0]  # ranks mostly come in powers of two
        return max([n for n in powers if n > 1] or divisors or [1])

    def batch(self, rows: Sequence[Row], update: int) -> PackedBatch:
        """The masked micro-batch of these rows at an update."""
        packing = self.phase(update).packing
        slots = self.rows_per_micro_batch * packing.capacity
        longest = max([packing.max_length, *(row.block.max_length for row in rows)])
        masking = self.reader.masking
        slices = []
        for (source, epoch, _), group in groupby(rows, lambda row: (row.source, row.epoch, id(row.block))):
            same = list(group)
            chosen = np.concatenate([row.chosen for row in same])
            key = _mask_key(self.seed, self.sources[source].name, epoch)
            slices.append(BlockSlice(self.sources[source].corpus, same[0].block.sequences, chosen, key))
        return self.reader.batch(
            slices,
            max_length=longest,
            rate=masking.rate_at(update / self._ends[-1]),
            slots=slots,
            sequence_slots=self._sequence_slots(packing) if self.fixed_shapes else None,
            predictions=prediction_slots(slots, masking.highest_rate, masking.unit, self._tokens_per_word),
        )

    def _sequence_slots(self, packing: PackingConfig) -> int:
        """S: the most sequences of a micro-batch, and the most filler sequences beside them."""
        slots = self.rows_per_micro_batch * packing.capacity
        return self.rows_per_micro_batch * packing.depth + slots // packing.max_length + 1


def _rows(parts: list[Rows], chosen: np.ndarray, *, apart: bool) -> list[Row]:
    """The chosen rows, out of all `parts`. With `apart` each is a Row of its own, in this order; without, the
    rows of one block, each a single sequence, make one Row."""
    if not apart:
        chosen = np.sort(chosen)
    sizes = np.array([len(part.numbers) for part in parts])
    ends = np.cumsum(sizes)
    of_part = np.searchsorted(ends, chosen, side="right")
    within = chosen - (ends - sizes)[of_part]
    begins = np.arange(len(chosen)) if apart else np.flatnonzero(np.diff(of_part, prepend=-1))
    found = []
    for begin, end in pairwise([*begins.tolist(), len(chosen)]):
        source, epoch, block, numbers, *_ = parts[of_part[begin]]
        rows = numbers[within[begin:end]]
        found.append(
            Row(source, epoch, block, block.row(rows[0]) if apart else block.order[block.row_offsets[rows]])
        )
    return found
