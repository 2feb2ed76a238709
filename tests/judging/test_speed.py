"""How fast a model answers: what is timed, and for how long."""

import time
from pathlib import Path

from brimful.judging.speed import MOST, SECONDS, TIMED, speed_of
from brimful.tables.table import Table


def test_one_text_and_many_together_are_timed() -> None:
    sizes = []

    def answer(table: Table) -> None:
        sizes.append(len(table))
        time.sleep(0.002)

    found = speed_of(answer, Table(Path("texts"), ["a"] * (2 * MOST), None, None))
    assert sizes == [1] * (3 + TIMED) + [MOST] * 2
    assert found.latency_ms >= 2
    assert found.texts_per_second > 10 * 1e3 / found.latency_ms


def test_a_slow_model_is_timed_on_few_texts(monkeypatch) -> None:
    now, sizes = [0.0], []
    monkeypatch.setattr("brimful.judging.speed.time.perf_counter", lambda: now[0])

    def answer(table: Table) -> None:
        sizes.append(len(table))
        now[0] += 0.0625 * len(table)

    found = speed_of(answer, Table(Path("texts"), ["a"] * MOST, None, None))
    assert sizes[-1] == int(SECONDS / 0.0625)
    assert round(found.texts_per_second) == 16
    assert speed_of(answer, Table(Path("texts"), ["a", "b"], None, None)).latency_ms > 0
    assert sizes[-1] == 2
