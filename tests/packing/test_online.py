"""Rows of a stream against their rule on a list; waiting; efficiency beside SPFHP, which sees all lengths."""

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from brimful.base.errors import BrimfulError
from brimful.commands.pack_sources import histogram_counts
from brimful.packing.histogram import count_lengths
from brimful.packing.online import pack_stream
from brimful.packing.pack_first import spfhp
from brimful.packing.side_by_side import draw_lengths


@st.composite
def streams(draw: st.DrawFn) -> tuple[list[int], int, int, int | None]:
    """(lengths, capacity, buffer, most sequences in a row): a few lengths, or many, short to long."""
    capacity = draw(st.integers(1, 300))
    longest = max(1, capacity // draw(st.integers(1, 12)))
    kinds = draw(st.lists(st.integers(1, longest), min_size=1, max_size=8) | st.just(range(1, longest + 1)))
    random = draw(st.randoms(use_true_random=False))
    lengths = random.choices(kinds, k=draw(st.integers(0, 300)))
    return lengths, capacity, draw(st.integers(1, 60)), draw(st.none() | st.integers(1, 12))


def by_the_rule(lengths: list[int], capacity: int, buffer: int, most: int | None) -> list[list[int]]:
    rows, waiting, at = [], list[int](), 0
    while True:
        while at < len(lengths) and len(waiting) < buffer:
            waiting.append(at)
            at += 1
        if not waiting:
            return rows
        row = [waiting[0] if len(waiting) == buffer else max(waiting, key=lambda i: (lengths[i], -i))]
        waiting.remove(row[0])
        while len(row) < (most or capacity):
            space = capacity - sum(lengths[i] for i in row)
            fitting = [i for i in waiting if lengths[i] <= space]
            if not fitting:
                break
            row.append(max(fitting, key=lambda i: (lengths[i], -i)))
            waiting.remove(row[-1])
        rows.append(row)


@given(streams())
def test_rows_follow_the_rule(stream: tuple) -> None:
    lengths, capacity, buffer, most = stream
    assert list(pack_stream(lengths, capacity, most, buffer=buffer)) == by_the_rule(*stream)


@given(streams())
def test_every_sequence_once_in_rows_that_fit(stream: tuple) -> None:
    lengths, capacity, buffer, most = stream
    rows = list(pack_stream(np.array(lengths, dtype=np.int32), capacity, most, buffer=buffer))
    assert sorted(number for row in rows for number in row) == list(range(len(lengths)))
    assert all(0 < len(row) <= (most or capacity) for row in rows)
    assert all(sum(lengths[number] for number in row) <= capacity for row in rows)


def longest_wait(lengths: list[int], capacity: int, buffer: int, most: int | None) -> int:
    """The most rows, before the stream's end, from the arrival of a sequence to its own row."""
    begun: list[int] = []
    complete = longest = 0

    def arriving() -> Iterator[int]:
        for length in lengths:
            begun.append(complete)
            assert len(begun) - done <= buffer  # no more are read than wait
            yield length

    done = 0
    for row in pack_stream(arriving(), capacity, most, buffer=buffer):
        if len(begun) == len(lengths):
            break
        complete += 1
        done += len(row)
        longest = max(longest, *(complete - begun[number] for number in row))
    return longest


@given(streams())
def test_waiting_is_bounded(stream: tuple) -> None:
    lengths, capacity, buffer, most = stream
    assert longest_wait(lengths, capacity, buffer, most) <= buffer


@pytest.mark.parametrize(
    "lengths",
    [
        [1] + [6, 4] * 2000,  # longest first, 1 would wait for ever
        [9] + [5] * 4000,  # shortest first, or exact rows first, 9 would
        [7] * 19 + [10] * 4000,
        [3, 3] + [10] * 2000 + [4, 6] * 1000,
        [9] * 19 + [1] * 4000,
    ],
)
def test_no_sequence_starves(lengths: list[int]) -> None:
    assert longest_wait(lengths, 10, 20, None) <= 20


def test_a_row_comes_as_soon_as_the_buffer_is_full() -> None:
    arrived = iter([6, 2, 3, 5, 9])
    rows = pack_stream(arrived, 10, buffer=3)
    assert next(rows) == [0, 2]  # 6 and 3; 5 has not been read
    assert next(arrived) == 5
    assert list(rows) == [[3], [1]]  # 9 and 2 are left, and the end has come: the longest first


@pytest.mark.parametrize(
    ("lengths", "message"),
    [
        ([3, 0, 5], "^1 sequence has length 0"),
        ([-4], r"^1 sequence has a length below 1 \(the shortest: -4\)"),
        ([3, 17], r"^1 sequence is longer than the capacity of 10 tokens \(the longest: 17\)"),
    ],
)
def test_a_length_that_fits_no_row(lengths: list[int], message: str) -> None:
    with pytest.raises(BrimfulError, match=message):
        list(pack_stream(lengths, 10, buffer=4))


@pytest.mark.parametrize(("capacity", "buffer", "most"), [(0, 4, None), (8, 0, None), (8, 4, 0)])
def test_limits_below_one_are_refused(capacity: int, buffer: int, most: int | None) -> None:
    with pytest.raises(BrimfulError, match="must be at least 1"):
        list(pack_stream([], capacity, most, buffer=buffer))


@pytest.mark.parametrize(
    ("most", "buffer", "points"),
    [
        # Efficiency in points above SPFHP's, which knows the histogram.
        (None, 1024, -0.2),
        (None, 64, -0.6),
        (8, 1024, 0.5),
        (8, 64, 0.1),
        (4, 64, 5.0),
        (3, 64, 7.0),
        (2, 64, -0.5),
    ],
)
def test_efficiency_beside_spfhp_on_the_published_lengths(
    most: int | None, buffer: int, points: float
) -> None:
    lengths = draw_lengths(histogram_counts("wikipedia-512"), 50_000)
    rows = sum(1 for _ in pack_stream(lengths, 512, most, buffer=buffer))
    efficiency = int(lengths.sum()) / (rows * 512)
    assert 100 * (efficiency - spfhp(count_lengths(lengths), 512, most).efficiency) >= points
