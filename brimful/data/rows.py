"""Planned rows -> masked micro-batches: pretraining's stream of updates.

The stream is endless. Its state is a cursor, a small JSON value, and `take(cursor)` is a pure function of it:
a resume costs nothing and gives the same bits. Every update is full: at the end of a block or an epoch it
takes the rest from the next.
"""

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import accumulate, groupby, pairwise
from typing import NamedTuple

import numpy as np

from brimful.base.draws import shuffle_indices
from brimful.base.randomness import derive_key
from brimful.base.types import Cursor
from brimful.data.batch import PackedBatch
from brimful.data.blocks import Block
from brimful.data.config import Phase
from brimful.data.masking import prediction_slots
from brimful.data.reader import BlockSlice, SequenceReader
from brimful.data.slots import SequenceSlots, slots_needed
from brimful.data.sources import BlockRows, Source, mix
from brimful.packing.assignment import assign
from brimful.packing.histogram import count_lengths
from brimful.packing.pack_first import best_fit

ROWS_PER_GROUP = 4
"""The fewest rows among which attention costs are balanced; with fewer, more ranks could be balanced."""


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


@dataclass(eq=False)
class RowStream:
    """Updates of a number of rows, or of sequences, in micro-batches of `rows_per_micro_batch` rows.

    Micro-batch i of an update belongs to rank `i % world`, so the sequences of an update do not depend on the
    number of ranks. Rows are dealt to micro-batches so that ranks have about the same attention cost. Each
    row comes from the source that is furthest behind its proportion of the tokens.

    Attributes:
        sources: of the mixture. Where updates are counted in sequences, each row of their blocks holds one.
        phases: in their order; the last phase never ends.
        seed: decides masks, and neighbours where updates are counted in sequences.
        fixed_shapes: pad S and M to constants (T is constant anyway), for compilers and CUDA graphs. A phase
            has one S, and another one while it reads blocks of the phase before; see `slots`.
    """

    reader: SequenceReader
    sources: Sequence[Source]
    phases: Sequence[Phase]
    seed: int = field(kw_only=True)
    rows_per_micro_batch: int = field(kw_only=True)
    fixed_shapes: bool = field(default=False, kw_only=True)
    rank: int = field(default=0, kw_only=True)
    world: int = field(default=1, kw_only=True)

    def __post_init__(self) -> None:
        self._ends = list(accumulate(phase.steps for phase in self.phases))
        self._tokens_per_word = max(source.corpus.tokens_per_word for source in self.sources)
        self._slots = SequenceSlots(shown=self.rank == 0)

    def start(self) -> Cursor:
        """The cursor of a new run."""
        return {"update": 0, "sources": {source.name: source.start() for source in self.sources}}

    def take(self, cursor: Cursor) -> tuple[list[PackedBatch], Cursor]:
        """This rank's micro-batches of the update at `cursor`, and the cursor of the next update.

        Raises:
            BrimfulError: the cursor belongs to another plan (the data or the packing changed).
        """
        rows, groups, sequence_slots, following = self._divided(cursor)
        phase, update = self.phase(cursor["update"]), cursor["update"]
        mine = [_rows(rows, group, phase) for group in groups[self.rank :: self.world]]
        return [self.batch(rows, update, sequence_slots) for rows in mine], following

    def advise_smaller(self) -> str:
        """What to set where a micro-batch does not fit in memory."""
        rows = self.rows_per_micro_batch
        smaller = valid_sizes(self.phases, rows // 2)
        if not smaller:
            return "micro-batches have one row; lower packing.capacity, or choose a smaller model"
        return (
            f"rows_per_micro_batch is {rows}; set it to {smaller[-1]} (to continue with --resume, in the"
            " run's config.yaml)"
        )

    def tokens_by_source(self, cursor: Cursor) -> dict[str, int]:
        """Real tokens that each source has given so far."""
        return {name: place["tokens"] for name, place in cursor["sources"].items()}

    def micro_batches(self, cursor: Cursor, which: slice = slice(None)) -> tuple[list[list[Row]], Cursor]:
        """The rows of the update's micro-batches (all of them, or `which`), and the cursor of the next
        update."""
        rows, groups, _, following = self._divided(cursor)
        return [_rows(rows, group, self.phase(cursor["update"])) for group in groups[which]], following

    def following(self, cursor: Cursor) -> Cursor:
        """The cursor of the next update."""
        return self._divided(cursor)[-1]

    def _divided(self, cursor: Cursor) -> tuple[list[BlockRows], list[np.ndarray], int | None, Cursor]:
        """An update's rows by block, its micro-batches as indices into all rows, their S if it is fixed, and
        the cursor of the next update."""
        update, names, each = cursor["update"], [s.name for s in self.sources], self.rows_per_micro_batch
        phase, key = self.phase(update), derive_key(self.seed, "update", update)
        places = [cursor["sources"][name] for name in names]
        rows, order, places = mix(self.sources, places, phase.size, phase.packing.max_length)
        following = {"update": update + 1, "sources": dict(zip(names, places, strict=True))}
        tokens = np.concatenate([part.tokens for part in rows])
        costs = np.concatenate([part.costs for part in rows])
        order, ends = divide(order, tokens, costs, phase, each, key)
        S = None
        if self.fixed_shapes:
            sequences = np.concatenate([part.sequences for part in rows])
            shortest = min(part.block.max_length for part in rows)
            needed = most_slots_needed(order, ends, sequences, tokens, phase, each)
            S = self._slots.choose(self._kind(shortest, phase), needed)
        return rows, np.split(order, ends), S, following

    def _kind(self, shortest: int, phase: Phase) -> tuple[int, ...]:
        """What S depends on: rows of blocks of this length and longer ones, in this phase."""
        return shortest, phase.packing.max_length, phase.size, self.rows_per_micro_batch

    def close(self) -> None:
        """Stop planning ahead; then the stream cannot be read any more."""
        for source in self.sources:
            source.close()

    def phase(self, update: int) -> Phase:
        """The phase that an update, counted from 0, is in."""
        return self.phases[min(bisect_right(self._ends, update), len(self.phases) - 1)]

    def batch(self, rows: Sequence[Row], update: int, sequence_slots: int | None = None) -> PackedBatch:
        """The masked micro-batch of these rows at an update.

        Args:
            sequence_slots: S; by default, if shapes are fixed, what was chosen for updates with these rows'
                shortest block, or else what they need. Where phases mix in an update, `take` may give more.
        """
        phase = self.phase(update)
        packing = phase.packing
        slots = self.rows_per_micro_batch * packing.capacity
        if self.fixed_shapes and sequence_slots is None:
            shortest = min(row.block.max_length for row in rows)
            sequence_slots = self._slots.known(self._kind(shortest, phase))
        longest = max([packing.max_length, *(row.block.max_length for row in rows)])
        masking = self.reader.masking
        slices = []
        for (source, epoch, _), group in groupby(rows, lambda row: (row.source, row.epoch, id(row.block))):
            same = list(group)
            chosen = np.concatenate([row.chosen for row in same])
            key = _mask_key(self.seed, self.sources[source].name, epoch)
            slices.append(BlockSlice(self.sources[source].corpus, same[0].block.sequences, chosen, key))
        batch = self.reader.batch(
            slices,
            max_length=longest,
            rate=masking.rate_at(update / self._ends[-1]),
            slots=slots,
            sequence_slots=sequence_slots,
            predictions=prediction_slots(slots, masking.highest_rate, self._tokens_per_word),
        )
        return batch if self.fixed_shapes else batch.with_fewer_predictions()


def valid_sizes(phases: Sequence[Phase], most: int) -> list[int]:
    """The numbers of rows up to `most` that a micro-batch may have, ascending.

    Where updates are counted in rows, a size must divide the update of every phase. Where they are counted in
    sequences, the sizes are the powers of two.
    """
    if phases[0].counted == "sequences":
        return [1 << n for n in range(most.bit_length())]
    rows = math.gcd(*(phase.size for phase in phases))
    return [size for size in range(1, min(most, rows) + 1) if rows % size == 0]


def divide(
    order: np.ndarray, tokens: np.ndarray, costs: np.ndarray, phase: Phase, each: int, key: np.uint64
) -> tuple[np.ndarray, np.ndarray]:
    """Divide an update's rows, or sequences, among micro-batches of `each` rows.

    Args:
        order: int64, the update as indices into `tokens` and `costs`.
        tokens, costs: int64, as `Block.measure` gives them.

    Returns:
        The order, and where in it each micro-batch but the first begins.
    """
    if phase.counted == "rows":
        return _dealt(order, costs, each, key), np.arange(each, len(order), each)
    lengths = tokens[order]
    plan = best_fit(count_lengths(lengths), phase.packing.capacity, phase.packing.depth)
    offsets, packed = assign(plan, lengths, key)
    return order[packed], offsets[each:-1:each]


def _dealt(order: np.ndarray, costs: np.ndarray, each: int, key: np.uint64) -> np.ndarray:
    """An update's rows in an order that balances `costs` among n groups of micro-batches.

    Group i has the micro-batches i, n + i, 2 n + i ... n is a power of two where the numbers of rows and
    micro-batches allow it.
    """
    groups = _groups(len(order), each)
    if groups == 1:
        return order
    dealt = deal(costs[order], groups, key)
    return order[dealt.reshape(groups, -1, each).swapaxes(0, 1).ravel()]


def deal(costs: np.ndarray, groups: int, key: np.uint64) -> np.ndarray:
    """Deal rows among groups that then cost about the same.

    Rows in order of cost, the most expensive first, are cut into hands of one row for each group. Of each
    hand, the most expensive row goes to the group whose rows cost least so far.

    Args:
        costs: int64 (rows,), of a number of rows that `groups` divides.
        key: decides what costs leave open.

    Returns:
        int64 (groups, rows / groups): the rows of each group.
    """
    mixed = shuffle_indices(key, np.arange(len(costs)), len(costs))
    ascending = mixed[np.argsort(costs[mixed], kind="stable")]
    hands = ascending.reshape(-1, groups)[::-1, ::-1]
    dealt = np.empty((groups, len(hands)), dtype=np.int64)
    loads = np.zeros(groups, dtype=np.int64)
    for turn, hand in enumerate(hands):
        dealt[np.argsort(loads, kind="stable"), turn] = hand
        loads += costs[dealt[:, turn]]
    return dealt


def _groups(rows: int, each: int) -> int:
    """The number of groups of micro-batches among which rows are dealt; 1: they are not dealt."""
    micro_batches, left = divmod(rows, each)
    most = 0 if left else min(micro_batches, rows // ROWS_PER_GROUP)
    divisors = [n for n in range(1, most + 1) if micro_batches % n == 0]
    powers = [n for n in divisors if n & (n - 1) == 0]  # ranks mostly come in powers of two
    return max([n for n in powers if n > 1] or divisors or [1])


def most_slots_needed(
    order: np.ndarray, ends: np.ndarray, sequences: np.ndarray, tokens: np.ndarray, phase: Phase, each: int
) -> int:
    """Sequence slots that the micro-batches of an update need, divided as `divide` says.

    Args:
        sequences, tokens: int64, of each row.
    """
    begins = np.concatenate([[0], ends])
    held, filled = (np.add.reduceat(values[order], begins) for values in (sequences, tokens))
    return slots_needed(held, filled, each * phase.packing.capacity, phase.packing.max_length)


def _rows(parts: list[BlockRows], chosen: np.ndarray, phase: Phase) -> list[Row]:
    """The chosen rows, out of all `parts`. Where updates are counted in rows each is a Row of its own, in
    this order; elsewhere the rows of one block, each a single sequence, make one Row."""
    apart = phase.counted == "rows"
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
