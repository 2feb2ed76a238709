"""The bench of the residual stream: what its arms are, its verdict, and that it runs (toy sizes)."""

import json

import pytest

from bench.residual import __main__ as residual
from brimful.config import build
from brimful.pretraining.config import PretrainConfig


@pytest.mark.parametrize("quick", [False, True])
def test_arms_differ_in_the_residual_stream_alone(quick):
    configs = {}
    for trial in residual.trials(quick):
        config = build(PretrainConfig, {**trial.values, "seed": trial.seed})
        assert config.trainer.steps % config.trainer.evaluate_every == 0
        configs.setdefault((config.architecture, config.seed), []).append(trial.values)
    assert len(configs) == 2 * len(residual.QUICK_SEEDS if quick else residual.SEEDS)
    for wide, narrow in configs.values():
        assert {**narrow, "trainer": {**narrow["trainer"], "residual": "fp32"}} == wide != narrow


def runs_of(architecture, fp32, bf16):
    return [
        {"arm": f"{architecture} {name}", "seed": seed, "error": None, "points": [{"loss": loss}]}
        for name, losses in (("fp32", fp32), ("bf16", bf16))
        for seed, loss in enumerate(losses)
    ]


def test_noise_is_the_deviation_of_the_float32_seeds():
    found = residual.compare(
        runs_of("bert", [5.0, 5.1, 5.2], [5.05, 5.15, 5.25]) + runs_of("modern", [5, 6, 7], [6.2, 7, 8.3])
    )
    assert found["bert"]["differences"] == pytest.approx([0.05] * 3)
    assert found["bert"]["within_noise"]  # 0.05 and 0.1
    assert found["modern"]["mean_difference"] == pytest.approx(3.5 / 3)
    assert not found["modern"]["within_noise"]


@pytest.mark.slow
def test_bench_residual_runs_all_of_it(tmp_path, capsys):
    residual.main(["--quick", "--work", f"{tmp_path}/work", "--out", f"{tmp_path}/out.json"])
    text = (tmp_path / "out.json").read_text()
    assert str(tmp_path) not in text
    runs = json.loads(text)["runs"]
    assert len(runs) == 8
    ends = {(run["arm"], run["seed"]): run["points"][-1]["loss"] for run in runs}
    assert ends["bert bf16", 0] != ends["bert fp32", 0]
    assert "| bert | " in capsys.readouterr().out
