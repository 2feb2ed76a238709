"""Learning-rate schedules: exact values and what holds for every setting."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brimful.errors import BrimfulError
from brimful.optim.schedule import ScheduleConfig, learning_rate_factor


def factors(steps: int, **values) -> list[float]:
    config = ScheduleConfig(**values)
    return [learning_rate_factor(config, step, steps) for step in range(steps)]


def test_linear_rises_to_the_peak_and_falls_in_a_straight_line():
    assert factors(10, shape="linear", warmup=0.2) == pytest.approx(
        [1 / 2, 1, 1, 7 / 8, 6 / 8, 5 / 8, 4 / 8, 3 / 8, 2 / 8, 1 / 8]
    )


def test_cosine_falls_by_half_a_cosine():
    expected = [(1 + math.cos(math.pi * done / 8)) / 2 for done in range(8)]
    assert factors(10, shape="cosine", warmup=0.2) == pytest.approx([1 / 2, 1, *expected])


def test_constant_stays():
    assert factors(5, shape="constant", warmup=0.4) == [0.5, 1, 1, 1, 1]


def test_without_warmup_the_first_update_has_the_peak_rate():
    assert factors(4, shape="linear", warmup=0.0) == [1, 3 / 4, 2 / 4, 1 / 4]


@pytest.mark.parametrize("warmup", [-0.1, 1.0, 7.0, math.nan])
def test_a_warmup_that_is_no_share_is_refused(warmup):
    with pytest.raises(BrimfulError, match=r"schedule\.warmup"):
        ScheduleConfig(warmup=warmup)


@given(
    st.sampled_from(["linear", "cosine", "constant"]),
    st.floats(0, 1, exclude_max=True),
    st.integers(1, 500),
)
def test_every_update_has_a_rate_and_none_exceeds_the_peak(shape, warmup, steps):
    values = factors(steps, shape=shape, warmup=warmup)
    assert all(0 < value <= 1 for value in values)
    top = values.index(max(values))
    assert values[top] == pytest.approx(1)
    assert values[: top + 1] == sorted(values[: top + 1])
    assert values[top:] == sorted(values[top:], reverse=True)
