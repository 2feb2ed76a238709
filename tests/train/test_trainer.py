"""The training loop: exact updates, what it measures, and resuming after a kill."""

import itertools
from typing import get_args

import pytest
import torch

from brimful.base.errors import BrimfulError
from brimful.base.storage import commit, read_json
from brimful.base.types import Rounding
from brimful.objectives.supervised import Supervised
from brimful.runs.checkpoint import FORMAT
from brimful.tasks.task_data import make_evaluation
from brimful.train.metrics import read_metrics
from brimful.train.trainer import Trainer
from builders.tables import encoded
from builders.training import (
    BF16,
    FP16,
    MAX_LENGTH,
    RUNTIME,
    TASK,
    assert_same_bits,
    examples_of,
    killed_and_resumed,
    lines,
    supervised,
    trainer_of,
    weights,
)


@pytest.fixture
def seed(seed: int) -> int:
    torch.manual_seed(seed)
    return seed


def descend(trainer: Trainer) -> Trainer:
    """Plain gradient descent in place of the optimizer, so that an update shows its gradient."""
    group = {"params": [*trainer.state.parameters.values()], "peak": 0.5}
    trainer.state.optimizers = [torch.optim.SGD([group], lr=0.5)]
    return trainer


def test_an_update_of_micro_batches_is_the_update_of_the_whole_batch(seed, tmp_path):
    made = {}
    for tokens in (MAX_LENGTH, 45, 4096):
        # Eight examples may have fewer than 45 tokens.
        settings = {"tokens": tokens, "batch": 16, "steps": 3, "log_every": 1}
        trainer = descend(trainer_of(tmp_path / str(tokens), seed, **settings))
        batches, _ = trainer.stream.take(trainer.stream.start())
        made[tokens] = len(batches)
        trainer.run("test")
        if tokens == MAX_LENGTH:
            reference, losses = weights(trainer), read_metrics(trainer.journal.metrics.path)
            continue
        for name, value in weights(trainer).items():
            torch.testing.assert_close(value, reference[name], atol=1e-5, rtol=1e-5)
        for line, expected in zip(read_metrics(trainer.journal.metrics.path), losses, strict=True):
            loss = pytest.approx(expected["loss.classification"], rel=1e-5, abs=1e-6)
            assert line["loss.classification"] == loss
            assert line["gradient_norm"] == pytest.approx(expected["gradient_norm"], rel=1e-4)
            assert line["tokens"] == expected["tokens"]
    assert made[MAX_LENGTH] > made[45] > made[4096] == 1


@pytest.mark.parametrize("clip", [0.0, 0.05])
def test_the_gradient_of_all_parameters_together_is_clipped(seed, tmp_path, clip):
    trainer = descend(trainer_of(tmp_path, seed, steps=1, clip=clip, log_every=1))
    before = weights(trainer)
    trainer.run("test")
    rate = trainer.state.optimizers[0].param_groups[0]["lr"]
    moved = torch.stack([(before[name] - value).norm() for name, value in weights(trainer).items()])
    (line,) = read_metrics(trainer.journal.metrics.path)
    assert line["gradient_norm"] > 0.06
    assert float(moved.norm() / rate) == pytest.approx(clip or line["gradient_norm"], rel=1e-3)


@pytest.mark.parametrize("optimizer", ["adamw", "lamb", "muon"])
def test_evaluation_logging_and_checkpoints_do_not_change_training(seed, tmp_path, optimizer):
    settings = {"dropout": 0.2, "optimizer": optimizer}
    plain = trainer_of(tmp_path / "plain", seed, **settings)
    plain.run("test")
    settings |= {"log_every": 1, "evaluate_every": 2, "checkpoint_every": 3, "keep_checkpoints": 1}
    watched = trainer_of(tmp_path / "watched", seed, **settings, held_out=examples_of(20, seed + 1))
    watched.run("test")
    assert_same_bits(weights(plain), weights(watched))


def test_dropout_is_reproducible_and_its_own_seed_decides_it(seed, tmp_path):
    runs = []
    for index, trainer_seed in enumerate((5, 5, 6)):
        trainer = trainer_of(tmp_path / str(index), seed, dropout=0.2, trainer_seed=trainer_seed)
        torch.manual_seed(index)
        trainer.run("test")
        runs.append(weights(trainer))
    assert_same_bits(runs[0], runs[1])
    assert any(not torch.equal(runs[0][name], runs[2][name]) for name in runs[0])


