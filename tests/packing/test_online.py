"""The online packer against its rule told naively; chunks, resuming, waiting, efficiency."""

import json
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from brimful.commands.pack_sources import histogram_counts
from brimful.errors import BrimfulError
from brimful.packing.bounds import lower_bound
from brimful.packing.histogram import count_lengths
from brimful.packing.online import OnlinePacker, PackedRows, pack_stream


@st.composite
def streams(draw: st.DrawFn) -> tuple[list[int], int, int, int | None]:
    """(lengths, capacity, buffer, most sequences in a row): a few lengths, or many, short to long."""
    capacity = draw(st.integers(1, 300))
    longest = max(1, capacity // draw(st.integers(1, 12)))
    kinds = draw(st.lists(st.integers(1, longest), min_size=1, max_size=8) | st.just(range(1, longest + 1)))
    random = draw(st.randoms(use_true_random=False))
    lengths = random.choices(kinds, k=draw(st.integers(0, 300)))
    return lengths, capacity, draw(st.integers(1, 60)), draw(st.none() | st.integers(1, 12))


def as_lists(rows: PackedRows) -> list[list[int]]:
    return [rows.order[a:b].tolist() for a, b in pairwise(rows.row_offsets)]


def packed(packer: OnlinePacker, lengths: list[int]) -> list[list[int]]:
    array = np.array(lengths, dtype=np.int64)
    return as_lists(packer.add(array)) + as_lists(packer.flush())


class NaivePacker:
    """The rule, on a list."""

    def __init__(self, capacity: int, buffer: int, most: int | None) -> None:
        self.capacity = capacity
        self.buffer = buffer
        self.most = min(most or capacity, capacity)
        self.waiting: list[tuple[int, int]] = []  # (length, index), oldest first
        self.row: list[int] = []
        self.space = capacity
        self.rows: list[list[int]] = []

    def take(self, length: int) -> None:
        place = [waiting for waiting, _ in self.waiting].index(length)
        self.row.append(self.waiting.pop(place)[1])
        self.space -= length

    def exactly(self, longest: int) -> list[int]:
        """Two or three waiting lengths that take all of the space, or none."""
        counts = Counter(length for length, _ in self.waiting if length <= longest)

        def pair(total: int, most: int, counts: Counter[int]) -> list[int]:
            for a in sorted(counts):
                b = total - a
                if b <= a <= most and counts[b] > (a == b) and counts[a] > 0:
                    return [a, b]
            return []

        places = self.most - len(self.row)
        if places > 1 and (found := pair(self.space, longest, counts)):
            return found
        if places > 2:
            firsts = sorted((a for a in counts if self.space / 3 <= a <= self.space - 2), reverse=True)
            for a in firsts[:16]:
                if found := pair(self.space - a, a, counts - Counter([a])):
                    return [a, *found]
        return []

    def step(self, oldest_first: bool) -> None:
        longest = max(self.waiting)[0]

        if not self.row or self.space > 2 * longest:
            self.take(self.waiting[0][0] if oldest_first else longest)
        if self.space > 2 * longest and len(self.row) < self.most - 3:
            return
        while len(self.row) < self.most:
            fitting = [length for length, _ in self.waiting if length <= self.space]
            if not fitting:
                break
            long = sum(2 * length > self.capacity for length, _ in self.waiting)
            found: list[int] = []
            if max(fitting) < self.space and 2 * long <= len(self.waiting):
                found = self.exactly(max(fitting))
            for length in found or [max(fitting)]:
                self.take(length)
        self.close()

    def close(self) -> None:
        self.rows.append(self.row)
        self.row, self.space = [], self.capacity

    def pack(self, lengths: list[int]) -> list[list[int]]:
        for index, length in enumerate(lengths):
            self.waiting.append((length, index))
            while len(self.waiting) >= self.buffer:
                self.step(oldest_first=self.buffer > 1)
        while self.waiting:
            self.step(oldest_first=False)
        if self.row:
            self.close()
        return self.rows


@given(streams())
def test_rows_follow_the_rule(stream: tuple) -> None:
    lengths, capacity, buffer, most = stream
    rows = packed(OnlinePacker(capacity, buffer=buffer, max_sequences=most), lengths)
    assert rows == NaivePacker(capacity, buffer, most).pack(lengths)


@given(streams())
def test_every_sequence_once_in_rows_that_fit(stream: tuple) -> None:
    lengths, capacity, buffer, most = stream
    rows = packed(OnlinePacker(capacity, buffer=buffer, max_sequences=most), lengths)
    assert sorted(index for row in rows for index in row) == list(range(len(lengths)))
    assert all(0 < len(row) <= (most or capacity) for row in rows)
    assert all(sum(lengths[index] for index in row) <= capacity for row in rows)


@given(streams(), st.data())
def test_chunks_and_resuming_change_nothing(stream: tuple, data: st.DataObject) -> None:
    lengths, capacity, buffer, most = stream
    cuts = data.draw(st.lists(st.integers(0, len(lengths)), max_size=6).map(sorted))
    packer = OnlinePacker(capacity, buffer=buffer, max_sequences=most)
    rows: list[list[int]] = []
    for start, end in pairwise([0, *cuts, len(lengths)]):
        rows += as_lists(packer.add(np.array(lengths[start:end], dtype=np.int32)))
        if data.draw(st.booleans()):
            packer = OnlinePacker.restore(json.loads(json.dumps(packer.state())))
    rows += as_lists(packer.flush())
    assert rows == packed(OnlinePacker(capacity, buffer=buffer, max_sequences=most), lengths)


def longest_wait(lengths: list[int], capacity: int, buffer: int, most: int | None) -> int:
    """Of any sequence, the most rows that began after it arrived until it was in one, that one included."""
    packer = OnlinePacker(capacity, buffer=buffer, max_sequences=most)
    complete, begun, longest = 0, [], 0
    for length in lengths:
        begun.append(complete + bool(packer.state()["open"]))
        rows = packer.add(np.array([length]))
        for row in as_lists(rows):
            longest = max([longest, *(complete - begun[index] + 1 for index in row)])
            complete += 1
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
    packer = OnlinePacker(10, buffer=20)
    rows = as_lists(packer.add(np.array(lengths)))
    assert any(0 in row for row in rows[:20])


def test_the_rows_of_long_sequences_wait_for_short_ones() -> None:
    """The bound is reached: the last of the long ones is in the last row that it may be in."""
    assert longest_wait([9] * 20 + [1] * 100, 10, 20, None) == 20


def test_a_new_stream_after_a_flush() -> None:
    packer = OnlinePacker(10, buffer=4)
    assert packed(packer, [7, 3, 5]) == [[0, 1], [2]]
    assert packed(packer, []) == []
    assert packed(packer, [8, 4, 2]) == [[3, 5], [4]]
    assert packed(packer, [1] * 5) == [[6, 7, 8, 9, 10]]
    assert packed(packer, [5, 10]) == [[12], [11]]


@pytest.mark.parametrize(
    ("lengths", "message"),
    [
        ([3, 0, 5], "^1 sequence has length 0"),
        ([0, -4], r"^2 sequences have a length below 1 \(the shortest: -4\)"),
        ([11, 3, 17], r"^2 sequences are longer than the capacity of 10 tokens \(the longest: 17\)"),
        ([3, 10**15], "^1 sequence is longer"),
    ],
)
def test_a_length_that_fits_no_row_changes_nothing(lengths: list[int], message: str) -> None:
    packer = OnlinePacker(10, buffer=4)
    packer.add(np.array([3, 4, 6, 2, 5]))
    before = packer.state()
    with pytest.raises(BrimfulError, match=message):
        packer.add(np.array(lengths))
    assert packer.state() == before


@pytest.mark.parametrize(("capacity", "buffer", "most"), [(0, 4, None), (8, 0, None), (8, 4, 0)])
def test_limits_below_one_are_refused(capacity: int, buffer: int, most: int | None) -> None:
    with pytest.raises(BrimfulError, match="must be at least 1"):
        OnlinePacker(capacity, buffer=buffer, max_sequences=most)


@pytest.mark.parametrize(
    "damage",
    [
        {"waiting": [[0, 3]] * 4},
        {"waiting": [[0, 3], [0, 4]]},
        {"waiting": [[9, 3]]},
        {"arrived": "x"},
        {"capacity": "10"},
        {"buffer": 1.5},
        {"waiting": [[0, 11]]},
        {"waiting": [[0, 0]]},
        {"space": -1},
        {"space": 11},
        {"space": 9, "open": []},
        {"space": 10, "open": [0]},
    ],
)
def test_a_damaged_state_is_refused(damage: dict) -> None:
    packer = OnlinePacker(10, buffer=4)
    packer.add(np.array([2, 3, 1, 1]))
    assert packer.state()["open"]
    with pytest.raises(BrimfulError):
        OnlinePacker.restore(packer.state() | damage)


def test_state_is_small(seed: int) -> None:
    lengths = np.random.default_rng(seed).integers(1, 513, 100_000)
    packer = OnlinePacker(8192)
    packer.add(lengths)
    assert len(packer.state()["waiting"]) < 1024
    assert len(json.dumps(packer.state())) < 1024 * 20 + 1000


@given(streams())
def test_the_plan_of_a_stream(stream: tuple) -> None:
    lengths, capacity, _, most = stream
    plan = pack_stream(np.array(lengths, dtype=np.int64), capacity, most)
    rows = packed(OnlinePacker(capacity, max_sequences=most), lengths)
    assert plan.patterns == [tuple(lengths[index] for index in row) for row in rows]
    assert plan.rows == len(rows)
    assert plan.capacity == capacity
    assert plan.lower_bound == lower_bound(count_lengths(np.array(lengths, dtype=np.int64)), capacity, most)


def lognormal(draw: np.random.Generator, median: float, sigma: float, most: int) -> np.ndarray:
    return draw.lognormal(np.log(median), sigma, 100_000).clip(1, most).astype(np.int64)


@pytest.mark.parametrize(
    ("name", "capacity", "most", "at_least"),
    [
        ("skewed", 512, None, 0.999),
        ("skewed", 8192, None, 0.9995),
        ("skewed", 512, 16, 0.999),
        ("uniform", 512, None, 0.99),
        ("short", 512, None, 0.999),
        ("short", 65_536, None, 0.98),
        ("wide", 65_536, None, 0.999),
        ("one length", 512, None, 0.97),
        ("over half", 512, None, 1.0),
        ("two lengths", 512, None, 0.995),
    ],
)
def test_nearly_as_few_rows_as_possible(
    name: str, capacity: int, most: int | None, at_least: float, seed: int
) -> None:
    draw = np.random.default_rng(seed)
    lengths = {
        "skewed": lambda: lognormal(draw, 100, 1, 512),
        "uniform": lambda: draw.integers(1, 513, 100_000),
        "short": lambda: draw.integers(8, 21, 100_000),
        "wide": lambda: lognormal(draw, 10_000, 1, 65_536),
        "one length": lambda: np.full(100_000, 100),
        "over half": lambda: draw.integers(257, 513, 20_000),
        "two lengths": lambda: draw.choice([200, 312], 100_000),
    }[name]()
    plan = pack_stream(lengths, capacity, most)
    assert plan.lower_bound / plan.rows >= at_least


@pytest.mark.parametrize(
    ("capacity", "most", "at_least"),
    [(512, None, 0.9995), (512, 4, 0.9995), (2048, None, 0.9999), (8192, None, 0.9999)],
)
def test_efficiency_on_the_wikipedia(capacity: int, most: int | None, at_least: float, seed: int) -> None:
    counts = histogram_counts("wikipedia-512")
    draw = np.random.default_rng(seed)
    lengths = draw.choice(len(counts), size=2_000_000, p=counts / counts.sum())
    assert pack_stream(lengths, capacity, most).efficiency >= at_least
