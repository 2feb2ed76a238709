"""The last screen of a run."""

from typing import Any

import pytest

from brimful.reports.end_screen import show_run


def screen(summary: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> str:
    show_run(summary)
    return capsys.readouterr().out.replace("\u202f", " ")


@pytest.mark.parametrize(
    ("verdict", "said"),
    [
        (
            {"bound": "busy machine", "share": 0.41, "next": "other processes took 1.7 of 2 cores"},
            "The machine was busy 41.0 % of the time: other processes took 1.7 of 2 cores.",
        ),
        (
            {"bound": "compute", "share": 0.9, "next": "the MFU is 12%: raise packing.capacity"},
            "Its speed is limited by compute, 90.0 % of the time: the MFU is 12%: raise packing.capacity.",
        ),
        ({"bound": "compute", "share": 0.9, "next": "use more devices"}, ""),
    ],
)
def test_what_limits_the_speed_is_said_once(
    verdict: dict[str, Any], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    out = screen({"kind": "pretrain", "verdict": verdict}, capsys)
    assert out.strip() == said


def test_a_loss_that_is_not_normal_has_advice(capsys: pytest.CaptureFixture[str]) -> None:
    summary = {"kind": "pretrain", "verdict": {"unigram_entropy": 6.9, "loss_is_normal": False}}
    out = screen(summary, capsys)
    assert "Beware: that is no better than guessing by frequency (6.90" in out
    assert "train longer, or change optimizer.learning_rate." in out


def test_a_run_that_knows_its_own_rows_better_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    test = {"loss": 1.74, "accuracy": 0.608, "n": 120}
    summary = {"kind": "finetune", "task": "classification", "test": test}
    remark = "The loss on held-out rows is 1.74, that of training at its end 0.01"
    out = screen(summary | {"training_loss": 0.01}, capsys)
    assert remark in out
    assert "fewer epochs, more rows, or more dropout may help." in out
    assert "that of training" not in screen(summary | {"training_loss": 1.6}, capsys)


def test_every_test_table_is_on_the_screen(capsys: pytest.CaptureFixture[str]) -> None:
    tests = {"pages": {"accuracy": 0.519, "n": 1000}, "empty": {"n": 3}, "seeds": {"accuracy": 0.5, "n": 9}}
    tests["seeds"]["accuracy_std"] = 0.25
    summary = {"kind": "finetune", "task": "classification", "test": {"accuracy": 0.642, "n": 480}}
    out = " ".join(screen(summary | {"tests": tests}, capsys).split())
    assert "On the 1,000 rows of pages the accuracy is 51.9 ± 1.6 %." in out
    assert "On the 9 rows of seeds the accuracy is 50.0 ± 25.0 %." in out
    assert "empty" not in out
    assert "rows of" not in screen(summary, capsys)
