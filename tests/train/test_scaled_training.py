"""Training in float16 with a scaled loss: against float32, and after a kill."""

from itertools import pairwise

import pytest
import torch

from brimful.base.distributed import World
from brimful.base.errors import BrimfulError
from brimful.optim.lamb import Lamb
from brimful.optim.muon import Muon
from brimful.train.config import TrainerConfig
from brimful.train.guard import Spike
from brimful.train.objective import Runtime
from builders.training import assert_same_bits, killed_and_resumed, lines, trainer_of, weights

CPU = torch.device("cpu")
FP16 = Runtime(World(0, 1, CPU), "fp16")


@pytest.mark.parametrize("optimizer", ["adamw", "lamb", "muon"])
def test_losses_are_those_of_float32(seed, tmp_path, optimizer):
    """To 1e-2: activations have 11 bits, and ten updates add up their differences."""
    settings = {"optimizer": optimizer, "steps": 10, "log_every": 1, "batch": 24, "rate": 1e-4}
    settings["loss_scale"] = 64.0  # at which nothing is clipped
    trainer_of(tmp_path / "fp32", seed, **settings).run("test")
    scaled = trainer_of(tmp_path / "fp16", seed, runtime=FP16, **settings)
    scaled.run("test")
    plain, half = ([line["loss.classification"] for line in lines(tmp_path / n)] for n in ("fp32", "fp16"))
    assert half == pytest.approx(plain, rel=1e-2)
    assert half != plain
    scales = [line["loss_scale"] for line in lines(tmp_path / "fp16")]
    assert len(set(scales)) > 1
    assert {after / before for before, after in pairwise(scales)} <= {0.5, 2.0}
    assert all(p.dtype == torch.float32 for p in scaled.state.parameters.values())
    assert "loss_scale" not in lines(tmp_path / "fp32")[0]


def test_a_resumed_run_has_the_bits_and_the_scales_of_an_uninterrupted_one(seed, tmp_path):
    settings = {"runtime": FP16, "log_every": 2, "checkpoint_every": 2, "steps": 14, "dropout": 0.1}
    settings |= {"loss_scale": 1.0, "optimizer": "lamb"}
    whole = trainer_of(tmp_path / "whole", seed, **settings)
    whole.run("test")
    resumed = killed_and_resumed(lambda: trainer_of(tmp_path / "stopped", seed, **settings))
    assert_same_bits(weights(whole), weights(resumed))
    assert lines(tmp_path / "stopped") == lines(tmp_path / "whole")
    assert len({line["loss_scale"] for line in lines(tmp_path / "whole")}) > 2


def test_an_update_that_is_skipped_leaves_the_scale_alone(seed, tmp_path):
    trainer = trainer_of(tmp_path, seed, runtime=FP16, steps=6, log_every=1, on_spike="skip")
    judge, before = trainer.guard.judge_before_step, {}

    def all_but_the_third(step, *arguments):
        spike = judge(step, *arguments)
        if step == 2:
            before.update(weights(trainer), scale=torch.tensor(trainer.gradients.scaler.get_scale()))
            return Spike(step, {}, 0.0, 0.0, 0.0, 0.0)
        if step == 3:
            now = trainer.gradients.scaler.get_scale()
            assert_same_bits(before, weights(trainer) | {"scale": torch.tensor(now)})
        return spike

    trainer.guard.judge_before_step = all_but_the_third
    trainer.run("test")
    assert trainer.progress.step == 6
    assert before


def test_the_norm_and_clipping_know_no_scale(seed, tmp_path):
    norms = {}
    for runtime in ("fp32", "fp16"):
        settings = {"steps": 8, "log_every": 1, "clip": 0.05, "rate": 1e-4, "loss_scale": 64.0}
        trainer = trainer_of(tmp_path / runtime, seed, runtime=Runtime(World(0, 1, CPU), runtime), **settings)
        trainer.run("test")
        norms[runtime] = [line["gradient_norm"] for line in lines(tmp_path / runtime)]
    assert min(norms["fp32"]) > 0.05
    assert norms["fp16"] == pytest.approx(norms["fp32"], rel=0.05)


@pytest.mark.parametrize("kind", [Lamb, Muon])
def test_an_optimizer_divides_by_the_scale_and_skips_where_it_must(seed, kind):
    """GradScaler's contract: grad_scale, and found_inf where the step is to be left out."""
    torch.manual_seed(seed)
    start, gradients = torch.randn(6, 4), torch.randn(3, 6, 4)
    plain, scaled = (torch.nn.Parameter(start.clone()) for _ in range(2))
    one, other = (kind([{"params": [p]}], lr=0.1, weight_decay=0.1) for p in (plain, scaled))
    for index, gradient in enumerate(gradients):
        scale = torch.tensor(2.0 ** (7 + index))
        plain.grad, scaled.grad = gradient.clone(), gradient * scale
        one.step()
        other.grad_scale = scale
        other.step()
        assert torch.equal(plain, scaled)
        other.found_inf = torch.tensor(1.0)
        states = {name: value.clone() for name, value in other.state[scaled].items()}
        scaled.grad = torch.full_like(scaled, torch.inf)
        other.step()
        del other.found_inf
        assert torch.equal(plain, scaled)
        assert_same_bits(states, other.state[scaled])


@pytest.mark.parametrize(
    ("precision", "scale"), [("fp32", 64.0), ("bf16", 64.0), ("fp16", 0.0), ("fp16", 2.0**41)]
)
def test_a_scale_needs_fp16_and_has_bounds(precision, scale):
    with pytest.raises(BrimfulError, match=r"trainer\.loss_scale"):
        Runtime.of(World(0, 1, CPU), precision, TrainerConfig(loss_scale=scale))
