"""Packing sequences as they arrive: the histogram of their lengths is unknown, and none may wait for long."""

import operator
from bisect import bisect_left, bisect_right, insort
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import islice

import numpy as np

from brimful.base.errors import BrimfulError
from brimful.packing.histogram import check_limits, checked_lengths, depth_limit


def pack_stream(
    lengths: Iterable[int], capacity: int, max_sequences: int | None = None, *, buffer: int = 1024
) -> Iterator[list[int]]:
    """Rows of a stream, each as soon as `buffer` sequences wait; at the stream's end, all the rest.

    A row takes the sequence that has waited longest, then repeatedly the longest that fits. So a sequence is
    in one of the first `buffer` rows after its arrival. At the end, where nothing more can arrive, a row
    starts with the longest: best-fit decreasing.

    To bound the wait in time too, end the stream and start another.

    Args:
        lengths: tokens of each sequence, in order of arrival; no more are read than wait.
        capacity: token slots of a row.
        max_sequences: the most sequences in a row (packing depth); None = no limit.
        buffer: how many sequences wait before a row is made. More fill rows better.

    Yields:
        the sequences of a row, by their running number in order of arrival, from 0.

    Raises:
        BrimfulError: a sequence is empty or longer than `capacity`, or a limit is below 1.
    """
    depth = depth_limit(*check_limits(capacity, max_sequences))
    if buffer < 1:
        raise BrimfulError(f"buffer is {buffer}: it must be at least 1")
    waiting: list[tuple[int, int]] = []  # (length, -number), ascending: the last of a length is its oldest
    arrived = deque[tuple[int, int]]()  # the same in order of arrival, and some that are packed
    stream = enumerate(map(operator.index, lengths))
    while True:
        for number, length in islice(stream, buffer - len(waiting)):
            if not 1 <= length <= capacity:
                checked_lengths(np.array([length]), capacity)  # raises
            insort(waiting, (length, -number))
            arrived.append((length, -number))
        if not waiting:
            return
        place = len(waiting) - 1
        if len(waiting) == buffer:
            while (place := bisect_left(waiting, arrived[0])) == buffer or waiting[place] != arrived[0]:
                arrived.popleft()
        row, space = list[int](), capacity
        while place >= 0 and len(row) < depth:
            length, number = waiting.pop(place)
            row.append(-number)
            space -= length
            place = bisect_right(waiting, (space, 1)) - 1  # the longest that fits
        yield row
