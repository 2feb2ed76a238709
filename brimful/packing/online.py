"""Packing a stream whose histogram is unknown: a bounded buffer, and one rule for each row.

Whenever the buffer is full, the sequence that has waited longest goes into the open row. When the row is
nearly full, it is completed: with one, two or three waiting sequences that take exactly the space left, or
else with the longest one that fits, repeatedly.

If several pairs take the space exactly, the pair with the most equal lengths is chosen: very short
sequences are kept for the rows of very long ones. If more than half of the waiting sequences are longer
than half a row, each of these needs a row of its own and few sequences are left to fill it, so the longest
that fits comes first. Every row starts with the oldest sequence, so no sequence waits forever.
"""

import operator
from typing import Any, NamedTuple

import numpy as np

from brimful.errors import BrimfulError
from brimful.packing.bounds import lower_bound
from brimful.packing.histogram import Plan, check_limits, checked_lengths, count_lengths, depth_limit
from brimful.packing.waiting import INDEX, LENGTH, NEWER, OLDEST, OPEN, SPACE, WAITING, advance, empty_buffer


class PackedRows(NamedTuple):
    """Row r holds the sequences `order[row_offsets[r]:row_offsets[r + 1]]`.

    Attributes:
        row_offsets: int64 (rows + 1,), from 0.
        order: int64 (sequences,), sequences by their running number in order of arrival.
    """

    row_offsets: np.ndarray
    order: np.ndarray


class OnlinePacker:
    """Packs sequences as they arrive; at most `buffer` of them wait, beside the open row.

    The rows depend on the stream, not on how it is cut into calls of `add`.

    Waiting is bounded: a sequence is in one of the first `buffer` rows that begin after it arrived, or in a
    row of `flush` if the stream ends before.

    A call costs some ten microseconds beside its sequences, so give it hundreds at a time.

    Args:
        capacity: token slots of a row.
        buffer: how many sequences may wait. A larger buffer fills rows a little better.
        max_sequences: the most sequences in a row (packing depth); None = no limit.

    Raises:
        BrimfulError: an argument is below 1.
    """

    def __init__(self, capacity: int, *, buffer: int = 1024, max_sequences: int | None = None) -> None:
        if buffer < 1:
            raise BrimfulError(f"buffer is {buffer}: it must be at least 1")
        self.capacity, self.max_sequences = check_limits(capacity, max_sequences)
        self.buffer = operator.index(buffer)
        self._arrived = 0
        self._open = np.empty(0, dtype=np.int64)
        self._waiting = empty_buffer(self.buffer, self.capacity)

    def add(self, lengths: np.ndarray) -> PackedRows:
        """Take in the stream's next sequences.

        Args:
            lengths: int (n,), tokens of each.

        Returns:
            The rows that are complete since the last call.

        Raises:
            BrimfulError: a sequence is empty or longer than `capacity`; then no sequence is taken in.
        """
        return self._advance(checked_lengths(lengths, self.capacity), self.buffer)

    def flush(self) -> PackedRows:
        """The end of the stream: all the rest, in rows. If more sequences come, numbering continues."""
        rows = self._advance(np.empty(0, dtype=np.int64), 1)
        if not len(self._open):
            return rows
        rest = self._open
        self._open = np.empty(0, dtype=np.int64)
        self._waiting.counters[[OPEN, SPACE]] = 0, self.capacity
        order = np.concatenate([rows.order, rest])
        return PackedRows(np.append(rows.row_offsets, len(order)), order)

    def state(self) -> dict[str, Any]:
        """Everything that the rows to come depend on, as JSON values; about `buffer` pairs of numbers."""
        slots, counters = self._waiting.slots, self._waiting.counters
        waiting = []
        slot = counters[OLDEST]
        while slot >= 0:
            waiting.append(slots[slot, [INDEX, LENGTH]].tolist())
            slot = slots[slot, NEWER]
        return {
            "capacity": self.capacity,
            "buffer": self.buffer,
            "max_sequences": self.max_sequences,
            "arrived": self._arrived,
            "waiting": waiting,
            "open": self._open.tolist(),
            "space": int(counters[SPACE]),
        }

    @classmethod
    def restore(cls, state: dict[str, Any]) -> "OnlinePacker":
        """A packer that continues where `state()` was called.

        Raises:
            BrimfulError: it is not what `state()` gives: a part is missing, or more waits than there may.
        """
        try:
            packer = cls(state["capacity"], buffer=state["buffer"], max_sequences=state["max_sequences"])
            waiting = np.array(state["waiting"], dtype=np.int64).reshape(-1, 2)
            row = np.array(state["open"], dtype=np.int64)
            used = packer.capacity - state["space"]
            arrived = operator.index(state["arrived"])
        except (KeyError, TypeError, ValueError) as error:
            raise BrimfulError(f"not a packer's state: {error}") from error
        indices = np.concatenate([waiting[:, 0], row])
        if len(np.unique(indices)) < len(indices) or ((indices < 0) | (indices >= arrived)).any():
            raise BrimfulError(f"not a packer's state: sequences that are not of the {arrived:,} that came")
        if len(waiting) >= packer.buffer or not len(row) <= used <= (packer.capacity if len(row) else 0):
            raise BrimfulError(
                f"not a packer's state: {len(waiting):,} sequences wait in a buffer of {packer.buffer:,}, and"
                f" {len(row):,} take {used:,} of a row's {packer.capacity:,} tokens"
            )
        packer._advance(checked_lengths(waiting[:, 1], packer.capacity), packer.buffer)
        packer._waiting.slots[: len(waiting), INDEX] = waiting[:, 0]
        packer._arrived = arrived
        packer._open = row
        packer._waiting.counters[[OPEN, SPACE]] = len(row), state["space"]
        return packer

    def _advance(self, lengths: np.ndarray, limit: int) -> PackedRows:
        at_hand = len(self._open) + int(self._waiting.counters[WAITING]) + len(lengths)
        order = np.empty(at_hand, dtype=np.int64)
        order[: len(self._open)] = self._open
        row_offsets = np.zeros(at_hand + 1, dtype=np.int64)
        depth = depth_limit(self.capacity, self.max_sequences)
        rows, placed = advance(self._waiting, lengths, self._arrived, limit, depth, order, row_offsets)
        self._arrived += len(lengths)
        end = row_offsets[rows]
        self._open = order[end:placed].copy()
        return PackedRows(row_offsets[: rows + 1].copy(), order[:end].copy())


def pack_stream(lengths: np.ndarray, capacity: int, max_sequences: int | None = None) -> Plan:
    """The plan that an `OnlinePacker` makes of a whole stream: as many patterns as rows, in their order.

    Args:
        lengths: int (n,), tokens of each sequence, in order of arrival.
        capacity: token slots of a row.
        max_sequences: the most sequences in a row (packing depth); None = no limit.

    Raises:
        BrimfulError: a sequence is empty or longer than `capacity`, or a limit is below 1.
    """
    lengths = np.asarray(lengths, dtype=np.int64)
    packer = OnlinePacker(capacity, max_sequences=max_sequences)
    first, rest = packer.add(lengths), packer.flush()
    order = np.concatenate([first.order, rest.order])
    return Plan(
        capacity,
        lengths[order].astype(np.int32),
        np.concatenate([first.row_offsets, first.row_offsets[-1] + rest.row_offsets[1:]]),
        np.ones(len(first.row_offsets) + len(rest.row_offsets) - 2, dtype=np.int64),
        lower_bound(count_lengths(lengths), capacity, max_sequences),
    )
