"""What is timed with each value of a setting, and which value is recommended."""

import time

import pytest
import torch

from brimful.commands.doctor_tune import precisions
from brimful.machine import tuning
from brimful.machine.tuning import Candidate, compare, fastest, time_updates
from brimful.precision import policy
from builders.training import trainer_of


def of_speeds(**speeds: float) -> list[Candidate]:
    return [Candidate(value, [speed], seconds=1.0) for value, speed in speeds.items()]


@pytest.mark.parametrize(
    ("speeds", "best"),
    [
        ({"present": 100.0, "other": 102.0}, "present"),  # within the noise
        ({"present": 100.0, "other": 104.0}, "other"),
        ({"present": 100.0, "a": 104.0, "b": 110.0}, "b"),
        ({"present": 100.0, "other": 50.0}, "present"),
    ],
)
def test_the_present_value_stays_unless_another_is_clearly_faster(speeds: dict[str, float], best: str):
    assert fastest(of_speeds(**speeds)).value == best


def test_a_disturbed_update_does_not_decide():
    candidate = Candidate("a", [100.0, 101.0, 1.0, 99.0, 102.0])
    assert candidate.speed == 100.0


def test_each_value_has_two_turns_in_both_orders():
    turns: list[int] = []
    compare([1, 2, 3], lambda candidate: turns.append(candidate.value))
    assert turns == [1, 2, 3, 3, 2, 1]


def test_updates_are_timed_but_for_the_first(tmp_path):
    trainer = trainer_of(tmp_path, 1, steps=6)
    step, slow = trainer.train_step, [0.2, 0.0, 0.0, 0.0, 0.0, 0.0]

    def delayed(update):
        time.sleep(slow[trainer.step])
        return step(update)

    trainer.train_step = delayed
    candidate = Candidate("a")
    time_updates(trainer, candidate)
    assert len(candidate.rates) == 5, "the run has no more updates"
    assert candidate.start_up >= 0.2
    assert 0 <= candidate.waited <= candidate.seconds
    assert min(candidate.rates) > 0
    facts = candidate.facts()
    assert facts["updates"] == 5
    assert facts["tokens_per_second"] == candidate.speed


def test_a_turn_ends_when_its_time_is_over_after_one_update(tmp_path, monkeypatch):
    monkeypatch.setattr(tuning, "SECONDS", 0.0)
    candidate = Candidate("a")
    time_updates(trainer_of(tmp_path, 1, steps=12), candidate)
    assert len(candidate.rates) == 1


@pytest.mark.parametrize(
    ("capability", "plain"),
    [
        (None, ["fp32"]),
        ((6, 1), ["fp32"]),
        ((7, 0), ["fp16", "fp32"]),
        ((7, 5), ["fp16", "fp32"]),
        ((8, 0), ["bf16", "fp32"]),
        ((9, 0), ["bf16", "fp32"]),
    ],
)
def test_formats_that_are_tried(monkeypatch, capability, plain):
    device = torch.device("cpu" if capability is None else "cuda")
    if capability is None:
        monkeypatch.setattr(torch.cpu, "get_capabilities", dict)
    else:
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    assert precisions(device) == plain
    assert plain[0] == policy.resolve("auto", device), "auto's choice comes first"
