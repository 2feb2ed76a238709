"""How fast a model answers: what is timed, and for how long."""

from pathlib import Path

import pytest

from brimful.judging.speed import MOST, SECONDS, TIMED, Speed, speed_of
from brimful.tables.table import Table


class Model:
    """Takes its seconds for each text by itself, and half of them in company."""

    def __init__(self, seconds: float, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seconds, self.now, self.sizes = seconds, 0.0, list[int]()
        monkeypatch.setattr("brimful.judging.speed.time.perf_counter", lambda: self.now)

    def answer(self, table: Table) -> None:
        self.sizes.append(len(table))
        self.now += self.seconds * (1 if len(table) == 1 else len(table) / 2)

    def speed(self, texts: int) -> Speed:
        return speed_of(self.answer, Table(Path("texts"), ["a"] * texts, None, None))


@pytest.mark.parametrize(
    ("seconds", "texts", "sizes"),
    [
        (2**-8, 2 * MOST, [1] * (3 + TIMED) + [MOST] * 2),
        (2**-8, 2, [1] * 4 + [2] * 2),
        (2**-4, MOST, [1] * (3 + TIMED) + [int(SECONDS / 2 * 2**4)] * 2),
        (1.0, MOST, [1] * (int(SECONDS) + 1) + [int(SECONDS / 2)] * 2),
        (64.0, MOST, [1] * 2),
    ],
)
def test_single_texts_and_many_together_are_timed(
    seconds: float, texts: int, sizes: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = Model(seconds, monkeypatch)
    found = model.speed(texts)
    assert model.sizes == sizes
    assert found.latency_ms == 1e3 * seconds
    assert found.texts_per_second == (1 if sizes[-1] == 1 else 2) / seconds


def test_a_slow_first_call_counts_for_neither(monkeypatch: pytest.MonkeyPatch) -> None:
    model = Model(2**-8, monkeypatch)
    plain, seen = model.answer, set[int]()

    def answer(table: Table) -> None:
        plain(table)
        model.now += 0 if len(table) in seen else 2.0
        seen.add(len(table))

    model.answer = answer  # type: ignore[method-assign]
    assert model.speed(MOST) == Speed(1e3 * 2**-8, 2 * 2**8)