def test_dropout_is_of_training_only_and_differs_between_micro_batches(seed, tmp_path):
    modes, seeds = [], []

    class Recording(Supervised):
        def loss(self, encoder, batch, layout=None):
            modes.append(("loss", encoder.training, self.head.training))
            seeds.append(torch.initial_seed())
            return super().loss(encoder, batch, layout)

        def evaluate(self, encoder, runtime):
            modes.append(("evaluate", encoder.training, self.head.training))
            return super().evaluate(encoder, runtime)

    held_out = examples_of(10, seed)
    settings = {"dropout": 0.2, "steps": 2, "evaluate_every": 1, "tokens": MAX_LENGTH}
    trainer = trainer_of(
        tmp_path, seed, objective=lambda head: supervised(head, held_out, Recording), **settings
    )
    figures = trainer.run("test")
    expected = [("loss", True, True), ("evaluate", False, False)] * 2
    assert [mode for mode, _ in itertools.groupby(modes)] == expected
    assert len(set(seeds)) == len(seeds) > 4
    evaluate = make_evaluation(TASK, trainer.objective.head, encoded(held_out))
    assert figures == evaluate(trainer.encoder, RUNTIME)


def test_metrics_have_the_documented_keys(seed, tmp_path):
    held_out = examples_of(20, seed + 1)
    trainer = trainer_of(tmp_path, seed, steps=10, log_every=4, evaluate_every=5, held_out=held_out)
    figures = trainer.run("test")
    told = read_metrics(tmp_path / "metrics.jsonl")
    training = [line for line in told if "loss.classification" in line]
    validation = [line for line in told if "validation.loss" in line]
    assert [line["step"] for line in training] == [4, 8, 10]
    assert [line["step"] for line in validation] == [5, 10]
    assert [line["step"] for line in told] == [4, 5, 8, 10, 10]
    keys = {"step", "loss.classification", "accuracy", "learning_rate", "gradient_norm", "tokens", "seconds"}
    keys |= {"tokens_per_second", "fill", "data_wait"}
    for line in training:
        assert 0 < line["fill"] <= 1
        assert 0 <= line["data_wait"] <= 1
        assert line.keys() == keys
        assert line["tokens_per_second"] == pytest.approx(line["tokens"] / line["seconds"])
    assert validation[-1] == {"step": 10} | {f"validation.{name}": value for name, value in figures.items()}
    cursor, expected = trainer.stream.start(), 0
    for _ in range(10):
        batches, cursor = trainer.stream.take(cursor)
        expected += sum(batch.real_tokens for batch in batches)
    assert training[-1]["tokens"] == expected


@pytest.mark.parametrize(
    ("runtime", "settings"),
    [
        *((RUNTIME, {"optimizer": optimizer}) for optimizer in ("adamw", "lamb", "muon")),
        (FP16, {"loss_scale": 1.0, "optimizer": "lamb"}),
        (BF16, {"residual": "bf16"}),
        (FP16, {"weights": "fp16"}),
        *((BF16, {"weights": "bf16", "rounding": rounding}) for rounding in get_args(Rounding)),
    ],
)
def test_a_resumed_run_has_the_bits_and_the_metrics_of_an_uninterrupted_one(
    seed, tmp_path, runtime, settings
):
    settings = settings | {"runtime": runtime, "dropout": 0.1, "held_out": examples_of(9, seed + 1)}
    settings |= {"log_every": 2, "checkpoint_every": 4, "evaluate_every": 3}
    whole = trainer_of(tmp_path / "whole", seed, **settings)
    whole.run("test")

    def make() -> Trainer:
        if (tmp_path / "stopped").exists():
            with open(tmp_path / "stopped" / "metrics.jsonl", "a") as file:
                file.write('{"step": 8, "loss.cl')
        return trainer_of(tmp_path / "stopped", seed, **settings)

    assert_same_bits(weights(killed_and_resumed(make)), weights(whole))
    told = lines(tmp_path / "stopped")
    assert told == lines(tmp_path / "whole")
    if "loss_scale" in settings:  # it has changed
        assert len({line["loss_scale"] for line in told if "loss_scale" in line}) > 2


def test_a_checkpoint_with_another_state_is_refused_by_name(seed, tmp_path):
    settings = {"checkpoint_every": 12, "held_out": examples_of(9, seed + 1)}
    trainer_of(tmp_path, seed, **settings).run("test")
    record = tmp_path / "checkpoints" / "step-12" / "checkpoint.json"
    content = read_json(record)
    files, state = [record.parent / name for name in content["files"]], content["state"]
    for key, value in (
        *(("best", {"x": None}), ("best", [2]), ("best", ["2", 0.5]), ("ranks", "two"), ("cursor", 3)),
        *(("cursor", {"x": 1}), ("loss_scaling", {"scale": None}), ("totals", {"x": 1})),
        ("totals", state["totals"] | {"tokens": "many"}),
        ("guard", state["guard"] | {"left_out": [None]}),
        ("guard", state["guard"] | {"mean": None}),
    ):
        commit(record, files, format=FORMAT, step=12, state=state | {key: value})
        with pytest.raises(BrimfulError, match=r"step-12.* (remove it|remove that folder) and"):
            trainer_of(tmp_path, seed, **settings).resume()
