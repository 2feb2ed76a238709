"""Planned rows -> masked micro-batches: pretraining's stream of updates.

The stream is endless. Its state is a cursor, a small JSON value, and `take(cursor)` is a pure function of it:
a resume costs nothing and gives the same bits. Every update is full: at the end of a block or an epoch it is
filled up from the next.
"""

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from functools import lru_cache
from itertools import accumulate, groupby
from typing import NamedTuple

import numpy as np
from numpy import ndarray

from brimful.base.draws import shuffle_indices
from brimful.base.randomness import derive_key
from brimful.base.types import Cursor
from brimful.data.batch import PackedBatch
from brimful.data.blocks import Block
from brimful.data.config import Phase
from brimful.data.masking import count_prediction_slots
from brimful.data.reader import BlockSlice, SequenceReader
from brimful.data.slots import SequenceSlots, count_slots
from brimful.data.sources import BlockRows, Source, mix
from brimful.packing.assignment import assign
from brimful.packing.histogram import count_lengths
from brimful.packing.pack_first import best_fit

ROWS_PER_GROUP = 4
"""The fewest rows of a group whose attention cost is balanced with other groups. Smaller groups would be more
groups, for more ranks, but their costs would differ more."""


class Row(NamedTuple):
    """The sequences `chosen` (int64) of a block, which share a row; or, where updates are counted in
    sequences, the sequences of that block in a micro-batch."""

    source: int
    epoch: int
    block: Block
    chosen: ndarray


class _UpdatePlan(NamedTuple):
    """An update before it is read.

    Attributes:
        rows: the rows of the update, by block.
        micro_batches: indices into all rows for each micro-batch, int64.
        sequence_slots: the S of the micro-batches; None if it is not fixed.
        following: the cursor of the next update.
    """

    rows: list[BlockRows]
    micro_batches: list[ndarray]
    sequence_slots: int | None
    following: Cursor


@lru_cache
def _mask_key(seed: int, source: str, epoch: int) -> np.uint64:
    return derive_key(seed, "masking", source, epoch)


