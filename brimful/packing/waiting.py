"""The sequences that wait for a row of a stream, and the loop that forms rows of them."""

from typing import NamedTuple

import numpy as np

from brimful.compiled import compiled

_SLOT_COLUMNS = 5
LENGTH, INDEX, NEXT, OLDER, NEWER = range(_SLOT_COLUMNS)  # NEXT: of the same length, or of the free
_COUNTERS = 7
OLDEST, NEWEST, FREE, WAITING, LONG, OPEN, SPACE = range(_COUNTERS)
_TRIPLES = 16  # longest sequences that are tried as one of three


class Buffer(NamedTuple):
    """The waiting sequences: a queue of all and one of each length, linked through slots; -1 = none.

    `present` has a bit for each length that waits, `mirrored` the same bits in reverse (bit capacity -
    length).
    Two lengths have a given sum where one array, shifted, has a bit in common with the other: 64 in a step.
    """

    capacity: int
    slots: np.ndarray  # int64 (buffer, 5)
    first: np.ndarray  # int64 (capacity + 1,): the slot of the oldest sequence of a length
    last: np.ndarray
    present: np.ndarray  # uint64 (words,)
    mirrored: np.ndarray
    counters: np.ndarray  # int64 (7,); OPEN, SPACE: sequences in the open row, its free tokens


def empty_buffer(size: int, capacity: int) -> Buffer:
    slots = np.full((size, _SLOT_COLUMNS), -1, dtype=np.int64)
    slots[:-1, NEXT] = np.arange(1, size)
    first = np.full(capacity + 1, -1, dtype=np.int64)
    present = np.zeros((capacity >> 6) + 2, dtype=np.uint64)
    counters = np.zeros(_COUNTERS, dtype=np.int64)
    counters[[OLDEST, NEWEST]] = -1
    counters[SPACE] = capacity
    return Buffer(capacity, slots, first, first.copy(), present, present.copy(), counters)


@compiled
def _highest(word):
    """Number of the highest bit that is set; a word of 0 gives 0."""
    number = 0
    for step in (32, 16, 8, 4, 2, 1):
        if word >> np.uint64(step):
            word >>= np.uint64(step)
            number += step
    return number


@compiled
def _flip(bits, number):
    bits[number >> 6] ^= np.uint64(1) << np.uint64(number & 63)


@compiled
def _longest(present, most):
    """The longest length of at most `most` that is present; 0 = none."""
    at = most >> 6
    word = present[at] << np.uint64(63 - (most & 63))
    if word:
        return most - 63 + _highest(word)
    at -= 1
    while at >= 0 and present[at] == 0:
        at -= 1
    return (at << 6) + _highest(present[at]) if at >= 0 else 0


@compiled
def _longer_of_pair(buffer, total, most):
    """The longer length of the most equal pair that sums to `total`, both at most `most`; 0 = no pair.

    With a capacity of 8 and lengths 2, 3 and 5 present, bits 2, 3, 5 of `present` and 6, 5, 3 of `mirrored`
    are set. For a total of 7, `mirrored` moved down by 8 - 7 has bits 5, 4, 2: bit i stands for the partner
    7 - i. Both have 5 and 2, the pair.
    """
    first, last, present, mirrored = buffer.first, buffer.last, buffer.present, buffer.mirrored
    ahead = buffer.capacity - total
    right, left = np.uint64(ahead & 63), np.uint64(63 - (ahead & 63))
    least = (total + 1) >> 1
    mask = ~np.uint64(0) << np.uint64(least & 63)
    for at in range(least >> 6, (most >> 6) + 1):
        partner = at + (ahead >> 6)
        found = (mirrored[partner] >> right) | (mirrored[partner + 1] << np.uint64(1) << left)
        found &= present[at] & mask
        mask = ~np.uint64(0)
        while found:
            lowest = found & (~found + np.uint64(1))
            length = (at << 6) + _highest(lowest)
            if length > most:
                return 0
            if 2 * length != total or first[length] != last[length]:
                return length
            found ^= lowest
    return 0


