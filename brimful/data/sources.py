"""A corpus of a mixture as an endless stream of rows: block after block, epoch after epoch.

Its state is a small JSON value, and the rows that follow are a pure function of it. While a block is read, a
thread plans the next one.
"""

from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy import ndarray

from brimful.base.errors import BrimfulError
from brimful.corpus.shards import Corpus
from brimful.data.blocks import Block, Blocks
from brimful.packing.histogram import cumulate

Place = dict[str, Any]
"""The state of a source: {"max_length": of the open block, "epoch", "block", "row": the next row, "tokens":
real tokens so far, "data": a hash of the inputs of the plans, "plan": the open block's digest}."""


class BlockRows(NamedTuple):
    """Rows of one block of a source, in the order in which they are visited.

    Attributes:
        numbers: int64 (n,), indices into the block's rows.
        tokens, costs: int64 (n,), from `Block.measure`.
    """

    source: int
    epoch: int
    block: Block
    numbers: ndarray
    tokens: ndarray
    costs: ndarray

    @property
    def sequences(self) -> ndarray:
        """int64 (n,): the sequences of each row."""
        return self.block.row_offsets[self.numbers + 1] - self.block.row_offsets[self.numbers]

    def first(self, count: int) -> "BlockRows":
        """The first `count` of them."""
        some = slice(count)
        return self._replace(numbers=self.numbers[some], tokens=self.tokens[some], costs=self.costs[some])


@dataclass(eq=False)
class Source:
    """Rows of one corpus.

    Attributes:
        number: the place of the source in the mixture.
        name: the name of the source in metrics and in the key of its masks.
        proportion: the source's proportion of the tokens, in any unit.
        blocks: the blocks by the `max_length` of a phase; a block has the same documents at every length.
        ahead: whether this rank plans the next block ahead; one rank does.
    """

    number: int
    name: str
    proportion: float
    blocks: Mapping[int, Blocks]
    ahead: bool = field(default=True, kw_only=True)

    def __post_init__(self) -> None:
        self._opened: dict[tuple[int, int, int], tuple[Block, ndarray]] = {}
        self._planner = ThreadPoolExecutor(max_workers=1, thread_name_prefix="plan")
        self._planned: tuple[tuple[int, int, int], Future[Block]] | None = None
        # The corpus and the identity are the same for every length.
        self._any_blocks = next(iter(self.blocks.values()))

    @property
    def corpus(self) -> Corpus:
        """The corpus of its blocks."""
        return self._any_blocks.corpus

    def start(self) -> Place:
        """Where a new run begins."""
        place = {"max_length": None, "epoch": 0, "block": 0, "row": 0, "tokens": 0}
        return place | {"data": self._any_blocks.identity, "plan": None}

    def read_rows(self, place: Place, most: int, max_length: int) -> BlockRows:
        """Read the rows from `place` on: at least one, at most `most`, all of one block.

        A block that begins here is cut at `max_length`. An open block is read to its end as it was cut, so
        that nothing is lost or read twice.

        Raises:
            BrimfulError: the place belongs to another plan (the data or the packing changed).
        """
        row, epoch = place["row"], place["epoch"]
        is_same = place.get("data") == self._any_blocks.identity
        if is_same:
            length = place["max_length"] if row else max_length
            block, order = self._open(length, epoch, place["block"])
            is_same = place["plan"] in (None, block.digest)
        if not is_same:
            raise BrimfulError(
                "the checkpoint was made from other data or packing (or another scipy); start a new run"
            )
        numbers = order[row : row + most]
        return BlockRows(self.number, epoch, block, numbers, *block.measure(numbers))

    def advance(self, place: Place, rows: BlockRows) -> Place:
        """The place after rows that begin at `place`. The plan of a block that ends here is deleted."""
        row, tokens = place["row"] + len(rows.numbers), place["tokens"] + int(rows.tokens.sum())
        following = place | {"max_length": rows.block.max_length, "row": row, "tokens": tokens}
        if row < rows.block.rows:
            return following | {"plan": rows.block.digest}
        for blocks in self.blocks.values():
            blocks.drop(place["epoch"], place["block"])
        epoch, number = self._any_blocks.next(place["epoch"], place["block"])
        return following | {"epoch": epoch, "block": number, "row": 0, "plan": None}

    def close(self) -> None:
        """Wait for the plan in progress. The source cannot be read afterwards."""
        self._planner.shutdown(cancel_futures=True)

    def _open(self, max_length: int, epoch: int, number: int) -> tuple[Block, ndarray]:
        """Open a block, and draw the order of its rows. The first opening plans the next block."""
        key, blocks = (max_length, epoch, number), self.blocks[max_length]
        if key in self._opened:
            return self._opened[key]
        planned, self._planned = self._planned, None
        if planned and planned[0] == key:
            future = planned[1]
        else:
            if planned:  # a new phase: the plan of the old length is not read
                (unread, *which), _ = planned
                self._planner.submit(self.blocks[unread].drop, *which)
            # In the planner's thread too, so that no block is made twice.
            future = self._planner.submit(blocks.open, epoch, number)
        block = future.result()
        if self.ahead:
            following = blocks.next(epoch, number)
            self._planned = (max_length, *following), self._planner.submit(blocks.open, *following)
        if len(self._opened) > 1:  # an update may need two
            del self._opened[next(iter(self._opened))]
        self._opened[key] = block, blocks.row_order(epoch, number, block.rows)
        return self._opened[key]


def mix(
    sources: Sequence[Source], places: Sequence[Place], count: int, max_length: int
) -> tuple[list[BlockRows], ndarray, list[Place]]:
    """Choose the next `count` rows of a mixture: each from the source that is furthest behind its proportion
    of the tokens, and from the first of several such sources.

    Args:
        places: the state of each source.
        max_length: of the blocks that begin.

    Returns:
        The rows, by block; their order, int64 (count,), as indices into the rows of all blocks; and the
        places after them.
    """
    places, parts, order, done = list(places), [], [], 0
    while done < count:
        upcoming = []
        # turns: for each row, how far its source is when the row's turn comes. The last entry of each source
        # is the turn of a row that is not known yet: the order is certain up to the first of these.
        turns = []
        for source, place in zip(sources, places, strict=True):
            rows = source.read_rows(place, count - done, max_length)
            tokens = place["tokens"] + cumulate(rows.tokens)
            upcoming.append(rows)
            turns.append(tokens / source.proportion)
        ends = np.cumsum([len(turn) for turn in turns]) - 1
        unknown = np.zeros(ends[-1] + 1, dtype=np.bool_)
        unknown[ends] = True
        sorted_turns = np.argsort(np.concatenate(turns), kind="stable")
        chosen = sorted_turns[: min(int(unknown[sorted_turns].argmax()), count - done)]
        source_of_row = np.searchsorted(ends, chosen)
        counts = np.bincount(source_of_row, minlength=len(sources))
        begins = done + np.cumsum(counts) - counts  # of each source's rows among all that were chosen
        firsts = ends - [len(rows.numbers) for rows in upcoming]
        order.append(chosen + (begins - firsts)[source_of_row])
        for index in np.flatnonzero(counts).tolist():
            rows = upcoming[index].first(int(counts[index]))
            parts.append(rows)
            places[index] = sources[index].advance(places[index], rows)
        done += len(chosen)
    return parts, np.concatenate(order), places
