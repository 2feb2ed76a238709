"""Cutting stock: exact answers on small histograms, its own proof on larger ones, known row counts."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from scipy.optimize import Bounds, LinearConstraint, milp

from brimful.packing import cutting_stock as stock
from brimful.packing.cutting_stock import cutting_stock
from brimful.packing.histogram import Plan, count_lengths
from brimful.packing.pack_first import best_fit
from brimful.packing.published import read_histogram
from builders.packings import check_plan, histogram, problems

# Lengths that best-fit packs badly.
HARD = {a + d: 3 * n for a, n in [(150, 40), (170, 70), (192, 30)] for d in range(7)}


def list_patterns(lengths: list[int], capacity: int, depth: int) -> Iterator[tuple[int, ...]]:
    """All patterns of these lengths, longest first, and the empty pattern."""
    yield ()
    if depth:
        for i, length in enumerate(lengths):
            if length <= capacity:
                for shorter in list_patterns(lengths[i:], capacity - length, depth - 1):
                    yield (length, *shorter)


def fewest_rows(counts: np.ndarray, capacity: int, depth: int | None) -> int:
    """The minimum, by an integer program over all patterns."""
    lengths = np.flatnonzero(counts)[::-1]
    if not len(lengths):
        return 0
    patterns = [p for p in list_patterns(lengths.tolist(), capacity, depth or capacity) if p]
    columns = np.array([[pattern.count(length) for pattern in patterns] for length in lengths.tolist()])
    ones, rules = np.ones(len(patterns)), LinearConstraint(columns, lb=counts[lengths])
    options = {"bounds": Bounds(0, np.inf), "options": {"mip_rel_gap": 0}}
    result = milp(ones, integrality=ones, constraints=rules, **options)
    assert result.status == 0
    return round(result.fun)


def checked(counts: np.ndarray, capacity: int, depth: int | None = None) -> Plan:
    plan = cutting_stock(counts, capacity, depth)
    check_plan(plan, counts, capacity, depth)
    assert plan.rows <= best_fit(counts, capacity, depth).rows
    return plan


@given(problems())
def test_a_plan_holds_every_sequence_and_fits(problem: tuple) -> None:
    checked(*problem)


@settings(max_examples=60)
@given(problems(largest=16))
def test_against_an_exact_solver(problem: tuple) -> None:
    plan, fewest = cutting_stock(*problem), fewest_rows(*problem)
    assert plan.lower_bound <= fewest <= plan.rows <= fewest + 1


@pytest.mark.parametrize("depth", [None, 2, 5])
def test_within_two_rows_of_the_bound(depth: int | None, seed: int) -> None:
    """The integer round-up property: the minimum is practically always the linear program's, rounded up."""
    random = np.random.default_rng(seed)
    for _ in range(5):
        capacity = int(random.integers(50, 400))
        shortest, longest = sorted(random.integers(1, capacity + 1, 2).tolist())
        lengths = random.integers(shortest, longest + 1, random.integers(100, 5000))
        counts = count_lengths(lengths) * int(random.integers(1, 1000))
        assert checked(counts, capacity, depth).rows_above_bound <= 2


@pytest.mark.parametrize("depth", [None, 2, 3])
@pytest.mark.parametrize(
    ("capacity", "counts", "rows"),
    [
        (512, {}, 0),
        (1, {1: 12}, 12),
        (512, {512: 7}, 7),
        (512, {200: 10**10, 312: 10**10}, 10**10),
        (512, dict.fromkeys(range(257, 513), 10**7), 256 * 10**7),
        (65_536, {65_535: 5, 65_536: 3}, 8),
    ],
)
def test_a_known_minimum(capacity: int, counts: dict[int, int], rows: int, depth: int | None) -> None:
    plan = checked(histogram(capacity, counts), capacity, depth)
    assert (plan.rows, plan.rows_above_bound) == (rows, 0)


@pytest.mark.cases(1)
@pytest.mark.parametrize("depth", [None, 3, 16])
@pytest.mark.parametrize(("capacity", "kinds"), [(65_536, 64), (4096, 512)])
def test_ten_billion_sequences(capacity: int, kinds: int, depth: int | None, seed: int) -> None:
    random = np.random.default_rng(seed)
    lengths = random.choice(np.arange(capacity // 8, capacity // 2), kinds, replace=False)
    counts = np.zeros(capacity + 1, dtype=np.int64)
    counts[lengths] = random.integers(1, 2 * 10**10 // kinds, kinds)
    plan = checked(counts, capacity, depth)
    assert plan.rows_above_bound <= plan.rows / 100


def test_a_program_that_would_take_too_long_is_not_solved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stock, "linprog", None)
    checked(histogram(65_536, {1: 10**9, 20_001: 1000, 24_001: 777, 30_001: 500}), 65_536, 40_000)


def test_where_the_solver_fails_the_plan_is_best_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = histogram(512, HARD)
    assert cutting_stock(counts, 512).rows < best_fit(counts, 512).rows
    monkeypatch.setattr(stock, "linprog", lambda *_, **__: SimpleNamespace(status=4, x=None))
    assert checked(counts, 512).rows == best_fit(counts, 512).rows


@pytest.mark.cases(3)
@pytest.mark.parametrize(
    ("depth", "rows"), [(2, 10_099_081), (3, 8_143_829), (4, 8_135_727), (16, 8_135_727), (None, 8_135_727)]
)
def test_the_wikipedia_at_the_proven_minimum(depth: int | None, rows: int) -> None:
    plan = checked(read_histogram("wikipedia-512"), 512, depth)
    assert plan.lower_bound == rows
    assert plan.rows <= rows + 1


DIGEST = """
import hashlib
from test_cutting_stock import HARD, cutting_stock, histogram
plan = cutting_stock(histogram(512, HARD), 512, 3)
print(hashlib.sha256(b"".join(a.tobytes() for a in (plan.lengths, plan.offsets, plan.repeats))).hexdigest())
"""


@pytest.mark.slow
def test_the_same_plan_in_every_process() -> None:
    digests = set()
    for threads in ("1", "2"):
        path = os.pathsep.join([str(Path(__file__).parent), *sys.path])
        env = {**os.environ, "OMP_NUM_THREADS": threads, "PYTHONHASHSEED": threads, "PYTHONPATH": path}
        command = [sys.executable, "-c", DIGEST]
        digests.add(subprocess.run(command, env=env, check=True, capture_output=True, text=True).stdout)
    assert len(digests) == 1
