"""A corpus of a mixture as an endless stream of rows: block after block, epoch after epoch.

Its state is a small JSON value, and the rows that follow are a pure function of it. While a block is read, a
thread plans the next one.
"""

from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from brimful.base.errors import BrimfulError
from brimful.corpus.shards import Corpus
from brimful.data.blocks import Block, Blocks

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
    numbers: np.ndarray
    tokens: np.ndarray
    costs: np.ndarray

    @property
    def sequences(self) -> np.ndarray:
        """int64 (n,): the sequences of each row."""
        return self.block.row_offsets[self.numbers + 1] - self.block.row_offsets[self.numbers]

    def first(self, count: int) -> "BlockRows":
        """The first `count` of them."""
        return self._replace(**{name: getattr(self, name)[:count] for name in ("numbers", "tokens", "costs")})


@dataclass(eq=False)
class Source:
    """Rows of one corpus.

    Attributes:
        number: its place in the mixture.
        name: in metrics, and in the key of its masks.
        proportion: of the tokens of the mixture, in any unit.
        blocks: for each `max_length` of a phase; a block has the same documents at every length.
        ahead: whether to plan the next block ahead; one rank does.
    """

    number: int
    name: str
    proportion: float
    blocks: Mapping[int, Blocks]
    ahead: bool = field(default=True, kw_only=True)

    def __post_init__(self) -> None:
        self._opened: dict[tuple[int, int, int], tuple[Block, np.ndarray]] = {}
        self._planner = ThreadPoolExecutor(max_workers=1, thread_name_prefix="plan")
        self._planned: tuple[tuple[int, int, int], Future[Block]] | None = None

    @property
    def corpus(self) -> Corpus:
        """The corpus of its blocks."""
        return self._any.corpus

    @property
    def _any(self) -> Blocks:
        return next(iter(self.blocks.values()))

    def start(self) -> Place:
        """Where a new run begins."""
        place = {"max_length": None, "epoch": 0, "block": 0, "row": 0, "tokens": 0}
        return place | {"data": self._any.identity, "plan": None}

    def upcoming(self, place: Place, most: int, max_length: int) -> BlockRows:
        """The rows from `place` on: at least one, at most `most`, all of one block.

        A block that begins here is cut at `max_length`. An open block is read to its end as it was cut, so
        that nothing is lost or read twice.

        Raises:
            BrimfulError: the place belongs to another plan (the data or the packing changed).
        """
        row, epoch = place["row"], place["epoch"]
        block = None
        if place.get("data") == self._any.identity:
            block, order = self._open(place["max_length"] if row else max_length, epoch, place["block"])
        if block is None or place["plan"] not in (None, block.digest):
            raise BrimfulError(
                "the checkpoint was made from other data or packing (or another scipy); start a new run"
            )
        numbers = order[row : row + most]
        return BlockRows(self.number, epoch, block, numbers, *block.measure(numbers))

    def after(self, place: Place, taken: BlockRows) -> Place:
        """The place after rows that begin at `place`. The plan of a block that ends here is deleted."""
        row, tokens = place["row"] + len(taken.numbers), place["tokens"] + int(taken.tokens.sum())
        at = place | {"max_length": taken.block.max_length, "row": row, "tokens": tokens}
        if row < taken.block.rows:
            return at | {"plan": taken.block.digest}
        for blocks in self.blocks.values():
            blocks.drop(place["epoch"], place["block"])
        epoch, number = self._any.next(place["epoch"], place["block"])
        return at | {"epoch": epoch, "block": number, "row": 0, "plan": None}

    def close(self) -> None:
        """Wait for the plan in progress. The source cannot be read afterwards."""
        self._planner.shutdown(cancel_futures=True)

    def _open(self, max_length: int, epoch: int, number: int) -> tuple[Block, np.ndarray]:
        """A block and the order of its rows. When it is first opened, the next block is planned."""
        wanted, blocks = (max_length, epoch, number), self.blocks[max_length]
        if wanted in self._opened:
            return self._opened[wanted]
        planned, self._planned = self._planned, None
        if planned and planned[0] == wanted:
            future = planned[1]
        else:
            if planned:  # a new phase: the plan of the old length is not read
                (unread, *which), _ = planned
                self._planner.submit(self.blocks[unread].drop, *which)
            future = self._planner.submit(blocks.open, epoch, number)  # there: no block is made twice
        block = future.result()
        if self.ahead:
            following = blocks.next(epoch, number)
            self._planned = (max_length, *following), self._planner.submit(blocks.open, *following)
        if len(self._opened) > 1:  # an update may need two
            del self._opened[next(iter(self._opened))]
        self._opened[wanted] = block, blocks.row_order(epoch, number, block.rows)
        return self._opened[wanted]


def mix(
    sources: Sequence[Source], places: Sequence[Place], count: int, max_length: int
) -> tuple[list[BlockRows], np.ndarray, list[Place]]:
    """The next `count` rows of a mixture: each from the source that is furthest behind its proportion of the
    tokens; of several, from the first.

    Args:
        places: the state of each source.
        max_length: of the blocks that begin.

    Returns:
        The rows, by block; their order, int64 (count,), as indices into the rows of all blocks; and the
        places after them.
    """
    places, taken, order, done = list(places), [], [], 0
    while done < count:
        upcoming = [
            source.upcoming(place, count - done, max_length)
            for source, place in zip(sources, places, strict=True)
        ]
        # For each row, how far its source is when the row's turn comes. The last entry of each source is the
        # turn of a row that is not known yet: the order is certain up to the first of these.
        turns = [
            (place["tokens"] + np.concatenate([[0], np.cumsum(rows.tokens)])) / source.proportion
            for source, place, rows in zip(sources, places, upcoming, strict=True)
        ]
        ends = np.cumsum([len(turn) for turn in turns]) - 1
        unknown = np.zeros(ends[-1] + 1, dtype=np.bool_)
        unknown[ends] = True
        sorted_turns = np.argsort(np.concatenate(turns), kind="stable")
        chosen = sorted_turns[: min(int(unknown[sorted_turns].argmax()), count - done)]
        of_source = np.searchsorted(ends, chosen)
        counts = np.bincount(of_source, minlength=len(sources))
        begins = done + np.cumsum(counts) - counts  # of each source's rows among all that were taken
        firsts = ends - [len(rows.numbers) for rows in upcoming]
        order.append(chosen + (begins - firsts)[of_source])
        for index in np.flatnonzero(counts).tolist():
            rows = upcoming[index].first(int(counts[index]))
            taken.append(rows)
            places[index] = sources[index].after(places[index], rows)
        done += len(chosen)
    return taken, np.concatenate(order), places
