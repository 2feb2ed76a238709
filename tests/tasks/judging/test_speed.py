"""How fast a model answers: what is timed, and for how long."""

from functools import partial
from pathlib import Path

import pytest

from brimful.tables.table import Table
from brimful.tasks.judging import comparison
from brimful.tasks.judging.comparison import Speed, measure_speeds

MOST_TEXTS = comparison.MAX_THROUGHPUT_TEXTS


class Model:
    """Takes its seconds for each text by itself, and half of them in company."""

    def __init__(self, seconds: float, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seconds, self.now, self.sizes = seconds, 0.0, list[int]()
        monkeypatch.setattr("brimful.tasks.judging.comparison.time.perf_counter", lambda: self.now)

    def answer(self, table: Table) -> None:
        self.sizes.append(len(table))
        self.now += self.seconds * (1 if len(table) == 1 else len(table) / 2)

    def speed(self, texts: int) -> Speed:
        return measure_speeds({"": self.answer}, Table(Path("texts"), ["a"] * texts, None, None))[""]


@pytest.mark.parametrize(
    ("seconds", "texts", "single", "together"),
    [
        (2**-8, 2 * MOST_TEXTS, 3 + comparison.LATENCY_TEXTS, [MOST_TEXTS] * 2),
        (2**-8, 2, 4, [2] * 2),
        (2**-4, MOST_TEXTS, 3 + comparison.LATENCY_TEXTS, [int(comparison.MAX_SECONDS / 2 * 2**4)] * 2),
        (1.0, MOST_TEXTS, int(comparison.MAX_SECONDS) + 1, [int(comparison.MAX_SECONDS / 2)] * 2),
        (64.0, MOST_TEXTS, 2, []),
    ],
)
def test_single_texts_and_many_together_are_timed(seconds, texts, single, together, monkeypatch) -> None:
    model = Model(seconds, monkeypatch)
    found = model.speed(texts)
    assert model.sizes == [1] * single + together
    assert found.latency_ms == 1e3 * seconds
    assert found.texts_per_second == (2 if together else 1) / seconds


def test_a_slow_first_call_counts_for_neither(monkeypatch: pytest.MonkeyPatch) -> None:
    model = Model(2**-8, monkeypatch)
    plain, seen = model.answer, set[int]()

    def answer(table: Table) -> None:
        plain(table)
        model.now += 0 if len(table) in seen else 2.0
        seen.add(len(table))

    model.answer = answer  # type: ignore[method-assign]
    assert model.speed(MOST_TEXTS) == Speed(1e3 * 2**-8, 2 * 2**8)


def test_models_take_turns_so_that_what_slows_one_slows_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that is three times as slow from the tenth text on: the ratio of two models stays."""
    model = Model(0.0, monkeypatch)
    asked = list[str]()

    def answer(name: str, seconds: float, table: Table) -> None:
        asked.append(name)
        model.now += seconds * len(table) * (1 if len(asked) < 20 else 3)

    table = Table(Path("texts"), ["a"] * comparison.LATENCY_TEXTS, None, None)
    answers = {"slow": partial(answer, "slow", 2**-6), "fast": partial(answer, "fast", 2**-8)}
    found = measure_speeds(answers, table)
    assert asked[:60] == ["slow", "fast"] * 30
    assert found["slow"].latency_ms == 4 * found["fast"].latency_ms
    assert found["fast"].texts_per_second == 4 * found["slow"].texts_per_second
