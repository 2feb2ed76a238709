"""A corpus of a mixture as an endless stream of rows: block after block, epoch after epoch.

Where it stands is a small JSON value, and `take` is a pure function of it. The block after the one that is
read is planned meanwhile, in a thread.
"""

from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from brimful.corpus.shards import Corpus
from brimful.data.blocks import Block, Blocks
from brimful.errors import BrimfulError

Place = dict[str, Any]
"""Where a source stands: {"max_length": of the open block, "epoch", "block", "row": the next one, "tokens":
real ones taken so far, "plan": the open block's digest}."""


class Row(NamedTuple):
    """The sequences `chosen` (int64) of a block of a source, which share a row."""

    source: int
    epoch: int
    block: Block
    chosen: np.ndarray

    @property
    def lengths(self) -> np.ndarray:
        """int32: tokens of each sequence."""
        return self.block.sequences.length[self.chosen]


class Source:
    """Rows of one corpus.

    Args:
        number: its place in the mixture.
        name: what metrics call it, and what its masks are keyed by.
        weight: its share of the tokens, in any unit.
        blocks: of each `max_length` that a phase has; the same documents are in a block of each.
        tidy: whether to plan ahead, and to delete plans that have been read (one rank does).
    """

    def __init__(
        self, number: int, name: str, weight: float, blocks: Mapping[int, Blocks], *, tidy: bool = True
    ) -> None:
        self.number = number
        self.name = name
        self.weight = weight
        self.blocks = blocks
        self.tidy = tidy
        self._open = lru_cache(maxsize=2)(self._opened)
        self._planner = ThreadPoolExecutor(max_workers=1, thread_name_prefix="plan")
        self._ahead: tuple[tuple[int, int, int], Future[Block]] | None = None

    @property
    def corpus(self) -> Corpus:
        """What it reads."""
        return next(iter(self.blocks.values())).corpus

    def start(self) -> Place:
        """Where a new run begins."""
        return {"max_length": None, "epoch": 0, "block": 0, "row": 0, "tokens": 0, "plan": None}

    def take(self, place: Place, max_length: int) -> tuple[Row, Place]:
        """The row at `place`, and the place after it. A block that begins here is cut at `max_length`; one
        that is open is read to its end as it was cut, so that nothing is lost or comes twice.

        Raises:
            BrimfulError: the place belongs to another plan (the data or the packing changed).
        """
        if place["row"] == 0:
            place = {**place, "max_length": max_length}
        max_length, epoch, number = place["max_length"], place["epoch"], place["block"]
        blocks = self.blocks[max_length]
        block, order = self._open(max_length, epoch, number)
        if place["plan"] not in (None, block.digest):
            raise BrimfulError(
                "the checkpoint was made from other data or packing (or another scipy); start a new run"
            )
        row = Row(self.number, epoch, block, block.row(int(order[place["row"]])))
        after = {
            **place,
            "row": place["row"] + 1,
            "tokens": place["tokens"] + int(row.lengths.sum()),
            "plan": block.digest,
        }
        if after["row"] == block.rows:
            if self.tidy:
                blocks.drop(epoch, number)
            epoch, number = blocks.next(epoch, number)
            after |= {"epoch": epoch, "block": number, "row": 0, "plan": None}
        return row, after

    def close(self) -> None:
        """Wait for the plan that is being made; then the source cannot be read any more."""
        self._planner.shutdown(cancel_futures=True)

    def _opened(self, max_length: int, epoch: int, number: int) -> tuple[Block, np.ndarray]:
        """A block and the order of its rows; the next one is planned from now on."""
        wanted, blocks = (max_length, epoch, number), self.blocks[max_length]
        planned, self._ahead = self._ahead, None
        if planned and planned[0] == wanted:
            future = planned[1]
        else:
            if planned:  # a phase has begun: what was planned for the one before is not read
                (unread, *which), _ = planned
                self._planner.submit(self.blocks[unread].drop, *which)
            future = self._planner.submit(blocks.open, epoch, number)  # there, so that no block is made twice
        block = future.result()
        if self.tidy:
            following = blocks.next(epoch, number)
            self._ahead = (max_length, *following), self._planner.submit(blocks.open, *following)
        return block, blocks.row_order(epoch, number, block.rows)
