"""The benches of `estimate`: what they compute from estimates, runs and publications."""

from typing import Any

import pytest

from bench.estimate import __main__ as bench
from bench.estimate import published
from brimful.commands.estimate_config import parse_gpus


def test_medians_over_rounds() -> None:
    rounds = [
        {"estimated_seconds": 12.0, "seconds": seconds, "estimated_bytes": 90, "bytes": size}
        for seconds, size in ((10.0, 100), (12.0, 90), (20.0, 80))
    ]
    (row,) = bench.rows_of({bench.TINY: rounds})
    assert row["name"] == "tiny"
    assert row["time"] == pytest.approx(1.0)
    assert row["time_range"] == pytest.approx([0.6, 1.2])
    assert row["memory"] == pytest.approx(1.0)
    assert len(row["rounds"]) == 3


def test_published_times_are_sums_over_phases(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, ...]] = []

    def verb(*arguments: str) -> tuple[dict[str, Any], int]:
        asked.append(arguments)
        speed = 1e6 if "128" in arguments else 5e5
        return {"time": {"tokens_per_second": speed, "mfu": 0.4}, "memory": {"total": 2**30}}, 0

    monkeypatch.setattr(published, "verb", verb)
    row = published.predicted(published.deepspeed("1024xV100-SXM3", 0.75))
    hours = (403e6 * 128 / 1e6 + 20e6 * 512 / 5e5) / 3600
    assert row["hours"] == pytest.approx(hours)
    assert row["predicted_speed_over_published"] == pytest.approx(0.75 / hours)
    assert len(asked) == 2
    row = published.predicted(published.nvidia("8xA100-40GB", 128, 64, 65536, 3231))
    assert row["published_tokens_per_second_per_gpu"] == pytest.approx(3231 * 128 / 8)
    assert row["predicted_speed_over_published"] == pytest.approx(1e6 / (3231 * 128))
    assert row["published_mfu"] == pytest.approx(0.4 * 3231 * 128 / 1e6)


def test_each_published_run_is_whole() -> None:
    for run in published.RUNS:
        count, _ = parse_gpus(run.gpus)
        assert count == run.ranks
        assert (run.rate is None) != (run.hours is None)
        assert run.source
        assert all(part.sequences for part in run.parts) == (run.hours is not None)
