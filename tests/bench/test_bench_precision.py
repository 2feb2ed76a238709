"""The precision bench: what it says of traces, and that it runs and goes on (toy sizes)."""

import json
import math

import pytest
import torch

from bench.precision import __main__ as precision
from bench.precision.study import QUICK, SHARE, arms_of
from builders.bench import bench


def test_products_of_the_toy_are_summed_in_float32():
    """A float16 sum of these would be infinite on the way."""
    large = torch.full((8, 64), 60_000.0, dtype=torch.float16)
    large[:, 32:] *= -1
    ones = torch.ones(8, 64, dtype=torch.float16)
    assert torch.equal(torch.nn.functional.linear(ones, large), torch.zeros(8, 8, dtype=torch.float16))


@pytest.mark.slow
def test_bench_precision_runs_all_of_it(tmp_path, monkeypatch, capsys):
    arguments = ["--quick", "--work", f"{tmp_path}/work", "--out", f"{tmp_path}/out.json"]
    precision.main(arguments)
    record = json.loads((tmp_path / "out.json").read_text())
    assert record["facts"]["loss_factor"] == SHARE
    arms = {(study, run["arm"]): run for study, runs in record["studies"].items() for run in runs}
    assert len(arms) == sum(len(arms_of(study, QUICK)) for study in precision.STUDIES)
    for run in arms.values():
        assert len(run["trace"]) == run["ended"]
        if run["scaler"] == "ALS":
            assert (run["skipped"], run["ended"]) == ([], QUICK.updates)
        if run["scaler"] == "constant":
            assert set(run["trace"]) == {run["exponent"]}
    too_large = arms["window", "constant 2^60"]
    assert (too_large["outcome"], too_large["ended"], too_large["final"]) == ("diverged", 1, None)
    good, vanishing = arms["window", "constant 2^24"], arms["window", "constant 2^0"]
    assert (good["outcome"], good["overflows"], good["skipped"]) == ("stalled", 0, [])
    assert vanishing["zeros"] > good["zeros"] + 0.2
    assert arms["start", "ALS 2^0, period 1"]["trace"] == list(range(QUICK.updates))  # too few to get there
    assert "| constant 2^60 | - | - | 0 of 1 | 1 of 1 | 1 |" in capsys.readouterr().out
    monkeypatch.setattr(precision, "train", math.sqrt)  # a finished run is not repeated
    precision.main(arguments)
    assert json.loads((tmp_path / "out.json").read_text())["studies"] == record["studies"]


@pytest.mark.slow
def test_bench_precision_rounding_runs():
    rounding = bench("bench.precision.rounding", "--quick", "--rounds", "1", "--seeds", "2")
    assert rounding.returncode == 0, rounding.stderr
    assert len(rounding.stdout.splitlines()) == 2 + 9
