"""bench.learning: statistics, what arms see, and that they run and go on (toy sizes)."""

import json
import math
from types import SimpleNamespace

import numpy as np
import pytest

from bench import learning
from bench.common.pretraining import ClockedLog, Trial
from bench.common.study import paired, spread
from bench.learning import FULL, QUICK, arms_of, compared
from brimful.base.config import build
from brimful.stages.pretrain_config import PretrainConfig


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


def test_other_settings_are_another_run():
    trial = Trial("packing", "packed", 0, {"rows_per_update": 4})
    others = [
        Trial("packing", "packed", 1, {"rows_per_update": 4}),
        Trial("packing", "packed", 0, {"rows_per_update": 5}),
    ]
    assert len({each.name for each in [trial, *others]}) == 3
    assert Trial("packing", "packed", 0, {"rows_per_update": 4}).name == trial.name


@pytest.mark.parametrize("size", [FULL, QUICK])
def test_every_arm_is_a_configuration(size):
    arms = [values for study in learning.STUDIES for values in arms_of(study, size, 2.5).values()]
    for values in arms:
        trainer = build(PretrainConfig, values).trainer
        assert trainer.evaluate_every % trainer.log_every == 0  # or evaluations count as training
        if size is FULL:
            assert trainer.steps % trainer.evaluate_every == 0  # or arms are seen at other shares


@pytest.mark.parametrize("size", [FULL, QUICK])
def test_arms_of_the_residual_stream_differ_in_it_alone(size):
    arms = arms_of("residual", size, 2.5)
    for architecture in ("bert", "modern"):
        wide, narrow = arms[f"{architecture} fp32"], arms[f"{architecture} bf16"]
        assert {**narrow, "trainer": {**narrow["trainer"], "residual": "fp32"}} == wide != narrow


def test_paired_differences_are_those_of_a_paired_t_test(seed):
    from scipy.stats import ttest_rel

    a, b = np.random.default_rng(seed).normal(size=(2, 3))
    mean, error = paired(a.tolist(), b.tolist())
    # Both are a few float64 operations.
    assert mean / error == pytest.approx(ttest_rel(a, b).statistic, rel=1e-9)
    assert spread(a.tolist()) == pytest.approx((a.mean(), a.std(ddof=1)), rel=1e-12)


def test_evaluations_are_not_counted_as_training(tmp_path, monkeypatch):
    clock = iter([0.0, 3.0, 3.0, 10.0, 12.0, 12.0])  # begin; a line: before, after; an evaluation; a line
    ours = SimpleNamespace(process_time=lambda: next(clock))
    monkeypatch.setattr("bench.common.pretraining.time", ours)
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


def test_a_table_has_the_differences_to_its_first_arm():
    assert math.isnan(spread([5.0, math.nan])[0])
    even = [run_of("a", 0, 5.0), run_of("a", 1, 6.0), run_of("b", 0, 5.5), run_of("b", 1, 6.5)]
    assert "| 6.0000 ± 0.7071 | +0.5000 ± 0.0000 (to a) |" in compared(even).splitlines()[-1]
