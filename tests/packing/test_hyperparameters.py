"""Recipes for unpacked training, followed by packed training."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brimful.base.errors import BrimfulError
from brimful.packing.hyperparameters import suggest

FACTORS = st.floats(1, 300)


@given(FACTORS, st.integers(1, 100_000), st.integers(1, 64))
def test_sequences_are_kept(factor: float, batch: int, multiple: int) -> None:
    found = suggest(factor, batch, (0.9, 0.98), multiple_of=multiple)
    assert found.betas == (0.9, 0.98)
    assert found.rows_per_update % multiple == 0
    assert found.rows_per_update >= multiple
    assert found.sequences_per_update == found.rows_per_update * factor
    # No other multiple comes closer to the recipe's update.
    assert abs(found.sequences_per_update - batch) <= max(
        multiple * factor / 2, multiple * factor - batch
    ) * (1 + 1e-9)


@given(FACTORS, st.integers(1, 100_000))
def test_rows_are_kept_and_a_moment_forgets_after_as_many_sequences(factor: float, batch: int) -> None:
    found = suggest(factor, batch, (0.9, 0.999), keep="rows")
    assert found.rows_per_update == batch
    # `n` sequences of the recipe are n / batch updates of its own, factor times fewer of packed ones.
    updates = 7.0
    for old, new in zip((0.9, 0.999), found.betas, strict=True):
        assert new ** (updates / factor) == pytest.approx(old**updates, rel=1e-9)


def test_figures_of_the_wikipedia() -> None:
    assert suggest(2.0, 256).rows_per_update == 128
    assert suggest(2.0, 256, keep="rows").betas == pytest.approx((0.81, 0.998001))
    assert suggest(1.7, 32, multiple_of=8).rows_per_update == 16


def test_what_is_kept_is_one_of_two() -> None:
    with pytest.raises(BrimfulError, match="did you mean 'rows'"):
        suggest(2.0, 8, keep="row")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("factor", "batch", "betas"),
    [
        (0.5, 8, (0.9,)),
        (float("nan"), 8, (0.9,)),
        (float("inf"), 8, (0.9,)),
        (2.0, 0, (0.9,)),
        (2.0, 8, (1.0,)),
    ],
)
def test_what_cannot_be(factor: float, batch: int, betas: tuple[float, ...]) -> None:
    with pytest.raises(BrimfulError):
        suggest(factor, batch, betas)
