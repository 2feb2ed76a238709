"""The precision bench: what it says of traces, and that it runs and goes on (toy sizes)."""

import json
import math

import pytest
import torch

from bench.precision import __main__ as precision
from bench.precision.study import FULL, QUICK, SHARE, arms_of, outcome, rate, recovery, trials, turn
from builders.bench import bench


@pytest.mark.parametrize(
    ("trace", "expected"),
    [
        ([0, 1, 2, 3, 2, 3], 4),
        ([9, 9, 8, 8, 7, 7, 8], 6),
        ([5, 4, 3, 3], None),
        ([5, 5, 5], None),
    ],
)
def test_a_turn_is_the_first_move_against_the_first(trace, expected):
    assert turn(trace) == expected


def test_recovery_is_counted_from_the_end_of_the_shock():
    before, shock = [20, 21] * 5, [20, 19, 18, 17]
    assert recovery([*before, *shock, 16, 15, 16, 17, 18, 18.5, 19, 20], 10, 14) == 5
    assert recovery([*before, *shock, 16, 15, 16, 17, 18], 10, 14) is None
    assert recovery([*before, 20, 20, 20, 20, 20, 19], 10, 14) == 0
    # what was long before it does not count
    assert recovery([3] * 30 + [20] * 20 + [12, 12, 17, 18], 50, 52) == 1


@pytest.mark.parametrize(
    ("final", "expected"),
    [(3.79, "learned"), (3.81, "stalled"), (4.19, "stalled"), (4.21, "diverged"), (math.nan, "diverged")],
)
def test_outcomes_are_relative_to_the_start(final, expected):
    assert outcome(4.0, final) == expected


def test_products_of_the_toy_are_summed_in_float32():
    """A float16 sum of these would be infinite on the way."""
    large = torch.full((8, 64), 60_000.0, dtype=torch.float16)
    large[:, 32:] *= -1
    ones = torch.ones(8, 64, dtype=torch.float16)
    assert torch.equal(torch.nn.functional.linear(ones, large), torch.zeros(8, 8, dtype=torch.float16))


def test_arms_share_seeds_and_settings_name_runs():
    for study in precision.STUDIES:
        full = trials(study, FULL)
        assert set(FULL.seeds) == {trial.seed for _, trial in full}
        assert len({trial.name for _, trial in full}) == len(full)
    windows, starts = ({t.name for _, t in trials(study, FULL)} for study in ("window", "start"))
    assert len(windows & starts) == len(FULL.seeds)  # float32, which is run once


def test_a_rate_rises_and_falls():
    rates = [rate(update, 100) for update in range(100)]
    assert rates[0] == pytest.approx(0.1)
    assert max(rates) == 1.0
    assert (rates[50], rates[-1]) == (pytest.approx(50 / 90), pytest.approx(1 / 90))


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
