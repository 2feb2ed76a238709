"""The precision bench: what it says of traces, its rounding, and that it runs and goes on (toy sizes)."""

import json
import math
from dataclasses import asdict

import pytest
import torch

from bench.precision import __main__ as precision
from bench.precision.measures import near_share, oscillation, outcome, recovery, steady, turn
from bench.precision.run import PROBLEMS, SHARE, Trial
from bench.precision.studies import FULL, QUICK, STUDIES, trials
from bench.precision.tables import results, scales


@pytest.mark.parametrize(
    ("trace", "expected"),
    [
        ([0, 1, 2, 3, 2, 3], 4),
        ([9, 9, 8, 8, 7, 7, 8], 6),
        ([5, 4, 3, 3], None),
        ([5, 5, 5], None),
        ([4, 5, 4, 5, 4], 2),
    ],
)
def test_a_turn_is_the_first_move_against_the_first(trace, expected):
    assert turn(trace) == expected


def test_the_equilibrium_is_that_of_the_last_third():
    trace = [0, 1, 2, 3, 4, 5, 6, 5, 6, 5, 6, 5, 6, 9, 6]
    assert steady(trace) == 6
    assert oscillation(trace) == 3
    assert near_share(trace) == 4 / 5


def test_a_climb_is_no_oscillation():
    trace = [*range(12), 10, 11, 10]
    assert turn(trace) == 12
    assert (steady(trace), oscillation(trace)) == (10, 1)


def test_recovery_is_counted_from_the_end_of_the_shock():
    before, shock = [20, 21] * 5, [20, 19, 18, 17]
    assert recovery([*before, *shock, 16, 15, 16, 17, 18, 18.5, 19, 20], 10, 14) == 5
    assert recovery([*before, *shock, 16, 15, 16, 17, 18], 10, 14) is None
    assert recovery([*before, 20, 20, 20, 20, 20, 19], 10, 14) == 0
    # what was long before it does not count
    assert recovery([3] * 30 + [20] * 20 + [12, 12, 17, 18], 50, 52) == 1


@pytest.mark.parametrize(
    ("final", "expected"),
    [
        (1.0, "learned"),
        (3.79, "learned"),
        (3.81, "stalled"),
        (4.19, "stalled"),
        (4.21, "diverged"),
        (math.inf, "diverged"),
        (math.nan, "diverged"),
        (None, "diverged"),
    ],
)
def test_outcomes_are_relative_to_the_start(final, expected):
    assert outcome(4.0, final) == expected


def test_products_of_the_toy_are_summed_in_float32():
    """A float16 sum of these would be infinite on the way."""
    large = torch.full((8, 64), 60_000.0, dtype=torch.float16)
    large[:, 32:] *= -1
    ones = torch.ones(8, 64, dtype=torch.float16, requires_grad=True)
    product = torch.nn.functional.linear(ones, large)
    assert torch.equal(product, torch.zeros(8, 8, dtype=torch.float16))
    signs = torch.tensor([1.0, -1.0] * 4, dtype=torch.float16)
    product.backward(signs.expand(8, 8))
    assert torch.equal(ones.grad, torch.zeros(8, 64, dtype=torch.float16))


def test_arms_share_seeds_and_settings_name_runs():
    for study in STUDIES:
        full = trials(study, FULL)
        assert set(FULL.seeds) == {trial.seed for _, trial in full}
        assert len({trial.name for _, trial in full}) == len(full)
    assert len(FULL.seeds) >= 5
    windows, starts = ({t.name for _, t in trials(study, FULL)} for study in ("window", "start"))
    assert len(windows & starts) == len(FULL.seeds)  # float32, which is run once


