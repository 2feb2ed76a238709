"""The learning bench: its statistics, what its arms see, and that it runs and goes on (toy sizes)."""

import json
import math
from types import SimpleNamespace

import numpy as np
import pytest

from bench.common.study import paired, spread
from bench.learning import __main__ as learning
from bench.learning.run import ClockedLog, Trial
from bench.learning.studies import FULL, QUICK, beta_study, norm_study, packing_study
from bench.learning.tables import compared, outcomes
from brimful.config import build
from brimful.pretraining.config import PretrainConfig


def quick(folder, *studies):
    """The runs of a quick bench by study; it leaves no path in its files."""
    arguments = ["--quick", "--work", f"{folder}/work", "--out", f"{folder}", "--figures", f"{folder}"]
    learning.main([*arguments, "--studies", *studies])
    found = {}
    for study in studies:
        text = (folder / f"learning_{study}.json").read_text()
        assert str(folder) not in text
        found[study] = json.loads(text)["runs"]
        assert (folder / f"learning_{study}.png").stat().st_size > 10_000
    return found


@pytest.mark.slow
def test_packed_learns_what_unpacked_does(tmp_path, monkeypatch):
    runs = quick(tmp_path, "packing")
    found = {(run["arm"], run["seed"]): run for run in runs["packing"]}
    for seed in QUICK.seeds:
        packed, unpacked = found["packed", seed], found["unpacked", seed]
        assert [p["tokens"] for p in packed["points"]] == [p["tokens"] for p in unpacked["points"]]
        losses = ([point["loss"] for point in run["points"]] for run in (packed, unpacked))
        # The same sums in another order: float32 leaves 1e-6 of a loss after so few updates, the file 1e-5.
        assert next(losses) == pytest.approx(next(losses), abs=1e-4)
    assert found["packed", 0]["points"] != found["packed", 1]["points"]
    clock = [[point["cpu_seconds"] for point in run["points"]] for run in runs["packing"]]
    assert all(np.diff([0, *each]).min() > 0 for each in clock)
    monkeypatch.setattr("bench.learning.run.pretrain", None)  # what is done is not repeated
    assert quick(tmp_path, "packing") == runs


@pytest.mark.slow
def test_bench_learning_runs_all_of_it(tmp_path, capsys):
    runs = quick(tmp_path, "betas", "norms")
    seen = [run["points"][-1]["sequences"] for run in runs["betas"]]
    assert max(seen) / min(seen) < 1.5  # whole updates of a few rows
    shown = capsys.readouterr().out
    assert "| packed, beta^p | " in shown
    assert "| pre-LN 0.003 | " in shown


def test_other_settings_are_another_run():
    trial = Trial("packing", "packed", 0, {"rows_per_update": 4})
    others = [
        Trial("packing", "packed", 1, {"rows_per_update": 4}),
        Trial("packing", "packed", 0, {"rows_per_update": 5}),
        Trial("packing", "packed", 0, {"rows_per_update": 4}, {"layers": 12}),
    ]
    assert len({each.name for each in [trial, *others]}) == 4
    assert Trial("packing", "packed", 0, {"rows_per_update": 4}).name == trial.name


@pytest.mark.parametrize("size", [FULL, QUICK])
def test_every_arm_is_a_configuration(size):
    for trial in (*packing_study(size, 2.5), *beta_study(size, 2.5), *norm_study(size)):
        config = build(PretrainConfig, dict(trial.values))
        assert (
            config.trainer.evaluate_every % config.trainer.log_every == 0
        )  # or evaluations count as training
        if size is FULL:
            assert (
                config.trainer.steps % config.trainer.evaluate_every == 0
            )  # or arms are seen at other shares


def test_paired_differences_are_those_of_a_paired_t_test(seed):
    from scipy.stats import ttest_rel

    a, b = np.random.default_rng(seed).normal(size=(2, 3))
    mean, error = paired(a.tolist(), b.tolist())
    # Both are a few float64 operations.
    assert mean / error == pytest.approx(ttest_rel(a, b).statistic, rel=1e-9)
    assert spread(a.tolist()) == pytest.approx((a.mean(), a.std(ddof=1)), rel=1e-12)


def test_evaluations_are_not_counted_as_training(tmp_path, monkeypatch):
    clock = iter([0.0, 3.0, 3.0, 10.0, 12.0, 12.0])  # begin; a line: before, after; an evaluation; a line
    monkeypatch.setattr("bench.learning.run.time", SimpleNamespace(process_time=lambda: next(clock)))
    log = ClockedLog(tmp_path / "metrics.jsonl")
    log.write(step=1, seconds=1.0)
    log.write(step=1, **{"validation.loss": 1.0})
    log.write(step=2, seconds=2.0)
    lines = map(json.loads, (tmp_path / "metrics.jsonl").read_text().splitlines())
    assert [line["cpu_seconds"] for line in lines] == [3, 3, 5]


def run_of(arm, seed, loss, error=None):
    return {
        "arm": arm,
        "seed": seed,
        "error": error,
        "updates": 4,
        "tokens": 100,
        "cpu_seconds": 10.0,
        "fill": 0.5,
        "points": [{"step": 4, "sequences": 10, "loss": loss}],
        "steps": [{"step": 2, "loss": 9.0, "norm": 1.0}, {"step": 4, "loss": loss, "norm": 2.0}],
    }


def test_outcomes_show_what_was_lost_again():
    run = run_of("post", 0, 5.0)
    run["points"].insert(0, {"step": 2, "sequences": 5, "loss": 4.25})
    assert "| 5.000 | 5.000 ± nan | 4.250 | 5.00 | 2 |" in outcomes([run])


def test_tables_say_what_diverged():
    runs = [run_of("post", 0, 5.0), run_of("post", 1, 6.0, "not a finite number")]
    assert "5.000, not finite before 4" in outcomes(runs)
    assert math.isnan(spread([5.0, math.nan])[0])
    even = [run_of("a", 0, 5.0), run_of("a", 1, 6.0), run_of("b", 0, 5.5), run_of("b", 1, 6.5)]
    row = compared(even, "a").splitlines()[-1]
    assert "| 6.0000 ± 0.7071 | +0.5000 ± 0.0000 |" in row
