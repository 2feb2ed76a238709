"""The best evaluation: its weights are kept, and training ends when none is better for long enough."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from brimful.base.errors import BrimfulError
from brimful.objectives.supervised import Supervised
from brimful.runs import checkpoint
from brimful.stages.distil_options import DistilConfig
from brimful.stages.pretrain_config import PretrainConfig
from brimful.stages.task_options import FinetuneConfig
from brimful.train.config import LoopConfig, TrainerConfig
from brimful.train.metrics import read_metrics
from brimful.train.trainer import Trainer
from builders.training import TASK, KilledError, assert_same_bits, kill_at, trainer_of, weights

EVERY = 2
LOOP = {"steps": 12, "evaluate_every": EVERY, "checkpoint_every": 3, "keep_checkpoints": 1}


class Scripted(Supervised):
    """Its evaluations have the given accuracies, in the order of updates."""

    trainer: Trainer
    values: Sequence[float]

    def evaluate(self, encoder, runtime):
        return {"accuracy": self.values[self.trainer.progress.step // EVERY - 1]}


def trainer_with(values: Sequence[float], folder: Path, **config) -> Trainer:
    trainer = trainer_of(folder, 0, objective=lambda head: Scripted(TASK, head), **LOOP | config)
    trainer.objective.trainer, trainer.objective.values = trainer, values
    return trainer


VALUES = (0.5, 0.7, 0.6, 0.7, 0.1, 0.2)


def test_the_weights_of_the_best_evaluation_are_kept(tmp_path):
    """Of two equal evaluations the first is the best."""
    trainer = trainer_with(VALUES, tmp_path / "best", keep="best")
    trainer.run("test")
    assert (trainer.progress.step, trainer.progress.best) == (12, (4, 0.7))
    states = checkpoint.read_states(tmp_path / "best" / "checkpoints")
    assert (sorted(states), states[12]["best"]) == ([4, 12], [4, 0.7])
    assert states[12]["versions"].keys() == {"python", "brimful", "torch", "numpy"}
    stopped = trainer_with(VALUES, tmp_path / "short")
    with pytest.raises(KilledError):
        kill_at(2 * EVERY, stopped).run("test")
    assert_same_bits(weights(trainer), weights(stopped))
    last = trainer_with(VALUES, tmp_path / "last")
    last.run("test")
    assert last.progress.step == 12
    assert any(not a.equal(b) for a, b in zip(weights(last).values(), weights(trainer).values(), strict=True))


@pytest.mark.parametrize(("patience", "steps"), [(1, 6), (3, 10), (9, 12)])
def test_training_ends_after_evaluations_without_a_better_one(tmp_path, patience, steps, capfd):
    trainer = trainer_with(VALUES, tmp_path, patience=patience)
    trainer.run("test")
    assert (trainer.progress.step, trainer.progress.best) == (steps, (4, 0.7))
    evaluations = [line for line in capfd.readouterr().err.splitlines() if "held-out accuracy" in line]
    assert len(evaluations) == min(steps, 10) // EVERY  # the last one of all steps is the result


@pytest.mark.parametrize("killed", [3, 7])
def test_a_resumed_run_ends_where_it_would_have_ended(tmp_path, killed):
    whole = trainer_with(VALUES, tmp_path / "whole", patience=2)
    whole.run("test")
    with pytest.raises(KilledError):
        kill_at(killed, trainer_with(VALUES, tmp_path / "run", patience=2)).run("test")
    resumed = trainer_with(VALUES, tmp_path / "run", patience=2)
    assert resumed.resume()
    resumed.run("test")
    assert resumed.progress.step == whole.progress.step == 8
    assert_same_bits(weights(resumed), weights(whole))


@pytest.mark.parametrize(("patience", "steps"), [(0, 12), (1, 6)])
def test_a_run_that_died_after_its_last_update_is_over(tmp_path, patience, steps):
    whole = trainer_with(VALUES, tmp_path, patience=patience, checkpoint_every=2)
    assert not whole.resume()
    figures = whole.run("test")
    told = read_metrics(tmp_path / "metrics.jsonl")
    again = trainer_with(VALUES, tmp_path, patience=patience, checkpoint_every=2)
    assert again.resume()
    assert again.run("test") == figures
    assert again.progress.step == whole.progress.step == steps
    assert read_metrics(tmp_path / "metrics.jsonl") == told
    assert_same_bits(weights(again), weights(whole))


def test_the_best_weights_need_checkpoints_and_evaluations():
    for setting in ({"keep": "best"}, {"patience": 2}):
        with pytest.raises(BrimfulError, match="checkpoint_every"):
            TrainerConfig(**setting)
        with pytest.raises(BrimfulError, match=r"set trainer\.evaluate_every"):
            PretrainConfig(trainer=TrainerConfig(**setting, checkpoint_every=2))
        with pytest.raises(BrimfulError, match=r"set trainer\.evaluate_every"):
            DistilConfig(trainer=LoopConfig(**setting, checkpoint_every=2))
        PretrainConfig(trainer=TrainerConfig(**setting, checkpoint_every=2, evaluate_every=2))
        assert FinetuneConfig(trainer=LoopConfig(**setting, checkpoint_every=2)).chooses  # once an epoch
