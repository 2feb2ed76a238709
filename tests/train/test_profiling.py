"""--profile: a trace and a table that add up, and weights that do not change."""

import json
import time

import pytest
import torch

from brimful.objectives.supervised import Supervised
from brimful.train.profiling import PHASES, WARM, span
from builders.training import assert_same_bits, examples_of, supervised, trainer_of, weights

PAUSE = 0.05


class Slow(Supervised):
    """Whose forward pass takes at least so long."""

    def loss(self, encoder, batch, layout=None):
        time.sleep(PAUSE)
        return super().loss(encoder, batch, layout)


@pytest.mark.cases(1)
@pytest.mark.parametrize("updates", [4, 100])
def test_profile(seed, tmp_path, capsys, updates):
    """100 are more than there are."""
    settings = {"dropout": 0.2, "tokens": 4096, "steps": 10, "checkpoint_every": 4, "evaluate_every": 5}
    settings |= {
        "held_out": examples_of(9, seed + 1),
        "objective": lambda head: supervised(head, examples_of(9, 1), Slow),
    }
    plain = trainer_of(tmp_path / "plain", seed, **settings)
    plain.run("test")
    profiled = trainer_of(tmp_path / "profiled", seed, profile=updates, **settings)
    profiled.run("test")
    assert_same_bits(weights(plain), weights(profiled))
    assert not (tmp_path / "plain" / "profile").exists()

    made = min(updates, 10 - WARM)
    events = json.loads((tmp_path / "profiled" / "profile" / "trace.json").read_text())["traceEvents"]
    found = [event["name"] for event in events if event.get("cat") == "user_annotation"]
    for phase in ("forward", "backward", "communication", "optimizer"):
        assert found.count(phase) == made
    assert {"checkpoint", "evaluation", "data wait"} <= set(found)

    text = (tmp_path / "profiled" / "profile" / "table.txt").read_text()
    assert text in capsys.readouterr().err
    title, _, *lines = text.splitlines()
    assert title == f"an update, mean of {made} updates, profiled:"
    seconds = {line[:14].strip(): float(line[14:24]) for line in lines}
    assert list(seconds) == [*PHASES, "rest", "update"]
    assert seconds["forward"] >= PAUSE
    assert all(seconds[name] > 0 for name in (*PHASES, "rest"))
    assert sum(seconds.values()) - seconds["update"] == pytest.approx(seconds["update"], abs=1e-4)


def test_too_short_a_run_says_so(seed, tmp_path, capsys):
    trainer_of(tmp_path, seed, steps=WARM, profile=2).run("test")
    assert "nothing was profiled" in capsys.readouterr().err
    assert not (tmp_path / "profile").exists()


def test_an_error_ends_the_profile(seed, tmp_path):
    trainer = trainer_of(tmp_path, seed, profile=5)
    update = trainer.train_step

    def failing(*arguments):
        if trainer.progress.step == WARM + 1:
            raise KeyError
        return update(*arguments)

    trainer.train_step = failing
    with pytest.raises(KeyError):
        trainer.run("test")
    assert not torch.autograd._profiler_enabled()
    assert not (tmp_path / "profile").exists()
    trainer_of(tmp_path / "again", seed, profile=1).run("test")


def test_a_span_is_nothing_where_nobody_watches():
    assert span("forward") is span("backward")
