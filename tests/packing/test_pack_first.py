"""Histograms, bounds, SPFHP and LPFHP: against packers of one sequence at a time, and known row counts."""

from bisect import bisect_left, insort

import numpy as np
import pytest
from hypothesis import given

from brimful.base.errors import BrimfulError
from brimful.base.storage import read_json
from brimful.packing.histogram import check_counts, count_lengths, lower_bound
from brimful.packing.pack_first import best_fit, lpfhp
from brimful.packing.published import PUBLISHED, read_histogram
from brimful.packing.shortest_first import spfhp
from builders.packings import check_plan, problems, sequences_of


def best_fit_rows(lengths: list[int], capacity: int, max_sequences: int | None) -> int:
    """Best-fit decreasing, an item at a time: into the fullest row that still takes it."""
    spaces: list[tuple[int, int]] = []  # (space, sequences) of rows that take more
    rows = 0
    for length in sorted(lengths, reverse=True):
        place = bisect_left(spaces, (length, 0))
        if place < len(spaces):
            space, sequences = spaces.pop(place)
        else:
            rows += 1
            space, sequences = capacity, 0
        if sequences + 1 < (max_sequences or capacity):
            insort(spaces, (space - length, sequences + 1))
    return rows


def shortest_pack_first_rows(lengths: list[int], capacity: int) -> int:
    """Rows of SPFHP, an item at a time: into the emptiest row; those that fit none open a row each."""
    rows: list[list[int]] = []
    for length in sorted(set(lengths), reverse=True):
        open_now = list(rows)
        for _ in range(lengths.count(length)):
            fitting = [row for row in open_now if sum(row) + length <= capacity]
            if fitting:
                min(fitting, key=sum).append(length)
            else:
                rows.append([length])
    return len(rows)


@given(problems())
def test_best_fit_has_as_many_rows_as_item_by_item(problem: tuple) -> None:
    plan = best_fit(*problem)
    check_plan(plan, *problem)
    assert plan.rows == best_fit_rows(sequences_of(problem[0]), *problem[1:])


@given(problems(most=6))
def test_spfhp_is_as_published(problem: tuple) -> None:
    counts, capacity, _ = problem
    check_plan(spfhp(*problem), *problem)
    # With a depth limit, it matters which of several equally empty rows is taken, and that is not published.
    assert spfhp(counts, capacity).rows == shortest_pack_first_rows(sequences_of(counts), capacity)


@given(problems(most=6))
def test_the_bound_is_the_bound_of_martello_and_toth(problem: tuple) -> None:
    """L2 by its definition (1990, section 8.3.2), a sequence at a time."""
    counts, capacity, _ = problem
    lengths = sequences_of(counts)
    best = -(-sum(lengths) // capacity)
    for a in range(capacity // 2 + 1):
        long = sum(2 * length > capacity for length in lengths)
        beside = [length for length in lengths if 2 * length > capacity and length <= capacity - a]
        short = sum(length for length in lengths if 2 * length <= capacity and length >= a)
        space = len(beside) * capacity - sum(beside)
        best = max(best, long + max(0, -(-(short - space) // capacity)))
    checked = check_counts(counts, capacity)
    assert lower_bound(checked, capacity) == best
    for depth in (1, 2, 5):
        assert lower_bound(checked, capacity, depth) == max(best, -(-len(lengths) // depth))


def test_numbers_of_numpy_are_numbers() -> None:
    counts = count_lengths(np.array([200, 100, 50, 3], dtype=np.uint8))
    for capacity in (np.uint8(200), np.int32(200), 200):
        plan = lpfhp(counts, capacity, np.int8(4))
        assert (plan.rows, plan.capacity, plan.tokens) == (2, 200, 353)


@pytest.mark.parametrize("lengths", [[1.5], [[1]], [3, -1], ["a"]])
def test_bad_lengths(lengths: list) -> None:
    with pytest.raises(BrimfulError, match="lengths"):
        count_lengths(np.array(lengths))


@pytest.mark.parametrize(
    ("counts", "capacity", "depth", "named"),
    [
        ([0, -1], 8, None, "histogram"),
        ([[0, 0], [0, 0]], 8, None, "histogram"),
        ([1, 0, 0, 1], 8, None, "length 0"),
        ([0] * 200 + [1], 16, None, "capacity of 16"),
        ([0, 2**61], 8, None, "rows of 8"),
    ],
)
def test_what_cannot_be_packed_is_refused(counts: list, capacity: int, depth: int | None, named: str) -> None:
    with pytest.raises(BrimfulError, match=named):
        lpfhp(np.array(counts), capacity, depth)


@pytest.mark.parametrize(
    ("algorithm", "rows"),
    [
        (spfhp, {2: 10_101_683, 3: 9_094_695, 8: 8_224_673, None: 8_166_708}),
        (lpfhp, {2: 10_099_081, 3: 9_090_154, 8: 8_207_569, None: 8_138_483}),
    ],
)
def test_rows_of_the_wikipedia(algorithm, rows: dict[int | None, int]) -> None:
    counts = read_histogram("wikipedia-512")
    plans = {depth: algorithm(counts, 512, depth) for depth in rows}
    assert {depth: plan.rows for depth, plan in plans.items()} == rows
    for depth, plan in plans.items():
        check_plan(plan, counts, 512, depth)
    assert lower_bound(check_counts(counts, 512), 512) == 8_135_727


SEQUENCES = {"wikipedia-512": 16_279_552, "squad-384": 88_641, "glue-mrpc-128": 4_076, "glue-cola-128": 8_551}


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_published_histogram_has_a_source_and_fits_its_length(name):
    counts = read_histogram(name)
    assert len(counts) <= int(name.rpartition("-")[2]) + 1
    assert counts.sum() == SEQUENCES.get(name, counts.sum()) > 1_000
    assert read_json(PUBLISHED[name])["source"]


def test_an_unknown_name_is_refused_with_the_known_ones():
    with pytest.raises(BrimfulError, match=r"squad-512 is neither a file nor one of clue-.*squad-384"):
        read_histogram("squad-512")