def run_of(arm, seed, trace, **changes):
    trial = Trial("chains", seed, len(trace), 1, exponent=trace[0], **changes)
    counts = {"overflows": 0, "clipped": 5, "nan": 0, "zeros": 0.125, "shock_zeros": 0.5, "skipped": []}
    losses = {"start": 3.0, "final": 1.0 + seed, "outcome": "learned", "ended": len(trace)}
    return {"arm": arm, **asdict(trial), **counts, **losses, "trace": trace}


def test_tables_say_what_never_happened_and_what_did_not_end():
    climbs, arrives = [*range(12)], [*range(8), 6, 7, 6, 7]
    runs = [run_of("als", seed, trace, scaler="ALS") for seed, trace in enumerate((climbs, arrives))]
    runs += [run_of("fp32", seed, [0] * 12, format="fp32") for seed in (0, 1)]
    runs += [run_of("lost", seed, [9] * 12) | {"final": None, "outcome": "diverged"} for seed in (0, 1)]
    # the first has no turn; of the second, the claim is (6.5 - 0) + 5 moves
    assert "| als | 8, never in 1 | 11.5 | 6.5 to 9.5 | 0.5 to 1.5 | 100.0% |" in scales(runs)
    shown = results("start", runs)
    assert "| als | 1.500 ± 0.707 | +0.000 ± 0.000 | 0 of 2 | 0 of 2 | 0 | 0 | 5 | 0 | 12.5% |" in shown
    assert "| lost | - | - | 0 of 2 | 2 of 2 | 0 | 0 | - | - | 12.5% |" in shown


@pytest.mark.parametrize(("problem", "middle", "last"), [("chains", 50 / 90, 1 / 90), ("images", 1.0, 1.0)])
def test_a_rate_rises_and_may_fall(problem, middle, last):
    rates = [PROBLEMS[problem].rate(update, 100) for update in range(100)]
    assert rates[0] == pytest.approx(0.1)
    assert max(rates) == 1.0
    assert (rates[50], rates[-1]) == (pytest.approx(middle), pytest.approx(last))


@pytest.mark.slow
def test_bench_precision_runs_all_of_it(tmp_path, monkeypatch, capsys):
    arguments = ["--quick", "--work", f"{tmp_path}/work", "--out", f"{tmp_path}/out.json"]
    precision.main([*arguments, "--figures", f"{tmp_path}"])
    text = (tmp_path / "out.json").read_text()
    assert str(tmp_path) not in text
    record = json.loads(text)
    assert record["facts"]["loss_factor"] == SHARE
    assert record["studies"].keys() == STUDIES.keys()
    assert (tmp_path / "loss_scaling.png").stat().st_size > 10_000
    arms = {(study, run["arm"]): run for study, runs in record["studies"].items() for run in runs}
    assert len(arms) == sum(len(STUDIES[study](QUICK)) for study in STUDIES)
    for run in arms.values():
        assert len(run["trace"]) == run["ended"]
        if run["scaler"] == "ALS":
            assert (run["skipped"], run["ended"]) == ([], QUICK.updates)
            assert run["trace"][0] == run["exponent"]
        if run["scaler"] == "constant":
            assert set(run["trace"]) == {run["exponent"]}
    too_large = arms["window", "constant 2^60"]
    assert (too_large["outcome"], too_large["ended"]) == ("diverged", 1)
    assert too_large["final"] is None
    good, vanishing = arms["window", "constant 2^24"], arms["window", "constant 2^0"]
    assert (good["outcome"], good["overflows"], good["skipped"]) == ("stalled", 0, [])
    assert vanishing["zeros"] > good["zeros"] + 0.2
    als = arms["start", "ALS 2^0, period 1"]
    assert als["trace"] == list(range(QUICK.updates))  # too few updates to get there
    assert "| constant 2^60 | - | - | 0 of 1 | 1 of 1 | 1 |" in capsys.readouterr().out
    monkeypatch.setattr(precision, "train", math.sqrt)  # a finished run is not repeated
    precision.main(arguments)
    assert json.loads((tmp_path / "out.json").read_text())["studies"] == record["studies"]
