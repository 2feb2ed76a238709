"""bench.learning: statistics, what arms see, and that they run and go on (toy sizes)."""

import json

import numpy as np
import pytest

from bench import learning
from bench.common.study import paired, spread
from bench.learning import QUICK


@pytest.mark.slow
def test_bench_learning_runs_all_of_it_and_packed_learns_what_unpacked_does(tmp_path, monkeypatch, capsys):
    arguments = ["--quick", "--work", f"{tmp_path}/work", "--out", f"{tmp_path}"]
    learning.main(arguments)
    shown = capsys.readouterr().out
    assert "(to modern fp32) | " in shown
    texts = {study: (tmp_path / f"learning_{study}.json").read_text() for study in learning.STUDIES}
    assert not any(str(tmp_path) in text for text in texts.values())
    runs = json.loads(texts["packing"])["runs"]
    found = {(run["arm"], run["seed"]): run for run in runs}
    for seed in QUICK.seeds:
        packed, unpacked = found["packed", seed], found["unpacked", seed]
        assert [p["tokens"] for p in packed["points"]] == [p["tokens"] for p in unpacked["points"]]
        losses = ([point["loss"] for point in run["points"]] for run in (packed, unpacked))
        # The same sums in another order: float32 leaves 1e-6 of a loss after so few updates, the file 1e-5.
        assert next(losses) == pytest.approx(next(losses), abs=1e-4)
    assert found["packed", 0]["points"] != found["packed", 1]["points"]
    clock = [[point["cpu_seconds"] for point in run["points"]] for run in runs]
    assert all(np.diff([0, *each]).min() > 0 for each in clock)
    monkeypatch.setattr("bench.common.pretraining.pretrain", None)  # what is done is not repeated
    learning.main(arguments)
    assert json.loads((tmp_path / "learning_packing.json").read_text())["runs"] == runs


def test_paired_differences_are_those_of_a_paired_t_test(seed):
    from scipy.stats import ttest_rel

    a, b = np.random.default_rng(seed).normal(size=(2, 3))
    mean, error = paired(a.tolist(), b.tolist())
    # Both are a few float64 operations.
    assert mean / error == pytest.approx(ttest_rel(a, b).statistic, rel=1e-9)
    assert spread(a.tolist()) == pytest.approx((a.mean(), a.std(ddof=1)), rel=1e-12)
