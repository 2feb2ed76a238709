"""Losses that are no numbers and losses that leap: found, named, and dealt with as was asked."""

import json
import math

import numpy as np
import pytest
import torch

from brimful.base.errors import BrimfulError
from brimful.objectives.supervised import Supervised
from brimful.runs import checkpoint
from brimful.tasks.task_data import make_evaluation
from brimful.train.guard import MEMORY_UPDATES, PATIENCE, UNJUDGED_UPDATES, Guard, Spike
from brimful.train.journal import SPIKES
from brimful.train.metrics import Window, read_metrics
from brimful.train.objective import is_better
from builders.tables import encoded
from builders.training import RUNTIME, TASK, assert_same_bits, examples_of, supervised, trainer_of, weights


class Broken(Supervised):
    """Multiplies the loss of some updates, known by the tokens of their batch, with a factor."""

    factor = float("nan")
    tokens: frozenset[bytes] = frozenset()

    def loss(self, encoder, batch, layout=None):
        sums = super().loss(encoder, batch, layout)
        broken = batch.tokens.numpy().tobytes() in self.tokens
        return sums | {"classification": sums["classification"] * (self.factor if broken else 1.0)}


def breaking(directory, seed, updates, factor=float("nan"), **config):
    """A trainer whose data is broken at these updates (from 0), however often they come."""

    def objective(head):
        made = supervised(head, None, Broken)
        made.factor = factor
        return made

    settings = {"tokens": 4096, "steps": 40, "log_every": 7, "checkpoint_every": 5}
    trainer = trainer_of(directory, seed, objective=objective, **settings | config)
    cursor, seen = trainer.progress.cursor, []
    for _ in range(trainer.training.config.steps):
        (batch,), cursor = trainer.stream.take(cursor)
        seen.append(batch.tokens.numpy().tobytes())
    assert len(set(seen)) == len(seen)
    trainer.objective.tokens = frozenset(seen[update] for update in updates)
    return trainer


def spikes(directory):
    return [json.loads(line) for line in (directory / SPIKES).read_text().splitlines()]


@pytest.mark.parametrize(
    ("factor", "log_every"), [(float("nan"), 7), (float("inf"), 30), (1e12, 7), (1e12, 30)]
)
def test_the_update_is_named_and_no_checkpoint_holds_it(seed, tmp_path, factor, log_every, capsys):
    """Nor the checkpoint of an evaluation that falls on no line."""
    settings = {"log_every": log_every, "evaluate_every": 12, "checkpoint_every": 20, "steps": 36}
    trainer = breaking(tmp_path, seed, [32], factor, spike=20.0, **settings)
    head = trainer.objective.head
    trainer.objective.evaluate = make_evaluation(TASK, head, encoded(examples_of(20, seed + 1)))
    with pytest.raises(BrimfulError, match=r"at step 33.*lower optimizer.learning_rate.*spikes.jsonl"):
        trainer.run("test")
    assert "at step 33" not in capsys.readouterr().err  # the error says it
    (spike,) = spikes(tmp_path)
    assert (spike["update"], spike["action"]) == (33, "stop")
    (batch,), _ = trainer.stream.take(spike["cursor"])
    assert batch.tokens.numpy().tobytes() in trainer.objective.tokens
    assert max(checkpoint.read_states(tmp_path / "checkpoints")) <= 32
    assert all(math.isfinite(v) for line in read_metrics(tmp_path / "metrics.jsonl") for v in line.values())


@pytest.mark.parametrize(("updates", "factor"), [([32], float("nan")), ([22, 33], 1e12)])
def test_skipping_gives_the_run_without_these_updates(seed, tmp_path, factor, updates):
    trainer = breaking(tmp_path / "skip", seed, updates, factor, spike=20.0, on_spike="skip")
    trainer.run("test")
    assert [spike["update"] - 1 for spike in spikes(tmp_path / "skip")] == updates
    assert trainer.progress.step == 40

    def leave_out(step, cursor, *_):
        return Spike(step, cursor, 0.0, 0.0, 0.0, 0.0) if step in updates else None

    other = breaking(tmp_path / "without", seed, [], on_spike="skip")
    other.guard.judge_before_step = leave_out
    other.run("test")
    assert_same_bits(weights(trainer), weights(other))
    lines = read_metrics(tmp_path / "skip" / "metrics.jsonl")
    assert [line["step"] for line in lines] == [7, 14, 21, 28, 35, 40]