@dataclass(eq=False)
class RowStream:
    """Updates of a number of rows, or of sequences, in micro-batches of `rows_per_micro_batch` rows.

    Micro-batch i of an update belongs to rank `i % world`, so the sequences of an update do not depend on the
    number of ranks. Rows are dealt to micro-batches so that ranks have about the same attention cost. Each
    row comes from the source that is furthest behind its proportion of the tokens.

    Attributes:
        sources: the sources of the mixture. Where updates are counted in sequences, each row of their blocks
            holds one sequence.
        phases: the phases of the run, in order; the last one never ends.
        seed: the seed of masks; where updates are counted in sequences, also of a sequence's neighbours.
        fixed_shapes: pad S and M to constants (T is constant anyway), for compilers and CUDA graphs. A phase
            has one S, and another one while it reads blocks of the phase before; see `slots`.
    """

    reader: SequenceReader
    sources: Sequence[Source]
    phases: Sequence[Phase]
    _: KW_ONLY
    seed: int
    rows_per_micro_batch: int
    fixed_shapes: bool = False
    rank: int = 0
    world: int = 1

    def __post_init__(self) -> None:
        self._ends = list(accumulate(phase.steps for phase in self.phases))
        self._tokens_per_word = max(source.corpus.tokens_per_word for source in self.sources)
        self._slots = SequenceSlots(prints=self.rank == 0)

    def start(self) -> Cursor:
        """The cursor of a new run."""
        return {"update": 0, "sources": {source.name: source.start() for source in self.sources}}

    def phase(self, update: int) -> Phase:
        """The phase that an update, counted from 0, is in."""
        return self.phases[min(bisect_right(self._ends, update), len(self.phases) - 1)]

    def take(self, cursor: Cursor) -> tuple[list[PackedBatch], Cursor]:
        """Make this rank's micro-batches of the update at `cursor`, and the cursor of the next update.

        Raises:
            BrimfulError: the cursor belongs to another plan (the data or the packing changed).
        """
        plan, update = self._plan(cursor), cursor["update"]
        batches = []
        for chosen in plan.micro_batches[self.rank :: self.world]:
            rows = self._choose_rows(plan.rows, chosen, update)
            batches.append(self.batch(rows, update, plan.sequence_slots))
        return batches, plan.following

    def micro_batches(self, cursor: Cursor, which: slice = slice(None)) -> list[list[Row]]:
        """The rows of the update's micro-batches: all, or `which`."""
        plan, update = self._plan(cursor), cursor["update"]
        return [self._choose_rows(plan.rows, chosen, update) for chosen in plan.micro_batches[which]]

    def following(self, cursor: Cursor) -> Cursor:
        """The cursor of the next update."""
        return self._plan(cursor).following

    def advise_smaller(self) -> str:
        """Say what to set where a micro-batch does not fit in memory."""
        rows = self.rows_per_micro_batch
        smaller = list_sizes(self.phases, rows // 2)
        if not smaller:
            return "micro-batches have one row; lower packing.capacity, or choose a smaller model"
        return (
            f"rows_per_micro_batch is {rows}; set it to {smaller[-1]} (to continue with --resume, in the"
            " run's config.yaml)"
        )

    def tokens_by_source(self, cursor: Cursor) -> dict[str, int]:
        """Real tokens that each source has given so far."""
        return {name: place["tokens"] for name, place in cursor["sources"].items()}

    def close(self) -> None:
        """Stop planning ahead; then the stream cannot be read any more."""
        for source in self.sources:
            source.close()

    def _plan(self, cursor: Cursor) -> _UpdatePlan:
        """Choose an update's rows, and divide them among micro-batches."""
        update, size = cursor["update"], self.rows_per_micro_batch
        phase = self.phase(update)
        places = [cursor["sources"][source.name] for source in self.sources]
        rows, order, places = mix(self.sources, places, phase.size, phase.packing.max_length)
        names = [source.name for source in self.sources]
        following = {"update": update + 1, "sources": dict(zip(names, places, strict=True))}

        tokens, costs = np.concatenate([(part.tokens, part.costs) for part in rows], axis=1)  # (2, rows)
        key = derive_key(self.seed, "update", update)
        order, ends = divide(order, tokens, costs, phase, size, key)
        S = None
        if self.fixed_shapes:
            sequences = np.concatenate([part.sequences for part in rows])
            needed = count_most_slots(order, ends, sequences, tokens, phase, size)
            shortest = min(part.block.max_length for part in rows)
            S = self._slots.choose(self._kind(shortest, phase), needed)
        return _UpdatePlan(rows, np.split(order, ends), S, following)

    def _kind(self, shortest: int, phase: Phase) -> tuple[int, ...]:
        """Return the key of S, for rows whose blocks have this length or a longer one, in this phase."""
        return shortest, phase.packing.max_length, phase.size, self.rows_per_micro_batch

    def _choose_rows(self, parts: list[BlockRows], chosen: ndarray, update: int) -> list[Row]:
        """The chosen rows, as indices into all `parts` one after the other.

        Where updates are counted in rows, each is a `Row` of its own, in this order. Elsewhere each is a
        single sequence, and the sequences of one block make one `Row`.
        """
        rows = []
        ends = np.cumsum([len(part.numbers) for part in parts])
        if self.phase(update).unit == "rows":
            for index, part_index in zip(chosen, np.searchsorted(ends, chosen, side="right"), strict=True):
                part = parts[part_index]
                number = part.numbers[index - ends[part_index]]  # from the end of the part, below 0
                rows.append(Row(part.source, part.epoch, part.block, part.block.row(number)))
            return rows
        chosen = np.sort(chosen)
        groups = np.split(chosen, np.searchsorted(chosen, ends))  # the last one is empty
        for part, end, group in zip(parts, ends, groups, strict=False):
            numbers = part.numbers[group - end]
            if len(numbers):
                sequences = part.block.order[part.block.row_offsets[numbers]]
                rows.append(Row(part.source, part.epoch, part.block, sequences))
        return rows

    def batch(self, rows: Sequence[Row], update: int, sequence_slots: int | None = None) -> PackedBatch:
        """Read the masked micro-batch of these rows at an update.

        Args:
            sequence_slots: S; by default, if shapes are fixed, what was chosen for updates with these rows'
                shortest block, or else what they need. Where phases mix in an update, `take` may give more.
        """
        phase = self.phase(update)
        slots = self.rows_per_micro_batch * phase.packing.capacity
        lengths = [row.block.max_length for row in rows]
        if self.fixed_shapes and sequence_slots is None:
            sequence_slots = self._slots.find(self._kind(min(lengths), phase))
        masking = self.reader.masking
        slices = []
        # Neighbouring rows of one block are read at once.
        for (number, epoch, _), group in groupby(rows, lambda row: (row.source, row.epoch, id(row.block))):
            same_block = list(group)
            source, sequences = self.sources[number], same_block[0].block.sequences
            chosen = np.concatenate([row.chosen for row in same_block])
            key = _mask_key(self.seed, source.name, epoch)
            slices.append(BlockSlice(source.corpus, sequences, chosen, key))
        batch = self.reader.batch(
            slices,
            max_length=max([phase.packing.max_length, *lengths]),
            rate=masking.rate_at(update / self._ends[-1]),
            slots=slots,
            sequence_slots=sequence_slots,
            # By the highest rate of the run, so that M is one constant.
            predictions=count_prediction_slots(slots, masking.highest_rate, self._tokens_per_word),
        )
        return batch if self.fixed_shapes else batch.with_fewer_predictions()


def list_sizes(phases: Sequence[Phase], most: int) -> list[int]:
    """List the numbers of rows up to `most` that a micro-batch may have, ascending.

    Where updates are counted in rows, a size must divide the update of every phase. Where they are counted in
    sequences, the sizes are the powers of two.
    """
    if phases[0].unit == "sequences":
        return [1 << n for n in range(most.bit_length())]
    rows = math.gcd(*(phase.size for phase in phases))
    return [size for size in range(1, min(most, rows) + 1) if rows % size == 0]


def divide(
    order: ndarray, tokens: ndarray, costs: ndarray, phase: Phase, size: int, key: np.uint64
) -> tuple[ndarray, ndarray]:
    """Divide an update's rows, or sequences, among micro-batches of `size` rows.

    Args:
        order: int64, the update as indices into `tokens` and `costs`.
        tokens, costs: int64, as `Block.measure` gives them.

    Returns:
        The order, and where in it each micro-batch but the first begins.
    """
    if phase.unit == "rows":
        groups = _count_groups(len(order), size)
        if groups > 1:
            # (groups, rows) -> (micro-batches, groups, size): group i has the micro-batches i, groups + i ...
            dealt = deal(costs[order], groups, key).reshape(groups, -1, size)
            order = order[dealt.swapaxes(0, 1).ravel()]
        return order, np.arange(size, len(order), size)
    lengths = tokens[order]
    plan = best_fit(count_lengths(lengths), phase.packing.capacity, phase.packing.depth)
    offsets, packed = assign(plan, lengths, key)
    return order[packed], offsets[size:-1:size]


def deal(costs: ndarray, groups: int, key: np.uint64) -> ndarray:
    """Deal rows among groups that then cost about the same.

    Rows in order of cost, the most expensive first, are cut into hands of one row for each group. The most
    expensive row of a hand goes to the group whose rows cost least so far.

    Args:
        costs: int64 (rows,), of a number of rows that `groups` divides.
        key: decides between equal costs.

    Returns:
        int64 (groups, rows / groups): the rows of each group.
    """
    shuffled = shuffle_indices(key, np.arange(len(costs)), len(costs))
    ascending = shuffled[np.argsort(costs[shuffled], kind="stable")]
    hands = ascending.reshape(-1, groups)[::-1, ::-1]  # (turns, groups), falling in both directions
    dealt = np.empty((groups, len(hands)), dtype=np.int64)
    loads = np.zeros(groups, dtype=np.int64)
    for turn, hand in enumerate(hands):
        dealt[np.argsort(loads, kind="stable"), turn] = hand
        loads += costs[dealt[:, turn]]
    return dealt


def _count_groups(rows: int, size: int) -> int:
    """Choose the number of groups of micro-batches among which rows are dealt; 1: they are not dealt."""
    micro_batches, rows_over = divmod(rows, size)
    if rows_over:
        return 1
    most = min(micro_batches, rows // ROWS_PER_GROUP)
    divisors = [n for n in range(1, most + 1) if micro_batches % n == 0]
    powers_of_two = [n for n in divisors if n > 1 and n & (n - 1) == 0]  # as most numbers of ranks are
    return max(powers_of_two or divisors or [1])


def count_most_slots(
    order: ndarray, ends: ndarray, sequences: ndarray, tokens: ndarray, phase: Phase, size: int
) -> int:
    """Count the sequence slots that the micro-batches of an update need, as `divide` has divided it.

    Args:
        sequences, tokens: int64, of each row.
    """
    begins = np.concatenate([[0], ends])
    sequences = np.add.reduceat(sequences[order], begins)  # (micro-batches,)
    tokens = np.add.reduceat(tokens[order], begins)
    return count_slots(sequences, tokens, size * phase.packing.capacity, phase.packing.max_length)