@compiled
def _exactly(buffer, space, longest, places):
    """Two or three present lengths, none above `longest`, that sum to `space`; zeros = none were found."""
    slots, first, last = buffer.slots, buffer.first, buffer.last
    if places < 2:
        return 0, 0, 0
    longer = _longer_of_pair(buffer, space, min(longest, space - 1))
    if longer > 0:
        return longer, space - longer, 0
    if places < 3:
        return 0, 0, 0
    length = _longest(buffer.present, min(longest, space - 2)) if space > 2 else 0
    for _ in range(_TRIPLES):
        if 3 * length < space or length == 0:
            break
        rest = space - length
        most = length if first[length] != last[length] else length - 1
        longer = _longer_of_pair(buffer, rest, min(most, rest - 1))
        if longer > 0 and (3 * length != space or slots[first[length], NEXT] != last[length]):
            return length, longer, rest - longer
        length = _longest(buffer.present, length - 1)
    return 0, 0, 0


@compiled
def _put(buffer, length, index):
    """Add a sequence to the buffer."""
    slots, counters = buffer.slots, buffer.counters
    slot, newest = counters[FREE], counters[NEWEST]
    counters[FREE] = slots[slot, NEXT]
    slots[slot, LENGTH] = length
    slots[slot, INDEX] = index
    slots[slot, NEXT] = -1
    slots[slot, OLDER] = newest
    slots[slot, NEWER] = -1
    if newest >= 0:
        slots[newest, NEWER] = slot
    else:
        counters[OLDEST] = slot
    counters[NEWEST] = slot
    if buffer.first[length] >= 0:
        slots[buffer.last[length], NEXT] = slot
    else:
        buffer.first[length] = slot
        _flip(buffer.present, length)
        _flip(buffer.mirrored, buffer.capacity - length)
    buffer.last[length] = slot
    counters[WAITING] += 1
    counters[LONG] += 2 * length > buffer.capacity


@compiled
def _take(buffer, length):
    """The oldest sequence of a length goes into the open row; its index."""
    slots, counters = buffer.slots, buffer.counters
    slot = buffer.first[length]
    buffer.first[length] = slots[slot, NEXT]
    if buffer.last[length] == slot:
        buffer.last[length] = -1
        _flip(buffer.present, length)
        _flip(buffer.mirrored, buffer.capacity - length)
    older, newer = slots[slot, OLDER], slots[slot, NEWER]
    if older >= 0:
        slots[older, NEWER] = newer
    else:
        counters[OLDEST] = newer
    if newer >= 0:
        slots[newer, OLDER] = older
    else:
        counters[NEWEST] = older
    slots[slot, NEXT] = counters[FREE]
    counters[FREE] = slot
    counters[WAITING] -= 1
    counters[LONG] -= 2 * length > buffer.capacity
    counters[OPEN] += 1
    counters[SPACE] -= length
    return slots[slot, INDEX]


@compiled
def _fill(buffer, depth, order, placed):
    """Complete the open row; returns how many sequences `order` holds then."""
    counters = buffer.counters
    while counters[OPEN] < depth:
        space = counters[SPACE]
        longest = _longest(buffer.present, space)
        if longest == 0:
            break
        one, two, three = 0, 0, 0
        if longest < space and 2 * counters[LONG] <= counters[WAITING]:
            one, two, three = _exactly(buffer, space, longest, depth - counters[OPEN])
        for length in (one or longest, two, three):
            if length > 0:
                order[placed] = _take(buffer, length)
                placed += 1
    return placed


@compiled
def advance(buffer, lengths, arrived, limit, depth, order, row_offsets):
    """Take `lengths` in, and form rows while `limit` sequences wait; a limit of 1 means the stream's end.

    `order` starts with the open row's sequences. Returns how many rows and sequences the outputs hold.
    """
    slots, counters = buffer.slots, buffer.counters
    come, rows, placed = 0, 0, counters[OPEN]
    longest = buffer.capacity  # none that waits is longer
    while True:
        if counters[WAITING] < limit:
            if come == len(lengths):
                return rows, placed
            _put(buffer, lengths[come], arrived + come)
            longest = max(longest, lengths[come])
            come += 1
            continue
        longest = _longest(buffer.present, longest)
        if counters[OPEN] == 0 or counters[SPACE] > 2 * longest:
            order[placed] = _take(buffer, longest if limit == 1 else slots[counters[OLDEST], LENGTH])
            placed += 1
        if counters[SPACE] <= 2 * longest or counters[OPEN] >= depth - 3:
            placed = _fill(buffer, depth, order, placed)
            rows += 1
            row_offsets[rows] = placed
            counters[OPEN] = 0
            counters[SPACE] = buffer.capacity