def test_a_run_that_skipped_is_resumed_without_the_update(seed, tmp_path):
    whole = breaking(tmp_path / "whole", seed, [12], on_spike="skip")
    whole.run("test")
    # As after a kill at step 20 and at step 10: the second one meets the broken update again.
    for step in (20, 10):
        folder = tmp_path / str(step)
        first = breaking(folder, seed, [12], on_spike="skip", keep_checkpoints=100)
        first.run("test")
        for later in checkpoint.read_states(folder / "checkpoints"):
            if later > step:
                (folder / "checkpoints" / f"step-{later}" / "checkpoint.json").unlink()
        again = breaking(folder, seed, [12], on_spike="skip")
        assert again.resume()
        assert again.progress.step == step
        again.run("test")
        assert again.guard.left_out == [12]
        assert [spike["update"] for spike in spikes(folder)] == [13]
        assert_same_bits(weights(again), weights(whole))


def test_what_does_not_end_stops_the_run(seed, tmp_path):
    trainer = breaking(tmp_path, seed, range(15, 40), on_spike="skip")
    with pytest.raises(BrimfulError, match=rf"{PATIENCE} of the updates before it were left out"):
        trainer.run("test")
    assert [spike["action"] for spike in spikes(tmp_path)] == ["skip"] * PATIENCE + ["stop"]


def test_the_best_figure_is_finite_and_better_than_the_one_before():
    assert not is_better(math.nan, None, ("loss", "lowest"))
    for direction, better, worse in (("lowest", 1.0, 3.0), ("highest", 3.0, 1.0)):
        found = [is_better(value, 2.0, ("metric", direction)) for value in (better, 2.0, worse)]
        assert found == [True, False, False]


def test_the_guard_knows_mean_and_deviation_and_goes_on_with_them(seed):
    """Against plain sums, in float64: 1e-9, as the two add up in another order."""
    generator = np.random.default_rng(seed)
    losses = generator.uniform(4.5, 5.5, MEMORY_UPDATES)  # at most 1.7 deviations from the mean
    threshold = 20.0  # far from what a mean and a deviation of only 16 losses make of the next ones

    def judged(guard, first, values):
        window = Window()
        for step, value in enumerate(values, first):
            window.add((step, {}), {}, torch.tensor(value, dtype=torch.float64), torch.tensor(1.0))
        return guard.judge(window)

    guard = Guard(threshold, "stop", RUNTIME.world)
    early = float(losses.mean() + 100)
    assert judged(guard, 0, losses[: UNJUDGED_UPDATES - 1]) is None
    assert judged(guard, UNJUDGED_UPDATES - 1, losses[UNJUDGED_UPDATES - 1 :]) is None
    other = Guard(threshold, "stop", RUNTIME.world)
    other.load_state_dict(json.loads(json.dumps(guard.state_dict())))
    spike = judged(other, MEMORY_UPDATES, [early])
    assert spike.update == MEMORY_UPDATES
    assert spike.mean == pytest.approx(losses.mean(), rel=1e-9)
    assert spike.deviation == pytest.approx(losses.std(), rel=1e-9)
    just_below, just_above = (spike.mean + (threshold + x) * spike.deviation for x in (-1e-6, 1e-6))
    assert judged(guard, MEMORY_UPDATES, [just_above]).loss == just_above
    assert judged(guard, MEMORY_UPDATES, [just_below]) is None
    fresh = Guard(threshold, "stop", RUNTIME.world)
    assert judged(fresh, 0, [5.0, 5.1, 1e6]) is None  # too few to know
